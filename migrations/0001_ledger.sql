-- The ledger: one row for every request, which is one intent to write, named by (principal, request_id).
--
-- Rules for whoever changes this schema: old code must run against the new schema, so expand first and contract in a
-- later release. The primary key stays the only index of `requests`, and no index may cover a column that settling or
-- renewing changes: those updates are heap-only now, and one more index would make each of them write to every index.

create function rfc3339(moment timestamptz) returns text
    language sql stable strict parallel safe
    return to_char(moment at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');

-- Fencing tokens. A replica draws a block of 1,024 at a time, so that it knows an attempt's token before the statement
-- that claims is sent, and recognises its own claim when the acknowledgement of a commit was lost. Gaps are harmless.
create sequence claim_tokens as bigint increment by 1024;

create table requests (
    principal    text        collate "C" not null,
    request_id   text        collate "C" not null,
    operation    text        not null,
    -- A version byte and a SHA-256.
    fingerprint  bytea       not null,
    status       text        collate "C" not null
                 check (status in ('running', 'done', 'released', 'failed')),
    -- The fence: drawn anew at every claim and takeover, never used twice.
    token        bigint      not null,
    -- For people: how often this request was claimed or taken over, and how many of those leases lapsed.
    attempt      integer     not null,
    lapses       integer     not null default 0,
    -- When the claim lapses unless it is renewed; '-infinity' when its holder handed it back; null when nothing runs.
    lease_until  timestamptz,
    -- Whether a replica other than the holder's asked to be notified of the settlement.
    waiters      boolean     not null default false,
    -- The canonical arguments, kept until the request is settled so that any replica can finish it.
    arguments    text,
    -- The stored answer, as text, because jsonb would not keep its bytes.
    result       text,
    duplicate_of text,
    created_at   timestamptz not null,
    claimed_at   timestamptz not null,
    settled_at   timestamptz,
    -- The name of the replica that claimed last; nothing is decided by it.
    replica      text        not null,
    primary key (principal, request_id),
    check ((status = 'running') = (lease_until is not null)),
    check (status <> 'running' or arguments is not null)
) with (fillfactor = 85);

-- The keys of claims that are committed and not settled: what a partial index on status = 'running' would hold, without
-- its cost. It decides nothing; it only tells the scan where to look.
create table unsettled (
    principal  text collate "C" not null,
    request_id text collate "C" not null,
    primary key (principal, request_id)
);

-- What was created in the last minutes, to tell a caller that the same thing was just created under another request_id.
-- Best effort, therefore unlogged; an index on the ledger itself cost a tenth to a third of its throughput.
create unlogged table recent_creations (
    digest     uuid        not null,
    settled_at timestamptz not null,
    request_id text        not null,
    result_id  text        not null
);
create index recent_creations_digest on recent_creations (digest);

-- How far the retention sweep has walked through `requests`, in heap pages. One row.
create table sweep (
    only_row  boolean primary key default true check (only_row),
    next_page bigint  not null default 0,
    swept_at  timestamptz not null default '-infinity'
);
insert into sweep default values;

-- What operators did by hand.
create table audit (
    id      bigint generated always as identity primary key,
    done_at timestamptz not null default clock_timestamp(),
    actor   text        not null,
    action  text        not null,
    subject text        not null,
    outcome text        not null
);

-- One round of the retention sweep, which walks the next pages of the heap and starts again at its end. A function, because
-- a row that cannot be handled is set aside by a subtransaction of its own.
create function sweep_requests(keep_results_ms bigint, keep_keys_ms bigint, least_pages bigint, rounds bigint,
                               out scrubbed bigint, out deleted bigint, out set_aside bigint)
    language plpgsql
as $$
declare
    -- Short of the sixty seconds between two rounds of one replica, so that several replicas do not add up.
    pause     constant interval := least(interval '30 seconds', keep_results_ms * interval '1 millisecond' / 10);
    now       constant timestamptz := clock_timestamp();
    results_before constant timestamptz := now - keep_results_ms * interval '1 millisecond';
    keys_before    constant timestamptz := now - keep_keys_ms * interval '1 millisecond';
    pages     bigint := pg_relation_size('requests') / current_setting('block_size')::bigint;
    first     bigint;
    past      bigint;
    old       record;
begin
    scrubbed := 0;
    deleted := 0;
    set_aside := 0;
    -- Whoever has the row sweeps; nobody waits for it.
    select next_page into first from sweep where swept_at < now - pause for update skip locked;
    if not found then
        return;
    end if;
    if first >= pages then
        first := 0;
    end if;
    past := first + greatest(least_pages, pages / rounds);
    for old in
        select ctid, settled_at < keys_before as forgotten
        from requests
        where ctid >= format('(%s,0)', first)::tid and ctid < format('(%s,0)', past)::tid
          and ((status in ('done', 'released') and settled_at < keys_before)
               or (status = 'done' and result is not null and settled_at < results_before))
        for update skip locked
    loop
        begin
            if old.forgotten then
                delete from requests where ctid = old.ctid;
                deleted := deleted + 1;
            else
                update requests set result = null, duplicate_of = null where ctid = old.ctid;
                scrubbed := scrubbed + 1;
            end if;
        exception when others then
            set_aside := set_aside + 1;
            raise warning 'a request could not be swept: %', sqlerrm;
        end;
    end loop;
    -- Best-effort twins are of no use past their ten minutes.
    delete from recent_creations where settled_at < now - interval '10 minutes';
    update sweep set next_page = past, swept_at = now;
end
$$;
