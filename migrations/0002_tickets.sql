-- Tickets and their comments. (principal, request_id) is the second guard behind the ledger's fence: whatever else went
-- wrong, one request cannot have two effects.

create table tickets (
    ticket_id     text        collate "C" primary key,
    title         text        not null,
    body          text        not null,
    ticket_status text        collate "C" not null
                  check (ticket_status in ('open', 'in_progress', 'done', 'closed')),
    created_at    timestamptz not null,
    principal     text        collate "C" not null,
    request_id    text        collate "C" not null,
    constraint tickets_request unique (principal, request_id)
) with (fillfactor = 90);
create index tickets_order on tickets (created_at, ticket_id);

create table comments (
    comment_id text        collate "C" primary key,
    ticket_id  text        collate "C" not null references tickets,
    body       text        not null,
    created_at timestamptz not null,
    principal  text        collate "C" not null,
    request_id text        collate "C" not null,
    constraint comments_request unique (principal, request_id)
);
create index comments_order on comments (ticket_id, created_at, comment_id);
