
),
remembered as (
    insert into recent_creations (digest, settled_at, request_id, result_id)
    select digest, now, request_id, result_id
    from settled
    where digest is not null
),
unlisted as (
    delete from unsettled u
    using outcome
    where u.principal = outcome.principal and u.request_id = outcome.request_id
),
announced as materialized (
    select pg_notify('ticket_ledger', $7::bigint::text) from outcome where waiters
)
select ord, refusal, detail, case when is_recorded then result end as result, twin as duplicate_of,
       rfc3339(now) as answered_at, attempt, (select count(*) from announced) as announced
from outcome
