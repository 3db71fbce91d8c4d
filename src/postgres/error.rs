//! What went wrong with a statement, sorted by what the caller may do about it.

use std::time::Duration;

use thiserror::Error;

/// A statement's failure.
#[derive(Debug, Clone, Error)]
pub enum DatabaseError {
    /// The server could not be reached, or the connection broke. Whether a statement that was sent took effect is not
    /// known.
    #[error("Postgres cannot be reached: {0}")]
    Unreachable(String),
    /// The statement changed nothing and may succeed if it is sent again (deadlock, lock or statement timeout).
    #[error("Postgres asks to try again: {0}")]
    Retryable(String),
    /// A constraint of this name refused the statement; it changed nothing.
    #[error("constraint {constraint} refused the statement")]
    Constraint {
        /// The constraint's name in the schema.
        constraint: String,
    },
    /// The URL of the database cannot be used.
    #[error("DATABASE_URL cannot be used ({0}): give a URL such as postgres://user:password@host:5432/database")]
    Url(String),
    /// The database keeps its text in an encoding of this name.
    #[error(
        "the database's encoding is {0} and must be UTF8: make it anew, by create database … encoding 'UTF8' template template0"
    )]
    Encoding(String),
    /// Anything else: a fault of this program or of the schema. The statement changed nothing.
    #[error("Postgres refused the statement: {0}")]
    Fatal(String),
}

impl DatabaseError {
    /// A statement that had no answer within `limit`. Its connection must not be used again.
    pub fn no_answer(limit: Duration) -> Self {
        Self::Unreachable(format!("no answer within {} ms", limit.as_millis()))
    }

    /// Whether sending the same statement again can help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Retryable(_))
    }
}

impl From<sqlx::Error> for DatabaseError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(refusal) => {
                let state = refusal.code().unwrap_or_default();
                by_state(&state, refusal.constraint(), refusal.message())
            }
            sqlx::Error::Io(failure) => Self::Unreachable(certificate(failure).unwrap_or_else(|| error.to_string())),
            sqlx::Error::Tls(_) => Self::Unreachable(format!(
                "no encrypted connection could be made, which sslmode in DATABASE_URL asks for ({error})"
            )),
            sqlx::Error::PoolTimedOut
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Unreachable(error.to_string()),
            _ => Self::Fatal(error.to_string()),
        }
    }
}

/// What is wrong with the server's certificate, and what to do, if that is why the connection failed. Until it is put right the
/// server counts as out of reach.
fn certificate(failure: &std::io::Error) -> Option<String> {
    let refused = failure.get_ref()?.downcast_ref::<rustls::Error>()?;
    let rustls::Error::InvalidCertificate(why) = refused else {
        return None;
    };
    use rustls::CertificateError as Why;
    Some(match why {
        // The second, where somebody else's authority has the same name.
        Why::UnknownIssuer | Why::BadSignature => {
            "its certificate is signed by nobody who is trusted here; name the authority that signed it with \
                               sslrootcert in DATABASE_URL"
                .to_owned()
        }
        Why::NotValidForName | Why::NotValidForNameContext { .. } => {
            format!("its certificate is for another host ({why}); use a name in DATABASE_URL that it is for")
        }
        _ => format!("its certificate cannot be trusted ({why})"),
    })
}

/// SQLSTATE to what can be done, after appendix A of the PostgreSQL manual.
fn by_state(state: &str, constraint: Option<&str>, message: &str) -> DatabaseError {
    match state {
        // Serialization failure, deadlock, lock not available, statement timeout or cancellation.
        "40001" | "40P01" | "55P03" | "57014" => DatabaseError::Retryable(format!("{state} {message}")),
        // Integrity constraints; a constraint without a name (not null) is a fault of this program.
        "23505" | "23503" | "23514" => match constraint {
            Some(name) => DatabaseError::Constraint {
                constraint: name.to_owned(),
            },
            None => DatabaseError::Fatal(format!("{state} {message}")),
        },
        // Read-only: the server we are connected to is a standby, or became one. The primary is elsewhere.
        "25006" => DatabaseError::Unreachable(format!("{state} {message}")),
        // Idle-in-transaction timeout, missing catalogue while a database is being made or replaced.
        "25P03" | "3D000" => DatabaseError::Unreachable(format!("{state} {message}")),
        // Connection exceptions, insufficient resources (disk full, memory, connections), operator intervention
        // (shutdown, crash, starting up), system errors, wrong password or role (a rotation under way).
        _ if ["08", "53", "57", "58", "28"]
            .iter()
            .any(|class| state.starts_with(class)) =>
        {
            DatabaseError::Unreachable(format!("{state} {message}"))
        }
        _ => DatabaseError::Fatal(format!("{state} {message}")),
    }
}
