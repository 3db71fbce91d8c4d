
),
twinned as materialized (
    select judged.*, (
        select json_build_object('request_id', c.request_id, 'result_id', c.result_id)::text
        from recent_creations c
        where c.digest = judged.digest and c.settled_at > judged.now - interval '10 minutes'
        order by c.settled_at
        limit 1
    ) as twin
    from judged
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
