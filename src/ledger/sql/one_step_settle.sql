
),
-- What is free to be done and not refused by its own conditions has to pass the gate all the same, and the gate comes first: its
-- refusals take the place of the operation's.
gate as materialized (
    select g.stopped, g.saved
    from (select count(*) filter (where refusal is null) as wanted from judged having count(*) > 0) counted,
         pass_gate(counted.wanted, $14::bigint) g
),
gated as materialized (
    select ord, principal, request_id, fingerprint, token, args, made, digest, origin, trace, now, result_id, result,
           case when gate.stopped then 'writes_disabled'
                when $14::bigint > 0 and gate.saved + before >= $14::bigint then 'rate_limited'
                else refusal end as refusal,
           case when gate.stopped then null
                when $14::bigint > 0 and gate.saved + before >= $14::bigint then seconds_of_hour_left()::text
                else detail end as detail
    from (
        select *, count(*) filter (where refusal is null) over (order by ord)
                  - case when refusal is null then 1 else 0 end as before
        from judged
    ) counted
    cross join gate
),
twinned as materialized (
    select gated.*, (
        select json_build_object('request_id', c.request_id, 'result_id', c.result_id)::text
        from recent_creations c
        where c.digest = gated.digest and c.settled_at > gated.now - interval '10 minutes'
        order by c.settled_at
        limit 1
    ) as twin
    from gated
),
recorded as (
    insert into requests as r (principal, request_id, operation, fingerprint, status, token, attempt, result,
                               duplicate_of, created_at, claimed_at, settled_at, replica, origin, trace)
    select principal, request_id, $11, fingerprint, 'done', token, 1, result, twin, now, now, now, $12, origin, trace
    from twinned
    where refusal is null
    order by ord
    on conflict (principal, request_id) do nothing
    returning r.token
),
-- A full join, because it cannot be planned as a nested loop, which the planner prefers for the few rows that it expects
-- and which is quadratic in the size of the batch.
outcome as materialized (
    select twinned.*, recorded.token is not null as is_recorded
    from twinned full join recorded on recorded.token = twinned.token
),
settled as materialized (
    select * from outcome where is_recorded
),
effect as (
