
),
twin as materialized (
    select item.ord, json_build_object('request_id', earlier.request_id, 'result_id', earlier.result_id)::text as twin
    from item
    cross join lateral (
        select request_id, result_id
        from recent_creations c
        where c.digest = item.digest and c.settled_at > item.now - interval '10 minutes'
        order by c.settled_at
        limit 1
    ) earlier
),
recorded as (
    update requests r
    set status = case when judged.refusal is null then 'done' else 'released' end,
        result = judged.result, duplicate_of = twin.twin, settled_at = item.now,
        lease_until = null, arguments = null, waiters = false
    from item
    join judged using (ord)
    left join twin using (ord)
    where r.principal = item.principal and r.request_id = item.request_id
      and r.token = item.token and r.status = 'running'
    returning r.token, r.status, r.result, r.duplicate_of, r.settled_at
),
settled as materialized (
    select item.ord, recorded.* from recorded join item using (token) where recorded.status = 'done'
),
effect as (
