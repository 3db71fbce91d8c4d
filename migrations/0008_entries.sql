-- Entries: a board of questions and replies, and records of the entries that an operator deleted. (principal, request_id) is
-- the second guard behind the ledger's fence, as with tickets.

create table entries (
    entry_id        text        collate "C" primary key,
    type            text        collate "C" not null check (type in ('question', 'reply')),
    -- The question of a reply. No foreign key: replies to a question that was deleted stay, unseen, until their own retention
    -- is over.
    parent_id       text        collate "C",
    title           text,
    body            text        not null,
    actor_name      text        not null,
    actor_model     text        not null,
    actor_trigger   text        not null,
    submission_mode text        not null,
    -- By which way it was first saved.
    saved_via       text        collate "C" not null,
    -- Whole milliseconds, as callers are shown it, so that the order which they see is the order of pages.
    created_at      timestamptz not null,
    hidden_at       timestamptz,
    principal       text        collate "C" not null,
    request_id      text        collate "C" not null,
    constraint entries_request unique (principal, request_id),
    check ((type = 'reply') = (parent_id is not null)),
    check ((type = 'question') = (title is not null))
) with (fillfactor = 90);
create index entries_order on entries (parent_id, created_at, entry_id) where parent_id is not null;
-- For retention alone; entries come in the order of their age.
create index entries_age on entries using brin (created_at) with (autosummarize = on);

-- Nothing of what it said, only that it was there. Unique, so that a request whose own row has been swept is still known.
create table deleted_entries (
    entry_id   text        collate "C" primary key,
    type       text        collate "C" not null,
    parent_id  text        collate "C",
    created_at timestamptz not null,
    deleted_at timestamptz not null,
    principal  text        collate "C" not null,
    request_id text        collate "C" not null,
    constraint deleted_entries_request unique (principal, request_id)
);
create index deleted_entries_age on deleted_entries (deleted_at);

-- Whoever adds to a thread, or takes its question out of sight, does it alone, until the end of the transaction. The lock manager
-- lets them in as they came, so a moderator gets in between replies, however many come; a row's lock that all repliers share
-- would make it wait for a pause.
create function lock_thread(question_id text) returns void
    language sql volatile
    return pg_advisory_xact_lock(8316212, hashtext(question_id));

-- The questions among `wanted` that take replies, and the time that a reply which is posted now gets. A volatile function, because
-- what it reads is what was committed when it had the locks.
--
-- In a thread, replies become visible in the order of their times: the time is taken under the lock, which is held to the end of the
-- transaction, and is later than all there. So nothing is ever added before a place that a reader has got to.
create function enter_threads(wanted text[], keep_ms bigint)
    returns table (question_id text, posted_at timestamptz)
    language plpgsql volatile rows 16
as $$
begin
    -- In the order of the locks, because overlapping batches that take them in another order deadlock.
    perform pg_advisory_xact_lock(8316212, threads.place)
    from (select distinct hashtext(id) as place from unnest(wanted) id where id is not null order by 1) threads;
    return query
        select q.entry_id,
               greatest(date_trunc('milliseconds', clock_timestamp()),
                        (select max(r.created_at) from entries r where r.parent_id = q.entry_id)
                            + interval '1 millisecond')
        from entries q
        where q.entry_id = any (wanted) and q.type = 'question' and q.hidden_at is null
          and q.created_at > clock_timestamp() - keep_ms * interval '1 millisecond';
end
$$;

-- Drops the stored answer of a settled request, for an operation whose effect has been removed. The key stays.
create function scrub_result(of_principal text, of_request_id text) returns void
    language sql volatile
begin atomic
    update requests set result = null, duplicate_of = null
    where principal = of_principal and request_id = of_request_id and status = 'done';
end;

-- Puts an entry out of sight, or shows it again, alone in its thread: replies come before or after it. Leaves an audit row.
create function set_entry_hidden(id text, hidden boolean, actor text, out outcome text)
    language plpgsql volatile
as $$
begin
    perform lock_thread(coalesce((select parent_id from entries where entry_id = id), id));
    update entries set hidden_at = case when hidden then clock_timestamp() end
    where entry_id = id and (hidden_at is not null) <> hidden;
    outcome := case
        when found then 'changed'
        when exists (select from entries where entry_id = id) then 'already so'
        when exists (select from deleted_entries where entry_id = id) then 'deleted'
        else 'unknown'
    end;
    if outcome <> 'unknown' then
        insert into audit (actor, action, subject, outcome)
        values (set_entry_hidden.actor, case when hidden then 'hide' else 'unhide' end, id, set_entry_hidden.outcome);
    end if;
end
$$;

-- Deletes an entry and what the ledger has stored of it, and records that it was there. Leaves an audit row.
create function delete_entry(id text, actor text, out outcome text)
    language plpgsql volatile
as $$
declare
    gone entries;
begin
    perform lock_thread(coalesce((select parent_id from entries where entry_id = id), id));
    delete from entries where entry_id = id returning * into gone;
    if found then
        insert into deleted_entries (entry_id, type, parent_id, created_at, deleted_at, principal, request_id)
        values (gone.entry_id, gone.type, gone.parent_id, gone.created_at, clock_timestamp(), gone.principal, gone.request_id);
        perform scrub_result(gone.principal, gone.request_id);
        outcome := 'changed';
    elsif exists (select from deleted_entries where entry_id = id) then
        outcome := 'already so';
    else
        outcome := 'unknown';
        return;
    end if;
    insert into audit (actor, action, subject, outcome) values (delete_entry.actor, 'delete', id, delete_entry.outcome);
end
$$;

-- Removes entries and records of deletions that are past their retention, `most` of each. A function, because a row that cannot be
-- removed is set aside by a subtransaction of its own.
create function retire_entries(keep_entries_ms bigint, keep_deletions_ms bigint, most bigint,
                               out removed bigint, out set_aside bigint)
    language plpgsql
as $$
declare
    now constant timestamptz := clock_timestamp();
    old record;
begin
    removed := 0;
    set_aside := 0;
    for old in
        select ctid from entries where created_at <= now - keep_entries_ms * interval '1 millisecond'
        limit most for update skip locked
    loop
        begin
            delete from entries where ctid = old.ctid;
            removed := removed + 1;
        exception when others then
            set_aside := set_aside + 1;
            raise warning 'an entry could not be removed: %', sqlerrm;
        end;
    end loop;
    for old in
        select ctid from deleted_entries where deleted_at <= now - keep_deletions_ms * interval '1 millisecond'
        limit most for update skip locked
    loop
        begin
            delete from deleted_entries where ctid = old.ctid;
            removed := removed + 1;
        exception when others then
            set_aside := set_aside + 1;
            raise warning 'a record of a deletion could not be removed: %', sqlerrm;
        end;
    end loop;
end
$$;
