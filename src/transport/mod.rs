//! Transports turn bytes into a call and an outcome into bytes, and decide nothing.

mod auth;
mod body;
mod carried;
mod connection;
mod console;
mod cors;
mod front;
mod health;
mod http;
mod listen;
mod mcp;
mod openapi;
mod peek;
mod server;

pub use auth::Door;
pub use server::{Admin, Server, Transports};
