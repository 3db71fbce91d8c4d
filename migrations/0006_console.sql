-- What operators look at; nothing is decided by it.

-- A replica writes its row every few seconds. One that was killed is the one whose row grows old.
create table replicas (
    instance   uuid        primary key,
    name       text        not null,
    version    text        not null,
    started_at timestamptz not null,
    seen_at    timestamptz not null,
    stage      text        not null,
    listening  boolean     not null,
    claims     bigint      not null,
    waiters    bigint      not null,
    -- Its calls of the last hour by minute and outcome, and its last conflicts and possible duplicates.
    lately     jsonb       not null
) with (fillfactor = 50);

-- Attempts that came to an end before their request did: a request that goes well never has a row here.
create table past_attempts (
    token      bigint      primary key,
    principal  text        collate "C" not null,
    request_id text        collate "C" not null,
    attempt    integer     not null,
    replica    text        not null,
    claimed_at timestamptz not null,
    -- When the next attempt took its place.
    ended_at   timestamptz not null,
    ending     text        collate "C" not null check (ending in ('lapsed', 'handed back', 'released'))
);
create index past_attempts_request on past_attempts (principal, request_id);
create index past_attempts_ended on past_attempts (ended_at);
