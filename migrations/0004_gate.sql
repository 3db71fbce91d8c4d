-- What a write that is not saved yet has to pass beside its own operation's conditions: the operator's stop and the limit on
-- all writes of an hour. And the units of an hour that each source has used up, and by which way a request came first.

-- Such as 'mcp' or 'http'; null in rows of older releases. A name for those who tell it; the ledger decides nothing by it.
alter table requests add column origin text;

-- The operator's switch. One row.
create table write_stop (
    only_row   boolean primary key default true check (only_row),
    stopped    boolean not null default false,
    changed_at timestamptz not null default clock_timestamp()
);
insert into write_stop default values;

-- How many writes were saved in the running hour; kept only while there is a limit on them. One row.
create table saved_writes (
    only_row boolean primary key default true check (only_row),
    hour     timestamptz not null default '-infinity',
    saved    bigint      not null default 0
);
insert into saved_writes default values;

-- How many writes each source called for in an hour. Unlogged: it is written at every call, and all that a crash of the
-- server can do is to give everybody the hour's units anew.
create unlogged table source_units (
    source text collate "C" primary key,
    hour   timestamptz not null,
    used   bigint      not null
) with (fillfactor = 70);

create function this_hour() returns timestamptz
    language sql volatile strict parallel safe
    return date_trunc('hour', clock_timestamp(), 'UTC');

create function seconds_of_hour_left() returns bigint
    language sql volatile strict parallel safe
    return ceil(extract(epoch from this_hour() + interval '1 hour' - clock_timestamp()))::bigint;

-- Asked once by every statement that saves. `wanted` is how many of its items would be saved, `most` the limit of an hour, 0
-- for none; `saved` is what was saved in this hour before.
--
-- A volatile function, because its statements see what was committed when each of them begins, and not when the statement around
-- them began. The lock is shared by all that save: whoever stops writes takes it alone, after what is in flight and before all
-- that follows, so that nothing is saved once the stop has been told.
create function pass_gate(wanted bigint, most bigint, out stopped boolean, out saved bigint)
    language plpgsql volatile
as $$
declare
    running constant timestamptz := this_hour();
begin
    perform pg_advisory_xact_lock_shared(8316211, 1);
    select w.stopped into stopped from write_stop w;
    saved := 0;
    if stopped or most <= 0 then
        return;
    end if;
    select case when w.hour = running then w.saved else 0 end into saved from saved_writes w for update;
    if wanted > 0 then
        update saved_writes w
        set hour = running, saved = greatest(pass_gate.saved, least(most, pass_gate.saved + wanted));
    end if;
end
$$;

-- Stops or allows writes, after whatever is in flight. False when it was so already.
create function set_write_stop(wanted boolean) returns boolean
    language plpgsql volatile
as $$
begin
    perform pg_advisory_xact_lock(8316211, 1);
    update write_stop set stopped = wanted, changed_at = clock_timestamp() where stopped <> wanted;
    return found;
end
$$;
