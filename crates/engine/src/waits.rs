//! Who waits for whom: what a person asks when nothing goes on.

use crate::engine::Engine;
use crate::report::Doing;
use crate::transfer::{Dependency, Lane, Phase, Record, Role};
use model::{ChannelId, MemoryId, NodeId, Priority, TransferId};

/// Something that a transfer waits for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// A transfer or fence in its `after`.
    Other(Dependency),
    /// Room for its buffers in a memory's staging.
    Staging {
        /// The memory.
        memory: MemoryId,
        /// Who has some of it.
        held_by: Vec<TransferId>,
        /// Who is served first, if that is another.
        behind: Option<TransferId>,
    },
    /// The channel of a hop, which is full or serves others.
    Channel {
        /// The hop.
        hop: usize,
        /// Its channel.
        channel: ChannelId,
    },
    /// Requests of a hop that are out.
    Requests {
        /// The hop.
        hop: usize,
        /// Where they are.
        channel: ChannelId,
        /// How many.
        count: u32,
    },
    /// What the hop before has not written, or its node not told.
    Input {
        /// The hop that waits; behind the last, the destination.
        hop: usize,
        /// The node that runs the hop before.
        from: NodeId,
    },
    /// Room in the ring of a hop: credit, where another node reads it.
    Space {
        /// The hop.
        hop: usize,
        /// The node that runs the hop behind.
        of: NodeId,
    },
    /// To be told by another node where a hop may write.
    Leave {
        /// The hop.
        hop: usize,
        /// That node.
        of: NodeId,
    },
    /// The asker waits for a party: to reserve, or to end.
    Party {
        /// The party.
        node: NodeId,
        /// Whether it has reserved.
        has_reserved: bool,
    },
    /// A writer to say that it is quiet.
    Quiet {
        /// The writer.
        node: NodeId,
    },
    /// The driver to say that a writer that was given up is cut off.
    CutOff {
        /// The writer.
        node: NodeId,
    },
}

/// A transfer, or a share of one, that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Underway {
    /// Its id.
    pub id: TransferId,
    /// The larger, the more urgent.
    pub priority: Priority,
    /// The payload written to the destination, as [`Engine::progress`], and in all.
    pub progress: (u64, u64),
    /// The memories on its path, source first.
    pub memories: Vec<MemoryId>,
    /// What it waits for now, as [`Engine::waits`].
    pub waits: Vec<Wait>,
}

impl Engine {
    /// All transfers, and shares of those of others, that have not ended, by id. For people and
    /// tests: it looks through everything.
    #[must_use]
    pub fn underway(&self) -> Vec<Underway> {
        let runs = self.table.iter().filter(|(_, record)| !record.is_ended());
        let underway = |(id, record): (TransferId, &Record)| {
            let program = &record.transfer.program;
            let ends = program.hops().iter().map(|hop| hop.ends);
            let memories = ends.clone().take(1).map(|[from, _]| from);
            Underway {
                id,
                priority: record.transfer.priority,
                progress: (record.done_bytes, program.payload_bytes()),
                memories: memories.chain(ends.map(|[_, to]| to)).collect(),
                waits: self.waits(id),
            }
        };
        runs.map(underway).collect()
    }

    /// All that a transfer, or a share of one, waits for now; nothing where it has ended or is not
    /// known. For people and tests: it looks through everything.
    #[must_use]
    pub fn waits(&self, id: TransferId) -> Vec<Wait> {
        let Some(record) = self.table.get(id) else { return Vec::new() };
        match (&record.phase, &record.role) {
            (Phase::Ended(_), _) => Vec::new(),
            (Phase::Waiting, _) => self.waits_for_others(id, record),
            (Phase::Queued, _) => self.waits_for_staging(id, record),
            (_, Role::Asker(serial)) => self.waits_of_asker(*serial),
            (Phase::Draining(_), Role::Share(share)) if record.in_flight == 0 => {
                share.waits_to_leave().into_iter().collect()
            }
            _ => waits_of_hops(record),
        }
    }

    fn waits_for_others(&self, id: TransferId, record: &Record) -> Vec<Wait> {
        let is_open = |after: &&Dependency| match **after {
            Dependency::Transfer(_) => self.outcome_of(**after).is_none(),
            Dependency::Fence(fence) => self.fences.get(&fence).is_some_and(|w| w.contains(&id)),
        };
        let open = record.transfer.after.iter().filter(is_open);
        open.map(|after| Wait::Other(*after)).collect()
    }

    fn waits_for_staging(&self, id: TransferId, record: &Record) -> Vec<Wait> {
        let mut needs = record.transfer.needs(|memory| self.staging.pool_of(memory));
        needs.sort_by_key(|need| need.pool);
        needs.dedup_by_key(|need| need.pool);
        let wait = |pool: usize| Wait::Staging {
            memory: self.staging.memory(pool),
            held_by: self.staging.holders(pool),
            behind: self.staging.first_waiter(pool).filter(|first| *first != id),
        };
        needs.into_iter().map(|need| wait(need.pool)).collect()
    }
}

fn waits_of_hops(record: &Record) -> Vec<Wait> {
    let hops = record.transfer.program.hops();
    let lanes = record.run.lanes.iter().enumerate();
    let waits: Vec<Wait> = lanes.filter_map(|(hop, lane)| wait_of_hop(record, hop, lane)).collect();
    if waits.is_empty() && record.phase == Phase::Running {
        // Nothing of the path but its end is here.
        return vec![Wait::Input { hop: hops.len(), from: hops[hops.len() - 1].channel.node }];
    }
    waits
}

fn wait_of_hop(record: &Record, hop: usize, lane: &Lane) -> Option<Wait> {
    let hops = record.transfer.program.hops();
    let channel = hops[hop].channel;
    if lane.in_flight > 0 {
        return Some(Wait::Requests { hop, channel, count: lane.in_flight });
    }
    if lane.queued.is_some() {
        return Some(Wait::Channel { hop, channel });
    }
    match (lane.meter.doing(), &record.role) {
        (Doing::Space, Role::Share(share)) if share.crosses(hop) && !share.is_open => {
            Some(Wait::Leave { hop, of: hops[hop].ends[1].node })
        }
        (Doing::Space, _) => Some(Wait::Space { hop, of: hops.get(hop + 1)?.channel.node }),
        (Doing::Input, _) => {
            Some(Wait::Input { hop, from: hops[hop.checked_sub(1)?].channel.node })
        }
        _ => None,
    }
}
