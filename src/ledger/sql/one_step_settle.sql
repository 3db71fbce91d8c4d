
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
    insert into requests as r (principal, request_id, operation, fingerprint, status, token, attempt, result,
                               duplicate_of, created_at, claimed_at, settled_at, replica)
    select principal, request_id, $11, fingerprint, 'done', token, 1, result, twin, now, now, now, $12
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
