//! `ticket-ledger admin token`: bearer tokens for scripts.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::Failure;
use crate::operation::scope::{Scope, Scopes};
use crate::operation::tokens::{self, Issued, Listed, Revoked, Wanted, hash, mint, refuse_holder, refuse_name};
use crate::postgres::Database;

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Issues a token and prints it, this once; a known name's former token is void from then on
    Issue {
        /// Its name, for people and, unless --for is given, for its requests: 1 to 64 letters, digits, dots, dashes, underscores
        name: String,
        /// What it allows; a known name keeps its own if this is left out
        #[arg(long, value_enum, value_delimiter = ',')]
        scopes: Option<Vec<Scope>>,
        /// Whom it speaks for: its requests are those of this subject of an OAuth issuer
        #[arg(long = "for", num_args = 2, value_names = ["ISSUER", "SUBJECT"])]
        holder: Option<Vec<String>>,
        /// In how many days it expires [default: never]
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
        expires_in: Option<u32>,
    },
    /// Lists all tokens; what is secret in them is not kept
    List,
    /// Makes a token void on every replica within a second, for good: its name is never used again
    Revoke {
        /// Its name
        name: String,
    },
}

pub async fn run(database: &Database, action: Action, actor: &str, as_json: bool) -> Result<ExitCode, Failure> {
    match action {
        Action::Issue {
            name,
            scopes,
            holder,
            expires_in,
        } => {
            let holder = match holder.as_deref() {
                Some([issuer, subject]) => Some((issuer.as_str(), subject.as_str())),
                _ => None,
            };
            let scopes = scopes.map(Scopes::from_iter);
            issue(database, &name, scopes, holder, expires_in, actor, as_json).await
        }
        Action::List => {
            let listed = tokens::list(database).await?;
            show(&listed, as_json);
            Ok(ExitCode::SUCCESS)
        }
        Action::Revoke { name } => {
            let (status, sentence) = match tokens::revoke(database, &name, actor).await? {
                Revoked::Now => ("revoked", "It is void on every replica within a second, for good."),
                Revoked::Already => ("already so", "It was revoked already; nothing was changed."),
                Revoked::Unknown => {
                    return Err(Failure::new(format!(
                        "there is no token {name}; ticket-ledger admin token list names them."
                    )));
                }
            };
            if as_json {
                println!("{}", json!({ "name": name, "status": status }));
            } else {
                println!("{name}: {sentence}");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn issue(
    database: &Database,
    name: &str,
    scopes: Option<Scopes>,
    holder: Option<(&str, &str)>,
    days: Option<u32>,
    actor: &str,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    let unusable = refuse_name(name).or_else(|| holder.and_then(|(issuer, subject)| refuse_holder(issuer, subject)));
    if let Some(why) = unusable {
        return Err(Failure::usage(why));
    }
    let token = mint().map_err(Failure::new)?;
    let wanted = Wanted {
        name,
        hash: hash(&token),
        scopes,
        holder,
        days,
    };
    let (status, sentence) = match tokens::issue(database, &wanted, actor).await? {
        Issued::New => ("issued", "This is the token; it is shown this once."),
        Issued::Rotated => (
            "rotated",
            "This is the token; it is shown this once. The former one of this name is void within a second.",
        ),
        Issued::Revoked => {
            return Err(Failure::new(format!(
                "{name} was revoked, and a revoked name is never used again: take another one."
            )));
        }
        Issued::AnotherHolder => {
            return Err(Failure::new(format!(
                "{name} speaks for somebody else, and its requests are theirs: take another name."
            )));
        }
        Issued::NoScopes => {
            return Err(Failure::usage(
                "a new token needs --scopes, such as --scopes tickets:read,tickets:write.",
            ));
        }
    };
    if as_json {
        println!("{}", json!({ "name": name, "token": token, "status": status }));
    } else {
        // The token alone to standard output, so that a script can take it.
        eprintln!("{sentence}");
        println!("{token}");
    }
    Ok(ExitCode::SUCCESS)
}

fn show(listed: &[Listed], as_json: bool) {
    if as_json {
        let tokens: Vec<_> = listed
            .iter()
            .map(|token| {
                json!({
                    "name": token.name, "scopes": token.scopes, "principal": &*token.principal(), "state": token.state,
                    "issued_at": token.issued_at, "expires_at": token.expires_at, "revoked_at": token.revoked_at,
                })
            })
            .collect();
        println!("{}", json!({ "tokens": tokens }));
        return;
    }
    if listed.is_empty() {
        println!("No tokens.");
    }
    for token in listed {
        let until = token
            .revoked_at
            .as_deref()
            .or(token.expires_at.as_deref())
            .unwrap_or("-");
        println!(
            "{}  {}  {until}  {}  {}",
            token.name,
            token.state,
            token.scopes.join(","),
            token.principal()
        );
    }
}
