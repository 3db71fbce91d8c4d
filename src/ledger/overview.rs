//! What an operator sees: all replicas, what runs, what happened lately, one request with its attempts. Reads alone.

use super::Ledger;
use crate::postgres::DatabaseError;

impl Ledger {
    /// Everything at a glance, as JSON text.
    ///
    /// # Errors
    /// Postgres cannot be reached.
    pub async fn overview(&self) -> Result<String, DatabaseError> {
        const SQL: &str = "
            select json_build_object(
                'now', rfc3339(clock_timestamp()),
                'writes_stopped', (select stopped from write_stop),
                'replicas', coalesce((
                    select json_agg(json_build_object(
                        'name', name, 'version', version, 'stage', stage, 'listening', listening, 'claims', claims,
                        'waiters', waiters, 'lately', lately, 'started_at', rfc3339(started_at),
                        'silent_s', greatest(0, extract(epoch from clock_timestamp() - seen_at))::bigint)
                        order by stage = 'stopped', name, started_at)
                    from replicas where seen_at > clock_timestamp() - interval '15 minutes'), '[]'),
                'unsettled', coalesce((
                    select json_agg(u) from (
                        select r.request_id, r.operation, r.attempt, r.lapses, r.replica, r.waiters,
                               extract(epoch from clock_timestamp() - r.created_at)::bigint as age_s,
                               case when r.lease_until > clock_timestamp() then 'running' else 'abandoned' end as status
                        from unsettled u join requests r using (principal, request_id)
                        where r.status = 'running'
                        order by r.created_at limit 100) u), '[]'),
                'unsettled_count', (select count(*) from unsettled),
                'takeovers', coalesce((
                    select json_agg(t) from (
                        select request_id, attempt, replica, ending,
                               extract(epoch from clock_timestamp() - ended_at)::bigint as ago_s
                        from past_attempts where ending in ('lapsed', 'handed back')
                        order by ended_at desc limit 20) t), '[]')
            )::text";
        let mut lent = self.store.database.lend().await?;
        let statement = sqlx::query_scalar(SQL);
        let answer = self
            .store
            .database
            .within("overview", statement.fetch_one(lent.connection()))
            .await;
        lent.answered(answer)
    }

    /// A request with its attempts, for every principal that has one of this name, as JSON text. Neither arguments nor results.
    ///
    /// # Errors
    /// Postgres cannot be reached.
    pub async fn history(&self, request_id: &str) -> Result<String, DatabaseError> {
        // The primary key begins with the principal: one step into the index for each of them, not a walk over all requests.
        const SQL: &str = "
            with recursive principals as (
                (select principal from requests order by principal limit 1)
                union all
                select (select r.principal from requests r where r.principal > p.principal order by r.principal limit 1)
                from principals p where p.principal is not null
            ),
            found as (
                select r.* from principals p join requests r on r.principal = p.principal and r.request_id = $1
                limit 20
            )
            select coalesce(json_agg(json_build_object(
                'principal', f.principal, 'request_id', f.request_id, 'operation', f.operation,
                'status', case when f.status = 'running' and f.lease_until < clock_timestamp() then 'abandoned'
                               else f.status end,
                'lapses', f.lapses, 'created_at', rfc3339(f.created_at), 'settled_at', rfc3339(f.settled_at),
                'waited_for', f.waiters, 'origin', f.origin, 'trace', f.trace,
                'attempts', (
                    select json_agg(a order by a.attempt) from (
                        select p.attempt, p.replica, rfc3339(p.claimed_at) as from_time, rfc3339(p.ended_at) as to_time,
                               p.ending
                        from past_attempts p where p.principal = f.principal and p.request_id = f.request_id
                        union all
                        select f.attempt, f.replica, rfc3339(f.claimed_at), rfc3339(f.settled_at), f.status
                    ) a)
            )), '[]')::text
            from found f";
        let mut lent = self.store.database.lend().await?;
        let statement = sqlx::query_scalar(SQL).bind(request_id);
        let answer = self
            .store
            .database
            .within("history", statement.fetch_one(lent.connection()))
            .await;
        lent.answered(answer)
    }
}
