//! The engines of a cluster: transfers in, requests out, completions in, ends out.
//!
//! One engine runs the channels of all nodes, as if it knew of everything at once. Whoever drives a
//! [`Fleet`] does not see that.

use engine::{Engine, EngineConfig, SubmitError, Transfer};
use model::{Completion, MemoryId, Request, RequestId, Time, TransferId};
use std::collections::BTreeMap;

/// The engines of a cluster.
#[derive(Debug)]
pub(crate) struct Fleet {
    engine: Engine,
    tasks: BTreeMap<TransferId, usize>,
}

impl Fleet {
    pub(crate) fn new(config: EngineConfig) -> Self {
        Fleet { engine: Engine::new(config), tasks: BTreeMap::new() }
    }

    /// Starts a transfer of `task`.
    pub(crate) fn submit(
        &mut self,
        now: Time,
        transfer: Transfer,
        task: usize,
    ) -> Result<(), SubmitError> {
        let id = self.engine.submit(now, transfer)?;
        self.tasks.insert(id, task);
        Ok(())
    }

    /// The next request for a channel.
    pub(crate) fn next_request(&mut self) -> Option<Request> {
        self.engine.poll_request()
    }

    /// A channel has done a request.
    pub(crate) fn complete(&mut self, now: Time, request: RequestId) {
        self.engine.handle_completion(now, Completion { request, result: Ok(()) });
    }

    /// The next task whose transfer has ended. All end well: nothing fails here.
    pub(crate) fn next_end(&mut self) -> Option<usize> {
        let id = self.engine.poll_event()?.transfer;
        self.engine.forget(id);
        self.tasks.remove(&id)
    }

    /// Staging of a memory that is given out.
    pub(crate) fn staged_bytes(&self, memory: MemoryId) -> u64 {
        self.engine.staging(memory).map_or(0, |usage| usage.0)
    }
}
