-- Claims, acts and settles requests that have no row yet. What has a row, or is locked by another claimer, is left out
-- and not waited for. The CASE fixes the order: only a key without a row is locked.
with input as materialized (
    select *
    from unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::bigint[], $6::text[], $7::text[], $8::uuid[],
                $9::bigint[], $13::text[], $15::text[])
         with ordinality
         as input (principal, request_id, key_hash, fingerprint, token, args, made, digest, minted_ms, origin, trace, ord)
),
item as materialized (
    select ord, principal, request_id, fingerprint, token, args::jsonb as args, made::jsonb as made, digest, origin, trace,
           clock_timestamp() as now
    from input
    where case
              when (select 1 from requests r
                    where r.principal = input.principal and r.request_id = input.request_id) is not null then false
              when to_timestamp(minted_ms / 1000.0) < clock_timestamp() - $10::bigint * interval '1 millisecond' then false
              else pg_try_advisory_xact_lock(key_hash)
          end
    order by ord
),
judged as materialized (
