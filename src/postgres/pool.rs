//! The pool: deadpool manages plain `PgConnection`s.
//!
//! A connection is lent unclean and becomes clean when its statement was answered. One that comes back unclean (a future
//! dropped halfway, a timeout, a broken socket) is closed, so nobody is handed a connection that still owes an answer.

use std::str::FromStr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, Object, Pool, PoolError, RecycleError, RecycleResult};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tracing::{Instrument, Span, debug_span};

use super::error::DatabaseError;
use super::reach::Reach;
use crate::telemetry::metrics::instruments;
use crate::telemetry::trace;

/// How a replica connects, and the limits it puts on its sessions.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A `postgres://` URL.
    pub url: String,
    /// The most connections in the pool.
    pub pool_size: usize,
    /// Longest wait for a free connection, and for a new one.
    pub acquire_limit: Duration,
    /// Longest statement, and longest idle time inside a transaction: below half the lease, so that no paused replica
    /// holds a row.
    pub statement_limit: Duration,
    /// Longest wait for a row or table lock. Statements do not wait for each other's requests; this is the backstop.
    pub lock_limit: Duration,
}

impl Settings {
    /// For what is done by hand, one act at a time.
    pub fn by_hand(url: String) -> Self {
        Self {
            url,
            pool_size: 1,
            acquire_limit: Duration::from_secs(5),
            statement_limit: Duration::from_secs(60),
            lock_limit: Duration::from_secs(5),
        }
    }
}

/// One pool of connections to the primary, and what is known about reaching it.
#[derive(Clone)]
pub struct Database {
    pool: Pool<Connector>,
    answer_limit: Duration,
    reach: Arc<Reach>,
}

impl Database {
    /// Makes the pool; connects to nothing yet.
    ///
    /// # Errors
    /// A URL that cannot be read.
    pub fn new(settings: &Settings, reach: Arc<Reach>) -> Result<Self, DatabaseError> {
        let options = connect_options(&settings.url)?.options(session_settings(settings));
        let pool = Pool::builder(Connector { options })
            .max_size(settings.pool_size)
            .wait_timeout(Some(settings.acquire_limit))
            .create_timeout(Some(settings.acquire_limit))
            .recycle_timeout(Some(settings.acquire_limit))
            .runtime(deadpool::Runtime::Tokio1)
            .build()
            .map_err(|error| DatabaseError::Fatal(error.to_string()))?;
        Ok(Self {
            pool,
            answer_limit: settings.statement_limit + Duration::from_secs(1),
            reach,
        })
    }

    /// Lends a connection.
    ///
    /// # Errors
    /// [`DatabaseError::Unreachable`] when none became free or none could be made within the limit.
    pub async fn lend(&self) -> Result<Lent, DatabaseError> {
        match self.take().await {
            Ok(object) => Ok(Lent {
                object,
                database: self.clone(),
            }),
            Err(PoolError::Backend(error)) => {
                self.note_unreachable();
                Err(error)
            }
            Err(PoolError::Timeout(deadpool::managed::TimeoutType::Wait)) => {
                instruments().pool_timeout();
                Err(DatabaseError::Unreachable(
                    "every connection of the pool is in use".to_owned(),
                ))
            }
            Err(error) => {
                self.note_unreachable();
                Err(DatabaseError::Unreachable(error.to_string()))
            }
        }
    }

    /// Awaits a statement's answer for a second longer than the server gives it, so that a server that fell silent is
    /// noticed too. `name` is the statement's in traces: its function's.
    ///
    /// # Errors
    /// The statement's failure, sorted.
    pub async fn within<T>(
        &self,
        name: &'static str,
        statement: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, DatabaseError> {
        let span = if trace::is_traced() {
            debug_span!(
                "sql",
                otel.name = name,
                otel.kind = "client",
                db.system.name = "postgresql",
                db.operation.name = name,
            )
        } else {
            Span::none()
        };
        let statement = tokio::time::timeout(self.answer_limit, statement);
        match statement.instrument(span.clone()).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                say_failure(&span, &error);
                Err(error.into())
            }
            Err(_) => {
                trace::fail(&span, "timeout");
                Err(DatabaseError::no_answer(self.answer_limit))
            }
        }
    }

    /// A connection out of the pool; a span if it is not to be had at once.
    async fn take(&self) -> Result<Object<Connector>, PoolError<DatabaseError>> {
        let mut taking = std::pin::pin!(self.pool.get());
        let at_once = std::future::poll_fn(|context| Poll::Ready(taking.as_mut().poll(context)));
        if let Poll::Ready(taken) = at_once.await {
            return taken;
        }
        if !trace::is_traced() {
            return taking.await;
        }
        let span = debug_span!("connection", otel.name = "wait for a connection");
        let taken = taking.instrument(span.clone()).await;
        match &taken {
            Ok(_) => {}
            Err(PoolError::Timeout(_)) => trace::fail(&span, "timeout"),
            Err(_) => trace::fail(&span, "unreachable"),
        }
        taken
    }

    /// How much of the pool is used at this moment.
    pub fn use_of_pool(&self) -> PoolUse {
        let status = self.pool.status();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        PoolUse {
            size: count(status.max_size),
            in_use: count(status.size.saturating_sub(status.available)),
            waiting: count(status.waiting),
        }
    }

    /// What is known about reaching Postgres, shared by all that talk to it.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    fn note_unreachable(&self) {
        self.reach.failed();
        // What broke one connection has most likely broken the idle ones; each would cost a caller a failed statement.
        self.pool.retain(|_, _| false);
    }
}

/// Says on a statement's span how it failed: by the server's own code where it gave one.
fn say_failure(span: &Span, error: &sqlx::Error) {
    let code = error.as_database_error().and_then(|refusal| refusal.code());
    match code {
        Some(code) => {
            trace::say_on(span, "db.response.status_code", code.to_string());
            trace::fail(span, code.into_owned());
        }
        None => trace::fail(span, "unreachable"),
    }
}

/// How much of the pool is used, in connections.
#[derive(Debug, Clone, Copy)]
pub struct PoolUse {
    /// The most that there may be.
    pub size: u64,
    /// Lent now.
    pub in_use: u64,
    /// Wanted and not to be had yet.
    pub waiting: u64,
}

/// A lent connection: for one statement, whose answer goes through [`Lent::answered`].
///
/// ```text
/// let mut lent = database.lend().await?;
/// let answer = database.within("claim", query.fetch_all(lent.connection())).await;
/// let rows = lent.answered(answer)?;
/// ```
pub struct Lent {
    object: Object<Connector>,
    database: Database,
}

impl Lent {
    /// The connection, from now on unclean until [`Lent::answered`] says otherwise.
    pub fn connection(&mut self) -> &mut PgConnection {
        self.object.clean = false;
        &mut self.object.connection
    }

    /// Takes note of a statement's answer, and hands it on.
    ///
    /// # Errors
    /// The statement's own. After [`DatabaseError::Unreachable`] the connection stays unclean and is closed.
    pub fn answered<T>(&mut self, answer: Result<T, DatabaseError>) -> Result<T, DatabaseError> {
        if matches!(&answer, Err(DatabaseError::Unreachable(_))) {
            self.database.note_unreachable();
        } else {
            self.object.clean = true;
            self.database.reach.answered();
        }
        answer
    }
}

/// A connection, and whether every statement sent on it was answered.
pub struct Slot {
    connection: PgConnection,
    clean: bool,
}

/// Makes connections for the pool.
struct Connector {
    options: PgConnectOptions,
}

impl Manager for Connector {
    type Type = Slot;
    type Error = DatabaseError;

    async fn create(&self) -> Result<Slot, DatabaseError> {
        Ok(Slot {
            connection: PgConnection::connect_with(&self.options).await?,
            clean: true,
        })
    }

    async fn recycle(&self, slot: &mut Slot, _: &Metrics) -> RecycleResult<DatabaseError> {
        if slot.clean {
            Ok(())
        } else {
            Err(RecycleError::message("a statement on it was not answered"))
        }
    }
}

/// Reads a `postgres://` URL.
///
/// # Errors
/// [`DatabaseError::Url`] when it is none.
pub fn connect_options(url: &str) -> Result<PgConnectOptions, DatabaseError> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(DatabaseError::Url("it does not begin with postgres://".to_owned()));
    }
    let options = PgConnectOptions::from_str(url).map_err(|error| DatabaseError::Url(error.to_string()))?;
    // Statements are not logged: their arguments are the callers'.
    Ok(crate::sabotage::connection(options.disable_statement_logging()))
}

/// What every session of the pool is told at its start.
fn session_settings(settings: &Settings) -> Vec<(&'static str, String)> {
    let milliseconds = |limit: Duration| limit.as_millis().to_string();
    vec![
        ("statement_timeout", milliseconds(settings.statement_limit)),
        (
            "idle_in_transaction_session_timeout",
            milliseconds(settings.statement_limit),
        ),
        ("lock_timeout", milliseconds(settings.lock_limit)),
        // Left to choose, the server takes small batches for cheaper if they are planned anew each time, and does so ever
        // after: half as much processor time again for a single call. No statement here is better planned for its values.
        ("plan_cache_mode", "force_generic_plan".to_owned()),
        // A replica that vanished without a word must not keep its session, and its locks, for two hours.
        ("tcp_keepalives_idle", "5".to_owned()),
        ("tcp_keepalives_interval", "2".to_owned()),
        ("tcp_keepalives_count", "3".to_owned()),
        ("tcp_user_timeout", milliseconds(settings.statement_limit)),
    ]
}

/// The server's connections, as far as this program may use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// How many there are, without those that are kept for superusers; less if this role or database has a limit.
    pub allowed: i64,
    /// How many of them nobody uses now.
    pub free: i64,
}

/// Counts the server's connections.
///
/// # Errors
/// The server cannot be reached.
pub async fn connections(database: &Database) -> Result<Connections, DatabaseError> {
    // A role that owns nothing is not told what kind of session another role's is, but in which database it is.
    const SQL: &str = "
        with server as (
            select current_setting('max_connections')::bigint
                   - current_setting('superuser_reserved_connections')::bigint
                   - coalesce(current_setting('reserved_connections', true), '0')::bigint as allowed,
                   (select count(*) from pg_stat_activity
                    where datid is not null and coalesce(backend_type, 'client backend') = 'client backend') as used)
        select least(allowed,
                     (select nullif(rolconnlimit, -1) from pg_roles where rolname = current_user),
                     (select nullif(datconnlimit, -1) from pg_database where datname = current_database())),
               allowed - used
        from server";
    let mut lent = database.lend().await?;
    let statement = sqlx::query_as(SQL);
    let answer = database
        .within("connections", statement.fetch_one(lent.connection()))
        .await;
    let (allowed, free) = lent.answered(answer)?;
    Ok(Connections { allowed, free })
}
