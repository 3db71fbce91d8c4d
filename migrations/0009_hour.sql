-- The hour that units and saved writes are counted in, at its edge: it is read once the row with the count is held, because whoever
-- waited for that row may have come in another hour, and it does not go back.

-- The hour to count in, where `counted` is the last one that was counted in: this one, or still that one while a clock that was set
-- back has it before its end. A clock that was further ahead was wrong, and is not waited for.
create function hour_after(counted timestamptz) returns timestamptz
    language sql volatile strict parallel safe
    return case when counted > this_hour() and counted <= this_hour() + interval '1 hour' then counted else this_hour() end;

-- As before, but for the hour.
create or replace function pass_gate(wanted bigint, most bigint, out stopped boolean, out saved bigint)
    language plpgsql volatile
as $$
declare
    counted timestamptz;
    running timestamptz;
begin
    perform pg_advisory_xact_lock_shared(8316211, 1);
    select w.stopped into stopped from write_stop w;
    saved := 0;
    if stopped or most <= 0 then
        return;
    end if;
    select w.hour, w.saved into counted, saved from saved_writes w for update;
    running := hour_after(counted);
    if counted <> running then
        saved := 0;
    end if;
    if wanted > 0 then
        update saved_writes w
        set hour = running, saved = greatest(pass_gate.saved, least(most, pass_gate.saved + wanted));
    end if;
end
$$;
