-- Acts and settles requests whose claim is committed. The fence comes first: an attempt whose token is no longer the row's
-- finds no item and changes nothing.
with input as materialized (
    select *
    from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::uuid[])
         with ordinality as input (principal, request_id, key_hash, token, args, made, digest, ord)
),
item as materialized (
    select input.ord, input.principal, input.request_id, input.token, input.key_hash, input.args::jsonb as args,
           input.made::jsonb as made, input.digest, r.waiters, clock_timestamp() as now
    from input
    join requests r on r.principal = input.principal and r.request_id = input.request_id
    where r.token = input.token and r.status = 'running'
    for no key update of r
),
judged as materialized (
