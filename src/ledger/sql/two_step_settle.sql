
),
-- What is free to be done and not refused by its own conditions has to pass the gate all the same, and the gate comes first: its
-- refusals take the place of the operation's.
gate as materialized (
    select g.stopped, g.saved
    from (select count(*) filter (where refusal is null) as wanted from judged having count(*) > 0) counted,
         pass_gate(counted.wanted, $8::bigint) g
),
gated as materialized (
    select ord, principal, request_id, fingerprint, token, args, made, digest, origin, waiters, attempt, now, result_id, result,
           case when gate.stopped then 'writes_disabled'
                when $8::bigint > 0 and gate.saved + before >= $8::bigint then 'rate_limited'
                else refusal end as refusal,
           case when gate.stopped then null
                when $8::bigint > 0 and gate.saved + before >= $8::bigint then seconds_of_hour_left()::text
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
    update requests r
    set status = case when twinned.refusal is null then 'done' else 'released' end,
        result = case when twinned.refusal is null then twinned.result end,
        duplicate_of = case when twinned.refusal is null then twinned.twin end,
        settled_at = twinned.now, lease_until = null, arguments = null, waiters = false
    from twinned
    where r.principal = $1 and r.request_id = $2 and r.token = $3 and r.status = 'running'
    returning r.token, r.status
),
outcome as materialized (
    select twinned.*, recorded.status = 'done' as is_recorded
    from twinned join recorded using (token)
),
settled as materialized (
    select * from outcome where is_recorded
),
effect as (
