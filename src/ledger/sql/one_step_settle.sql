
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
    insert into requests as r (principal, request_id, operation, fingerprint, status, token, attempt, result,
                               duplicate_of, created_at, claimed_at, settled_at, replica)
    select item.principal, item.request_id, $11, item.fingerprint, 'done', item.token, 1, judged.result,
           twin.twin, item.now, item.now, item.now, $12
    from item
    join judged using (ord)
    left join twin using (ord)
    where judged.refusal is null
    order by item.ord
    on conflict (principal, request_id) do nothing
    returning r.token, r.result, r.duplicate_of, r.settled_at
),
settled as materialized (
    select item.ord, recorded.* from recorded join item using (token)
),
effect as (
