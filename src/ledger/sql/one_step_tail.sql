
),
remembered as (
    insert into recent_creations (digest, settled_at, request_id, result_id)
    select digest, now, request_id, result_id
    from settled
    where digest is not null
)
select ord, refusal, detail, case when is_recorded then result end as result, twin as duplicate_of,
       rfc3339(now) as answered_at, 1 as attempt
from outcome
