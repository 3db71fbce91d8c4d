//! The damage itself; see [`Kind`].

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;

use super::{Kind, Token};
use crate::unpoisoned;

static WANTED: LazyLock<Option<Kind>> = LazyLock::new(|| {
    let name = std::env::var("TICKET_LEDGER_SABOTAGE").ok()?;
    let kind = match name.as_str() {
        "no-fence" => Kind::NoFence,
        "attempt-for-token" => Kind::AttemptForToken,
        "no-row-check" => Kind::NoRowCheck,
        "workers-clock" => Kind::WorkersClock,
        "no-notify" => Kind::NoNotify,
        "release-on-disconnect" => Kind::ReleaseOnDisconnect,
        "effect-outside" => Kind::EffectOutside,
        "parent-unseen" => Kind::ParentUnseen,
        "stop-unseen" => Kind::StopUnseen,
        "fate-unseen" => Kind::FateUnseen,
        _ => {
            eprintln!("ticket-ledger: there is no sabotage named {name}; nothing is broken");
            return None;
        }
    };
    Some(kind)
});

/// Whether this is broken.
pub fn is(kind: Kind) -> bool {
    *WANTED == Some(kind)
}

/// The fence, as it stands in the statements that settle.
const FENCE: &str = "r.token = $3 and r.status = 'running'";

/// A statement as it is to be sent.
pub fn sql(text: &'static str) -> &'static str {
    match *WANTED {
        Some(Kind::NoFence) => changed(text, &[(FENCE, "$3::bigint is not null")]),
        Some(Kind::NoRowCheck) => changed(
            text,
            &[
                ("is not null then false", "is not null and false then false"),
                ("else pg_try_advisory_xact_lock(key_hash)", "else true"),
                (
                    "recorded.token is not null as is_recorded",
                    "refusal is null as is_recorded",
                ),
            ],
        ),
        Some(Kind::ParentUnseen) => changed(
            text,
            &[("thread.question_id is null then 'not_found'", "false then 'not_found'")],
        ),
        Some(Kind::StopUnseen) => changed(text, &[("when gate.stopped then", "when false then")]),
        // The effect of what is claimed first was committed before: this one settles.
        Some(Kind::EffectOutside) if text.contains(FENCE) => {
            changed(text, &[("outcome where is_recorded", "outcome where false")])
        }
        _ => text,
    }
}

/// The effect of a statement that acts and settles, fence and all, but without the settlement.
pub fn effect_alone(text: &'static str) -> &'static str {
    changed(
        text,
        &[
            (
                "    update requests r
    set status = case when twinned.refusal is null then 'done' else 'released' end,
        result = case when twinned.refusal is null then twinned.result end,
        duplicate_of = case when twinned.refusal is null then twinned.twin end,
        settled_at = twinned.now, lease_until = null, arguments = null, waiters = false
    from twinned
    where r.principal = $1 and r.request_id = $2 and r.token = $3 and r.status = 'running'
    returning r.token, r.status",
                "select token, case when refusal is null then 'done' else 'released' end as status from twinned",
            ),
            (
                "where u.principal = outcome.principal",
                "where false and u.principal = outcome.principal",
            ),
            ("outcome where waiters", "outcome where false"),
        ],
    )
}

/// Replaces every one of these pieces, made once for each statement. A statement that has none of a piece stays as it is
/// there; whoever renames what is looked for here sees the sabotage go unnoticed, and the test of it fail.
fn changed(text: &'static str, pieces: &[(&str, &str)]) -> &'static str {
    static MADE: LazyLock<Mutex<HashMap<String, &'static str>>> = LazyLock::new(Mutex::default);
    let text = pieces
        .iter()
        .fold(text.to_owned(), |text, (sound, broken)| text.replace(sound, broken));
    let mut made = unpoisoned(MADE.lock());
    if let Some(text) = made.get(&text) {
        return text;
    }
    let kept: &'static str = Box::leak(text.clone().into_boxed_str());
    made.insert(text, kept);
    kept
}

/// The token of the attempt that follows another one; `before` is 0 for the first.
pub fn token(drawn: Token, before: Token) -> Token {
    if is(Kind::AttemptForToken) { before + 1 } else { drawn }
}

/// How a replica connects.
pub fn connection(options: PgConnectOptions) -> PgConnectOptions {
    if !is(Kind::WorkersClock) {
        return options;
    }
    static SKEW: LazyLock<Duration> = LazyLock::new(|| {
        // A minute less for every second that a replica was started later: no two clocks agree, and a replica that starts
        // again has another one. A sawtooth of two hours, so that no clock is days off.
        #[allow(
            clippy::disallowed_methods,
            reason = "the sabotage is to use a clock that must not be used"
        )]
        let since = std::time::SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let within = since.as_millis() % 7_200_000;
        Duration::from_millis(60 * u64::try_from(7_200_000 - within).unwrap_or(0))
    });
    options.options([
        ("search_path", "skewed,public,pg_catalog".to_owned()),
        ("ledger.skew", format!("{}ms", SKEW.as_millis())),
    ])
}

/// Follows a migration: puts the second guard out of the way of those kinds that it would hide, and prepares the workers'
/// clocks.
pub async fn prepare(connection: &mut PgConnection) {
    const WITHOUT_GUARD: &str = "
        alter table tickets drop constraint if exists tickets_request;
        alter table comments drop constraint if exists comments_request;
        alter table entries drop constraint if exists entries_request";
    const WITH_SKEW: &str = "
        create schema if not exists skewed;
        create or replace function skewed.clock_timestamp() returns timestamptz language sql volatile as $$
            select pg_catalog.clock_timestamp() + coalesce(nullif(current_setting('ledger.skew', true), ''), '0')::interval
        $$";
    const WITHOUT_SCRUBBING: &str = "
        create or replace function scrub_result(of_principal text, of_request_id text) returns void language sql
        as 'select'";
    let statements = match *WANTED {
        Some(Kind::FateUnseen) => WITHOUT_SCRUBBING,
        Some(Kind::NoFence | Kind::NoRowCheck | Kind::EffectOutside) => WITHOUT_GUARD,
        Some(Kind::WorkersClock) => WITH_SKEW,
        _ => return,
    };
    if let Err(error) = sqlx::raw_sql(statements).execute(connection).await {
        eprintln!("ticket-ledger: the sabotage could not be prepared: {error}");
    }
}
