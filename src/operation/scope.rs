//! What a caller may do: scopes, as OAuth 2.1 and this service's own tokens name them.

use std::fmt;

use clap::ValueEnum;

/// One thing that a caller may be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    /// Reads tickets.
    #[value(name = "tickets:read")]
    TicketsRead,
    /// Writes tickets.
    #[value(name = "tickets:write")]
    TicketsWrite,
    /// Reads entries.
    #[value(name = "entries:read")]
    EntriesRead,
    /// Writes entries.
    #[value(name = "entries:write")]
    EntriesWrite,
    /// What is an operator's. It implies none of the others, and none of them implies it.
    #[value(name = "admin")]
    Admin,
}

impl Scope {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 5] = [
        Self::TicketsRead,
        Self::TicketsWrite,
        Self::EntriesRead,
        Self::EntriesWrite,
        Self::Admin,
    ];

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TicketsRead => "tickets:read",
            Self::TicketsWrite => "tickets:write",
            Self::EntriesRead => "entries:read",
            Self::EntriesWrite => "entries:write",
            Self::Admin => "admin",
        }
    }

    /// The scope with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of scopes; written as their names with a space between them.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u8);

impl Scopes {
    /// Every scope.
    pub fn all() -> Self {
        Self::from_iter(Scope::ALL)
    }

    /// Those with these names; names that are none are left out, because a grant may hold other services' scopes too.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        names.into_iter().filter_map(Scope::from_name).collect()
    }

    /// With one more.
    pub fn with(self, scope: Scope) -> Self {
        Self(self.0 | scope.bit())
    }

    /// Without one.
    pub fn without(self, scope: Scope) -> Self {
        Self(self.0 & !scope.bit())
    }

    /// Whether `needed` is among them; what needs none is allowed to everybody who is known.
    pub fn allow(self, needed: Option<Scope>) -> bool {
        needed.is_none_or(|scope| self.0 & scope.bit() != 0)
    }

    /// In the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.allow(Some(*scope)))
    }

    /// Their names, in that order.
    pub fn names(self) -> Vec<&'static str> {
        self.iter().map(Scope::as_str).collect()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        scopes.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.names().join(" "))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[{self}]")
    }
}

#[cfg(test)]
mod tests {
    use super::{Scope, Scopes};

    #[test]
    fn every_name_names_its_scope_and_no_scope_implies_another() {
        for scope in Scope::ALL {
            assert_eq!(Scope::from_name(scope.as_str()), Some(scope));
            let alone = Scopes::default().with(scope);
            assert_eq!(alone.iter().collect::<Vec<_>>(), [scope]);
            assert!(Scopes::all().without(scope).iter().all(|other| other != scope));
        }
        assert!(Scopes::default().allow(None));
    }

    #[test]
    fn names_that_are_no_scopes_are_left_out() {
        let scopes = Scopes::named(["openid", "tickets:write", "TICKETS:READ", "tickets", "", "tickets:read"]);
        assert_eq!(scopes.to_string(), "tickets:read tickets:write");
    }
}
