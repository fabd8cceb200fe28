//! Checksums that a node asks others for, of instances that lie there.

use super::described::{Described, Entries};
use super::desk::Task;
use super::files::Refused;
use super::letters::Topic;
use super::registry::Asker;
use super::{Nodes, Question};
use crate::instance::Instance;
use crate::machine::Machine;
use crate::runtime::Shared;
use crate::{ArgumentError, Array, Error};
use std::sync::Arc;

type Answered = Result<Vec<u64>, Refused>;

impl Nodes {
    /// Asks the node of an instance for checksums of it, taken in an order of entries.
    pub(crate) fn ask_for_sums(&self, of: &Instance, order: &Array) -> Question<'_> {
        let question = (Described::of(of), Entries::of(&order.space, &order.fields));
        self.question(of.memory().node, (Topic::Sums, question))
    }

    pub(super) fn hear_sums_asked(&self, from: model::NodeId, bytes: &[u8]) -> Result<(), String> {
        let (serial, (of, order)) = ::postcard::from_bytes(bytes).map_err(|e| e.to_string())?;
        if !self.desk.take((from, serial), Task::Sums(of, order)) {
            self.answer((from, serial), (Topic::Found, Answered::Err(Refused::busy())));
        }
        Ok(())
    }

    /// Takes the checksums that were asked for, unless who asked is lost meanwhile.
    pub(super) fn answer_sums(
        &self,
        shared: &Arc<Shared>,
        asker: Asker,
        (described, order): (Described, &Entries),
    ) {
        let is_vain = || self.is_over() || self.fabric.lost(asker.0).is_some();
        let sums = self.reached_by_others(described).and_then(|instance| {
            let (space, fields) = order.spaces()?;
            Machine::handle(shared).sums(&instance, &Array::new(space, fields), &is_vain)
        });
        let answer: Answered = sums.map_err(|error| Refused::of(&error));
        self.answer(asker, (Topic::Found, answer));
    }

    /// What another node describes of what was published or lent here.
    fn reached_by_others(&self, described: Described) -> Result<Instance, Error> {
        let region = described.region();
        let there = self.registry.published_in(region).or_else(|| self.served.lent_in(region));
        described.within(&there.ok_or(ArgumentError::NotOpen)?)
    }
}

impl Question<'_> {
    /// The checksums that were asked for.
    ///
    /// # Errors
    /// [`Error::Far`] where that node can't take them, [`Error::Nodes`] where it is lost;
    /// [`Error::TimedOut`] once `is_interrupted`.
    pub(crate) fn sums(self, is_interrupted: &dyn Fn() -> bool) -> Result<Vec<u64>, Error> {
        let node = self.node();
        let answered: Answered = self.wait((None, is_interrupted))?;
        answered.map_err(|refused| refused.far(node))
    }
}
