//! What others have queued on streams of devices, as events that copies wait for.
//!
//! **Hazard.** A driver calls on a thread of its own, on which nothing of a device may be given back, and
//! others wait for its return. **Guarantee.** All that is done there is to leave a fence's number and to ring
//! the machine's bell. Each fence's event ends once: as the machine's driver hears of it, when it is
//! cancelled, or when the machine is closed. **Structure.** [`Fences`] has the events of those that are not
//! reached, by number; a copy waits for one as for an event of another machine.

use super::Shared;
use crate::Error;
use crate::event::{Event, State};
use channel::accelerator::Fence;
use channel::{Bell, DoneQueue};
use model::{ChannelError, FenceId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The fences of a machine.
pub(super) struct Fences {
    next: AtomicU64,
    /// Those that are not reached; `None` once the machine is closed.
    pending: Mutex<Option<HashMap<FenceId, Arc<State>>>>,
    /// Those that were, and of which nobody was told.
    reached: Arc<DoneQueue<(FenceId, Result<(), ChannelError>)>>,
}

impl Fences {
    /// None yet; `bell` rings when one is reached.
    pub(super) fn new(bell: &Arc<Bell>) -> Self {
        let (next, pending) = (AtomicU64::new(0), Mutex::new(Some(HashMap::new())));
        Fences { next, pending, reached: Arc::new(DoneQueue::new(Arc::clone(bell))) }
    }

    /// A number that no other fence has.
    pub(super) fn number(&self) -> FenceId {
        FenceId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn pending(&self) -> MutexGuard<'_, Option<HashMap<FenceId, Arc<State>>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, fence: FenceId, state: &Arc<State>) -> Result<(), Error> {
        let mut pending = self.pending();
        pending.as_mut().ok_or(Error::Closed)?.insert(fence, Arc::clone(state));
        Ok(())
    }

    fn remove(&self, fence: FenceId) -> Option<Arc<State>> {
        self.pending().as_mut()?.remove(&fence)
    }
}

impl Shared {
    /// The event that `fence` is reached, or never will be.
    pub(crate) fn watch(self: &Arc<Self>, fence: Box<dyn Fence>) -> Result<Event, Error> {
        let id = self.fences().number();
        let event = Event::new(Arc::new(State::of_fence(self, id)));
        self.fences().add(id, &event.state)?;
        let reached = Arc::clone(&self.fences().reached);
        let watched = fence.when_reached(Box::new(move |outcome| reached.push((id, outcome))));
        if let Err(error) = watched {
            self.fences().remove(id);
            return Err(error.into());
        }
        Ok(event)
    }

    /// Tells of the fences that were reached.
    pub(super) fn tell_fences(&self) {
        let mut reached = Vec::new();
        self.fences().reached.take(&mut reached);
        if reached.iter().any(|(_, outcome)| outcome.is_err()) {
            // A device may be lost, before anyone hears of it and copies again.
            self.close_lost();
        }
        for (id, outcome) in reached {
            if let Some(state) = self.fences().remove(id) {
                state.reach(outcome.map_err(Error::from)).call();
            }
        }
    }

    /// Ends a fence's event, unless it has ended or is about to.
    pub(crate) fn cancel_fence(&self, fence: FenceId) {
        if let Some(state) = self.fences().remove(fence) {
            state.reach(Err(Error::Cancelled)).call();
        }
    }

    /// Ends the events of fences that are not reached, and takes no more.
    pub(crate) fn end_fences(&self) {
        let pending = self.fences().pending().take();
        let pending = pending.into_iter().flatten();
        pending.for_each(|(_, state)| state.reach(Err(Error::Cancelled)).call());
    }
}
