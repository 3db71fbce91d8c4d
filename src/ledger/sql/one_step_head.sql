-- Claims, acts and settles requests that have no row yet. What has a row, or is locked by another claimer, is left out
-- and not waited for. The existence test is a scalar subquery because as NOT EXISTS it was planned eight times slower.
with input as materialized (
    select *
    from unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::bigint[], $6::text[], $7::text[], $8::uuid[],
                $9::bigint[])
         with ordinality
         as input (principal, request_id, key_hash, fingerprint, token, args, made, digest, minted_ms, ord)
),
item as materialized (
    select ord, principal, request_id, fingerprint, token, args::jsonb as args, made::jsonb as made, digest,
           clock_timestamp() as now
    from input
    where (select 1 from requests r where r.principal = input.principal and r.request_id = input.request_id) is null
      and (minted_ms is null or to_timestamp(minted_ms / 1000.0) > clock_timestamp() - $10::bigint * interval '1 millisecond')
      and pg_try_advisory_xact_lock(key_hash)
    order by ord
),
judged as materialized (
