//! Sets a scenario up: instances, arenas, the engine's configuration; and knows at the end what
//! every instance must hold.

use crate::content::{Entries, first_difference, part, placement};
use crate::memory::Memories;
use crate::rng::Rng;
use crate::scenario::{After, End, Rule, Scenario, TransferSpec};
use crate::violation::Violation;
use engine::{
    ByPriority, ChannelConfig, Commit, Dependency, EngineConfig, FairShare, Fifo, Policy,
    PoolConfig, Program, Transfer,
};
use model::{ChannelError, ChannelErrorKind, FenceId, MemoryId, Outcome, Place, TransferId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a region before and after its instance, which no copy may touch.
const MARGIN_BYTES: u64 = 32;

/// What the user of a memory fills it with once it is the user's again.
const USED_AGAIN: u8 = 0x77;

/// What a transfer needs and leaves.
#[derive(Debug)]
pub(crate) struct Role {
    program: Arc<Program>,
    src: Place,
    dst: Place,
    id: Option<TransferId>,
    entries: Option<Entries>,
    /// The destination as it was, then as it must stay.
    dst_bytes: Vec<u8>,
    /// Payload in staging when it was given back.
    left_bytes: u64,
    ended: bool,
}

/// The transfers of a run.
#[derive(Debug)]
pub(crate) struct Cast {
    roles: Vec<Role>,
    ids: BTreeMap<TransferId, usize>,
}

impl Cast {
    /// Makes the instances of every transfer and compiles its program.
    pub(crate) fn gather(
        scenario: &Scenario,
        memories: &mut Memories,
        rng: &mut Rng,
    ) -> Result<Self, Violation> {
        let mut stage = Stage { memories, rng, payload: scenario.payload };
        let mut roles: Vec<Role> = Vec::new();
        for (at, spec) in scenario.transfers.iter().enumerate() {
            let alike = scenario.transfers[..at].iter().position(|other| is_alike(spec, other));
            let program = alike.map(|other| Arc::clone(&roles[other].program));
            roles.push(stage.role(at, spec, program)?);
        }
        Ok(Cast { roles, ids: BTreeMap::new() })
    }

    /// What to submit for transfer `at`.
    pub(crate) fn transfer(&self, scenario: &Scenario, at: usize) -> Transfer {
        let (role, spec) = (&self.roles[at], &scenario.transfers[at]);
        let after = spec.after.iter().map(|after| match *after {
            After::Transfer(t) => Dependency::Transfer(self.roles[t].id.expect("listed earlier")),
            After::Fence(f) => Dependency::Fence(FenceId(f as u64)),
        });
        Transfer {
            priority: spec.priority,
            deadline: spec.deadline,
            after: after.collect(),
            commit: spec.commit.then_some(Commit { sync: false }),
            ..Transfer::new(Arc::clone(&role.program), role.src, role.dst)
        }
    }

    pub(crate) fn name(&mut self, at: usize, id: TransferId) {
        self.roles[at].id = Some(id);
        self.ids.insert(id, at);
    }

    pub(crate) fn id(&self, at: usize) -> Option<TransferId> {
        self.roles[at].id
    }

    pub(crate) fn find(&self, id: TransferId) -> Option<usize> {
        self.ids.get(&id).copied()
    }

    /// The staging of `transfer` is no longer its own; `left_bytes` of its payload lay there.
    pub(crate) fn freed(&mut self, transfer: usize, left_bytes: u64) {
        self.roles[transfer].left_bytes += left_bytes;
    }

    /// Checks what an ended transfer left, and uses its memory for something else.
    pub(crate) fn retire(
        &mut self,
        transfer: usize,
        outcome: &Outcome,
        memories: &mut Memories,
    ) -> Result<(), Violation> {
        self.compare(transfer, outcome, memories)?;
        let role = &mut self.roles[transfer];
        role.ended = true;
        if role.entries.is_some() {
            memories.fill(role.src.region, USED_AGAIN);
        }
        Ok(())
    }

    /// Checks what a transfer that has ended as `outcome` left.
    pub(crate) fn compare(
        &mut self,
        transfer: usize,
        outcome: &Outcome,
        memories: &Memories,
    ) -> Result<(), Violation> {
        let role = &mut self.roles[transfer];
        if *outcome == Outcome::Done && role.left_bytes > 0 {
            return Err(Violation::LeftInStaging { bytes: role.left_bytes });
        }
        let Some(entries) = &role.entries else { return Ok(()) };
        let actual = memories.bytes(role.dst.region);
        if *outcome == Outcome::Done {
            entries.copy(memories.bytes(role.src.region), &mut role.dst_bytes);
        } else {
            entries
                .destinations()
                .for_each(|r| role.dst_bytes[r.clone()].copy_from_slice(&actual[r]));
        }
        if let Some(byte) = first_difference(&role.dst_bytes, actual) {
            let (is, should) = (actual[byte], role.dst_bytes[byte]);
            return Err(Violation::WrongBytes { transfer, byte, is, should });
        }
        Ok(())
    }

    /// Checks that nothing touched the memory of ended transfers.
    pub(crate) fn check_untouched(&self, memories: &Memories) -> Result<(), Violation> {
        for (transfer, role) in self.roles.iter().enumerate().filter(|(_, r)| r.ended) {
            let src = memories.bytes(role.src.region).iter().position(|b| *b != USED_AGAIN);
            let dst = first_difference(&role.dst_bytes, memories.bytes(role.dst.region));
            if let Some(byte) = src.or(dst) {
                return Err(Violation::TouchedAfterEnd { transfer, byte });
            }
        }
        Ok(())
    }
}

/// Whether one program serves both.
fn is_alike(a: &TransferSpec, b: &TransferSpec) -> bool {
    (&a.plan, &a.fields, &a.src, &a.dst) == (&b.plan, &b.fields, &b.src, &b.dst)
}

struct Stage<'a> {
    memories: &'a mut Memories,
    rng: &'a mut Rng,
    payload: bool,
}

impl Stage<'_> {
    /// Makes what transfer `at` needs; `program` is that of an earlier one like it.
    fn role(
        &mut self,
        at: usize,
        spec: &TransferSpec,
        program: Option<Arc<Program>>,
    ) -> Result<Role, Violation> {
        let refused = |why: String| Violation::Refused { transfer: at, why };
        let memories = &spec.plan.memories;
        let look = |end: &End| {
            let place = placement(end).map_err(|e| refused(e.to_string()))?;
            Ok((place.span(), part(end).map_err(|e| refused(e.to_string()))?))
        };
        let ((src_span, src_part), (dst_span, dst_part)) = (look(&spec.src)?, look(&spec.dst)?);
        let compile = || Program::compile(&spec.plan, src_part, dst_part).map(Arc::new);
        let program = program.map_or_else(compile, Ok);
        let src = self.instance(memories[0], &src_span);
        let dst = self.instance(memories[memories.len() - 1], &dst_span);
        let entries = self.payload.then(|| Entries::of(spec, (src.offset, dst.offset)));
        Ok(Role {
            program: program.map_err(|e| refused(e.to_string()))?,
            src,
            dst,
            id: None,
            entries: entries.transpose().map_err(|e| refused(e.to_string()))?,
            dst_bytes: self.memories.bytes(dst.region).to_vec(),
            left_bytes: 0,
            ended: false,
        })
    }

    /// An instance that takes the bytes `span` around its base.
    fn instance(&mut self, memory: MemoryId, span: &Range<i64>) -> Place {
        let len_bytes = span.end.abs_diff(span.start) + 2 * MARGIN_BYTES;
        let region = if self.payload {
            let bytes = (0..len_bytes).map(|_| self.rng.draw().to_le_bytes()[0]).collect();
            self.memories.add_instance(memory, bytes)
        } else {
            self.memories.add_length(memory, len_bytes)
        };
        Place { region, offset: MARGIN_BYTES + span.start.unsigned_abs() }
    }
}

/// The engine's configuration; its arenas are added to `memories`.
pub(crate) fn config(scenario: &Scenario, memories: &mut Memories) -> EngineConfig {
    let channel = |c: &crate::ChannelSpec| ChannelConfig {
        id: c.id,
        max_in_flight: c.max_in_flight,
        policy: policy(c.rule),
    };
    let pool = |p: &crate::PoolSpec| PoolConfig {
        memory: p.memory,
        region: memories.add_arena(p.memory, p.capacity_bytes),
        capacity_bytes: p.capacity_bytes,
        reserve_bytes: p.reserve_bytes,
    };
    let channels = scenario.channels.iter().map(channel).collect();
    let pools = scenario.pools.iter().map(pool).collect();
    EngineConfig { ageing: scenario.ageing, ..EngineConfig::new(channels, pools) }
}

fn policy(rule: Rule) -> Arc<dyn Policy> {
    match rule {
        Rule::Priority => Arc::new(ByPriority),
        Rule::Fifo => Arc::new(Fifo),
        Rule::FairShare => Arc::new(FairShare),
    }
}

/// How a fence ends.
pub(crate) fn fence_result(ok: bool) -> Result<(), ChannelError> {
    let error = || ChannelError::new(ChannelErrorKind::Io, "the fence failed");
    if ok { Ok(()) } else { Err(error()) }
}
