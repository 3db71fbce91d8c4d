create table reactions (
    ticket_id  text        collate "C" not null references tickets,
    emoji      text        not null,
    created_at timestamptz not null,
    principal  text        collate "C" not null,
    request_id text        collate "C" not null,
    constraint reactions_request unique (principal, request_id)
);
create index reactions_ticket on reactions (ticket_id);
