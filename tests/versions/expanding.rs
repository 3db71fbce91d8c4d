//! Migrations expand: whatever statement an old release sends is as good after the next migration as it was before.
//!
//! Seen in the catalogue, because an old release's statements are not here to be run: what they may name is still there, and nothing
//! more is asked of what they write.

use std::collections::BTreeSet;

use sqlx::{Connection, PgConnection};

use crate::support::cluster::TestCluster;
use crate::support::schema::{apply, empty_database, migrations};

/// What a migration takes away or asks all the same, and why that harms no release that may run beside it: its number, what this test
/// says of it, and the reason, such as the release that stopped using it, or a check that allows more than it did.
const EXCUSED: [(i64, &str, &str); 0] = [];

/// What statements may name: it has to stay.
const NAMES: &str = "
    select 'table ' || relname from pg_class
    where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v')
    union all
    select format('column %s.%s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod))
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum > 0 and not a.attisdropped
    union all
    -- A key for `on conflict`, and the second guard.
    select format('unique %s (%s)', c.relname, (
               select string_agg(a.attname, ', ' order by k.ord)
               from unnest(i.indkey) with ordinality k (num, ord)
               join pg_attribute a on a.attrelid = c.oid and a.attnum = k.num))
    from pg_index i join pg_class c on c.oid = i.indrelid
    where c.relnamespace = 'public'::regnamespace and i.indisunique and i.indpred is null
    union all
    select format('sequence %s by %s', c.relname, s.seqincrement)
    from pg_sequence s join pg_class c on c.oid = s.seqrelid where c.relnamespace = 'public'::regnamespace
    union all
    select format('function %s(%s)', p.proname, pg_get_function_arguments(p.oid))
           || coalesce(' returns ' || pg_get_function_result(p.oid), '')
    from pg_proc p where p.pronamespace = 'public'::regnamespace";

/// What is asked of rows that are written, of a table and, of some, of a column: there may not be more of it than the old release
/// knows of.
const DEMANDS: &str = "
    select c.relname::text, a.attname::text, 'a value for ' || a.attname
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
      and a.attnotnull and not a.atthasdef and a.attidentity = ''
    union all
    select c.relname::text, a.attname::text, a.attname || ' may not be null'
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
      and a.attnotnull and (a.atthasdef or a.attidentity <> '')
    union all
    select c.relname::text, null, pg_get_constraintdef(o.oid)
    from pg_constraint o join pg_class c on c.oid = o.conrelid where c.relnamespace = 'public'::regnamespace and o.contype <> 'n'
    union all
    select c.relname::text, null, 'unique index ' || pg_get_indexdef(i.indexrelid)
    from pg_index i join pg_class c on c.oid = i.indrelid
    where c.relnamespace = 'public'::regnamespace and i.indisunique
      and not exists (select from pg_constraint o where o.conindid = i.indexrelid)
    union all
    select c.relname::text, null, pg_get_triggerdef(t.oid)
    from pg_trigger t join pg_class c on c.oid = t.tgrelid where c.relnamespace = 'public'::regnamespace and not t.tgisinternal
    union all
    select c.relname::text, null, 'row security'
    from pg_class c where c.relnamespace = 'public'::regnamespace and c.relrowsecurity
    union all
    select tablename::text, null, 'rule ' || rulename from pg_rules where schemaname = 'public'";

/// A demand: of which table, of which column, and what.
type Demand = (String, Option<String>, String);

/// A schema as old statements meet it.
struct Schema {
    names: BTreeSet<String>,
    demands: BTreeSet<Demand>,
}

impl Schema {
    async fn read(connection: &mut PgConnection) -> Self {
        let names: Vec<String> = sqlx::query_scalar(NAMES)
            .fetch_all(&mut *connection)
            .await
            .expect("names");
        let demands: Vec<Demand> = sqlx::query_as(DEMANDS).fetch_all(connection).await.expect("demands");
        Self {
            names: names.into_iter().collect(),
            demands: demands.into_iter().collect(),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.names.contains(&format!("table {name}"))
    }

    fn has_column(&self, table: &str, column: &str) -> bool {
        let start = format!("column {table}.{column} ");
        self.names.iter().any(|name| name.starts_with(&start))
    }

    /// What `after` breaks for statements that were written for this one.
    fn broken_by(&self, after: &Self) -> Vec<String> {
        let gone = self.names.difference(&after.names).map(|name| format!("gone: {name}"));
        let asked = after.demands.difference(&self.demands).filter(|(table, column, what)| {
            let is_new_default = column
                .as_ref()
                .is_some_and(|column| !self.has_column(table, column) && what.ends_with("may not be null"));
            self.has(table) && !is_new_default
        });
        let asked = asked.map(|(table, _, what)| format!("asked: {table}: {what}"));
        gone.chain(asked).chain(self.overloaded_by(after)).collect()
    }

    /// Functions of which there are two now: a call may not know which one it means.
    fn overloaded_by<'a>(&'a self, after: &'a Self) -> impl Iterator<Item = String> + 'a {
        let name = |function: &str| {
            function
                .strip_prefix("function ")?
                .split_once('(')
                .map(|(name, _)| name.to_owned())
        };
        let known: BTreeSet<String> = self.names.iter().filter_map(|one| name(one)).collect();
        let new = after.names.difference(&self.names);
        new.filter(move |one| name(one).is_some_and(|name| known.contains(&name)))
            .map(|one| format!("twice: {one}"))
    }
}

#[tokio::test]
async fn every_migration_leaves_what_the_statements_of_the_release_before_need_and_asks_no_more_of_them() {
    let url = empty_database().await;
    let mut connection = PgConnection::connect(&url).await.expect("connects");
    let all = migrations().await;
    let mut before = Schema::read(&mut connection).await;
    let mut unused: Vec<_> = EXCUSED.iter().map(|(version, what, _)| (*version, *what)).collect();
    for count in 1..=all.len() {
        apply(&url, all[..count].to_vec()).await.expect("migrates");
        let after = Schema::read(&mut connection).await;
        let version = all[count - 1].version;
        for broken in before.broken_by(&after) {
            let Some(place) = unused.iter().position(|excused| *excused == (version, &*broken)) else {
                panic!("migration {version} contracts: {broken}. Do it in a release after the one that stops using it");
            };
            unused.remove(place);
        }
        before = after;
    }
    assert!(unused.is_empty(), "nothing of the kind happens: {unused:?}");
}

/// Each contracts, in a way of its own.
const CONTRACTING: [&str; 15] = [
    "drop table recent_creations",
    "alter table requests drop column origin",
    "alter table requests rename column duplicate_of to twin",
    "alter table tickets rename to issues",
    "alter table requests alter column attempt type bigint",
    "alter table requests alter column trace set not null",
    "alter table comments add column language text not null",
    "alter table tickets add check (title <> '')",
    "alter table requests drop constraint requests_status_check, add check (status in ('running', 'done', 'failed'))",
    "create unique index tickets_title on tickets (title)",
    "alter table comments drop constraint comments_request",
    "drop function scrub_result(text, text)",
    "create function pass_gate(wanted bigint, most bigint, of_source text default '') returns boolean language sql return true",
    "alter sequence claim_tokens increment by 1",
    "create function refuse() returns trigger language plpgsql as $$ begin return null; end $$;
     create trigger refuse before insert on comments for each row execute function refuse()",
];

/// Each expands.
const EXPANDING: [&str; 6] = [
    "alter table requests add column urgency text",
    "alter table requests add column retries integer not null default 0",
    "create table watchers (ticket_id text not null references tickets, primary key (ticket_id), check (ticket_id <> ''))",
    "create index tickets_by_status on tickets (ticket_status)",
    "drop index entries_age",
    "alter table tickets drop constraint tickets_ticket_status_check",
];

#[tokio::test]
async fn a_migration_that_contracts_is_noticed_and_one_that_expands_is_not() {
    let url = TestCluster::shared().database().await;
    let mut connection = PgConnection::connect(&url).await.expect("connects");
    let before = Schema::read(&mut connection).await;
    for (sql, contracts) in CONTRACTING
        .map(|sql| (sql, true))
        .into_iter()
        .chain(EXPANDING.map(|sql| (sql, false)))
    {
        let mut transaction = connection.begin().await.expect("begins");
        sqlx::raw_sql(sql).execute(&mut *transaction).await.expect(sql);
        let broken = before.broken_by(&Schema::read(&mut transaction).await);
        assert_eq!(!broken.is_empty(), contracts, "{sql}: {broken:?}");
        transaction.rollback().await.expect("rolls back");
    }
}
