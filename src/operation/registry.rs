//! Every operation, a line each.

use std::sync::Arc;
use std::time::Duration;

use super::entries::{Board, GetReply, GetThread, ListReplies, OldEntries, PostEntry, ReadThread};
use super::limit::IdleSources;
use super::requests::{FindRequest, NewRequestId};
use super::tickets::{AddComment, CreateTicket, GetTicket, ListTickets, SetTicketStatus};
use super::{Class, Erased, Tool, Toolset};
use crate::ledger::{Act, Upkeep};

/// The operations that a deployment offers.
pub struct Registry {
    tools: Vec<Arc<dyn Tool>>,
    upkeep: Vec<Arc<dyn Upkeep>>,
}

impl Registry {
    /// The operations of these families; the ledger's own are always among them.
    pub fn new(toolsets: &[Toolset], work: Duration, board: &Board) -> Self {
        let board = || board.clone();
        let all: Vec<Arc<dyn Tool>> = vec![
            Arc::new(Erased(FindRequest)),
            Arc::new(Erased(NewRequestId)),
            Arc::new(Erased(CreateTicket { work })),
            Arc::new(Erased(SetTicketStatus)),
            Arc::new(Erased(AddComment)),
            Arc::new(Erased(GetTicket)),
            Arc::new(Erased(ListTickets)),
            Arc::new(Erased(PostEntry { board: board() })),
            Arc::new(Erased(GetThread { board: board() })),
            Arc::new(Erased(ListReplies { board: board() })),
            Arc::new(Erased(GetReply { board: board() })),
            Arc::new(Erased(ReadThread { board: board() })),
        ];
        let mut offered = Self::of(all.into_iter().filter(|tool| {
            let toolset = tool.card().toolset;
            toolset == Toolset::Requests || toolsets.contains(&toolset)
        }));
        // Whether entries are offered or not: what was posted is not kept for longer because posting was switched off.
        offered.upkeep.push(Arc::new(OldEntries { board: board() }));
        offered
    }

    /// Exactly these operations.
    pub fn of(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        Self {
            tools: tools.into_iter().collect(),
            upkeep: vec![Arc::new(IdleSources)],
        }
    }

    /// The operation with this name.
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.name() == name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.iter()
    }

    /// What is to be done from time to time.
    pub fn upkeep(&self) -> Vec<Arc<dyn Upkeep>> {
        self.upkeep.clone()
    }

    /// Those that write, as the ledger knows them.
    pub fn acts(&self) -> Vec<Arc<dyn Act>> {
        self.tools
            .iter()
            .filter(|tool| !matches!(tool.card().class, Class::ReadOnly))
            .map(|tool| Arc::clone(tool) as Arc<dyn Act>)
            .collect()
    }
}
