//! Commits that no copy carries: a transfer of nothing whose end is the commit.

use crate::event::{Event, State};
use crate::instance::Instance;
use crate::runtime::{Shared, Submission};
use crate::{ArgumentError, Array, Error};
use engine::{Commit, Program};
use model::{
    Algorithm, Bound, ChannelId, ChannelKind, CostModel, Hop, Layout, Limit, MemoryId, Place, Plan,
    Priority, SearchReport, Selection, ShapeClass,
};
use std::sync::Arc;

impl Shared {
    /// Commits the file of `instance`, and waits for that.
    pub(crate) fn commit(self: &Arc<Self>, instance: &Instance, sync: bool) -> Result<(), Error> {
        self.check_open()?;
        let memory = instance.memory();
        let channel = self.writer_of(memory).ok_or(ArgumentError::NothingToCommit)?;
        let plan = Arc::new(plan_of_nothing(memory, channel));
        let program = Arc::new(program_of_nothing(&plan)?);
        let side = || {
            let place = Place { region: instance.holding.id, offset: 0 };
            (Arc::clone(&instance.holding), place)
        };
        let submission = Submission {
            plan,
            program,
            src: side(),
            dst: side(),
            priority: Priority(0),
            deadline: None,
            after: Vec::new(),
            commit: Some(Commit { sync }),
        };
        let state = Arc::new(State::new(self, 1, 0));
        self.submit(&state, submission)?;
        Event::new(state).wait(None)
    }

    /// The channel that writes to `memory`.
    fn writer_of(&self, memory: MemoryId) -> Option<ChannelId> {
        let topology = self.topology();
        let class = topology.classes.first()?;
        let writes =
            |c: &model::Channel| c.kind == ChannelKind::DiskWrite && c.to.contains(&memory.index);
        let index = u16::try_from(class.channels.iter().position(writes)?).ok()?;
        Some(ChannelId { node: memory.node, index })
    }
}

fn plan_of_nothing(memory: MemoryId, channel: ChannelId) -> Plan {
    let hop = Hop {
        channel,
        kind: ChannelKind::DiskWrite,
        prefix_bytes: 1,
        shuffle_bytes: 1,
        class: ShapeClass::Run,
        throughput: 1.0,
        request_bytes: 1,
    };
    Plan {
        algorithm: Algorithm::Simple,
        model: CostModel::Default,
        throughput: 1.0,
        seconds: Some(0.0),
        memories: vec![memory; 2],
        layouts: vec![Layout::row_major(1); 2],
        phase: vec![0],
        hops: vec![hop],
        buffers: Vec::new(),
        bound_by: Bound { hop: 0, why: Limit::Latency },
        alternatives: Vec::new(),
        search: SearchReport::default(),
    }
}

fn program_of_nothing(plan: &Plan) -> Result<Program, Error> {
    let array = Array::of(&[("none", 0)], "|u1")?;
    let part = array.placement()?.select(&Selection::all(&array.space), &[0])?;
    Ok(Program::compile(plan, part.clone(), part)?)
}
