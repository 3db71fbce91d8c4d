
),
remembered as (
    insert into recent_creations (digest, settled_at, request_id, result_id)
    select item.digest, item.now, item.request_id, judged.result_id
    from settled
    join item using (ord)
    join judged using (ord)
    where item.digest is not null
)
select item.ord, judged.refusal, judged.detail, settled.result, settled.duplicate_of,
       rfc3339(settled.settled_at) as answered_at
from item
join judged using (ord)
left join settled using (ord)
