-- Acts and settles a request whose claim is committed. The fence comes first: an attempt whose token is no longer the row's
-- finds no item and changes nothing.
with item as materialized (
    select 1::bigint as ord, r.principal, r.request_id, r.fingerprint, r.token, $4::jsonb as args, $5::jsonb as made,
           $6::uuid as digest, r.origin, r.waiters, r.attempt, clock_timestamp() as now
    from requests r
    where r.principal = $1 and r.request_id = $2 and r.token = $3 and r.status = 'running'
    for no key update of r
),
judged as materialized (
