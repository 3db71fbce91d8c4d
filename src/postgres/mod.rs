//! Postgres as the rest of the house sees it: a pool, one listening connection, sorted errors, migrations.

mod error;
mod listen;
mod migrations;
mod pool;
mod reach;

pub use error::DatabaseError;
pub use listen::{CHANNEL, Heard, Hearing, listen};
pub use migrations::{SchemaState, make_database, migrate, schema_state};
pub use pool::{Connections, Database, Lent, PoolUse, Settings, connect_options, connections};
pub use reach::Reach;
