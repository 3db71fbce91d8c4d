
),
remembered as (
    insert into recent_creations (digest, settled_at, request_id, result_id)
    select item.digest, item.now, item.request_id, judged.result_id
    from settled
    join item using (ord)
    join judged using (ord)
    where item.digest is not null
),
unlisted as (
    delete from unsettled u
    using item
    join recorded using (token)
    where u.principal = item.principal and u.request_id = item.request_id
),
announced as materialized (
    select pg_notify('ticket_ledger', item.key_hash::text)
    from item
    join recorded using (token)
    where item.waiters
)
select item.ord, judged.refusal, judged.detail, settled.result, settled.duplicate_of,
       rfc3339(settled.settled_at) as answered_at, (select count(*) from announced) as announced
from item
join judged using (ord)
join recorded using (token)
left join settled using (ord)
