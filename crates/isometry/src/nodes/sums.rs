//! Checksums that a node asks others for, of instances that lie there.

use super::described::{Described, Entries};
use super::desk::Task;
use super::files::Refused;
use super::letters::Topic;
use super::registry::Asker;
use super::{Nodes, Question, postcard};
use crate::instance::Instance;
use crate::machine::Machine;
use crate::runtime::Shared;
use crate::verify::{GROUP_BYTES, packed};
use crate::{ArgumentError, Array, Error};
use model::NodeId;
use std::sync::Arc;

/// The longest question: lists are told by the part.
const MOST_BYTES: usize = 4 << 20;

type Answered = Result<Vec<u64>, Refused>;

impl Nodes {
    /// Asks the node of an instance for checksums of it, taken in an order of entries.
    ///
    /// # Errors
    /// [`Error::Untellable`] where that takes too long a question.
    pub(crate) fn ask_for_sums(&self, of: &Instance, order: &Array) -> Result<Question<'_>, Error> {
        let question = postcard(&(Described::of(of), Entries::of(&order.space, &order.fields)));
        if question.len() > MOST_BYTES {
            let too_long = wire::WireError::TooLong { bytes: question.len(), most: MOST_BYTES };
            return Err(Error::Untellable(Arc::new(too_long)));
        }
        Ok(self.question(of.memory().node, (Topic::Sums, question)))
    }

    pub(super) fn hear_sums_asked(&self, from: NodeId, bytes: &[u8]) -> Result<(), String> {
        let (serial, asked): (u64, &[u8]) =
            ::postcard::from_bytes(bytes).map_err(|e| e.to_string())?;
        let is_short = asked.len() <= MOST_BYTES;
        if !(is_short && self.desk.take((from, serial), Task::Sums(asked.to_vec()))) {
            self.answer((from, serial), (Topic::Found, Answered::Err(Refused::busy())));
        }
        Ok(())
    }

    /// Takes the checksums that were asked for, unless who asked is lost meanwhile.
    pub(super) fn answer_sums(&self, shared: &Arc<Shared>, asker: Asker, asked: &[u8]) {
        let is_vain = || self.is_over() || self.fabric.lost(asker.0).is_some();
        let sums = self.sums_of(shared, asked, &is_vain);
        // Who is about to leave answers nobody: that is heard of.
        if !is_vain() {
            let answer: Answered = sums.map_err(|error| Refused::of(&error));
            self.answer(asker, (Topic::Found, answer));
        }
    }

    fn sums_of(
        &self,
        shared: &Arc<Shared>,
        asked: &[u8],
        is_vain: &dyn Fn() -> bool,
    ) -> Result<Vec<u64>, Error> {
        let nonsense = |_| Error::from(ArgumentError::Question);
        let (described, order): (Described, Entries) =
            ::postcard::from_bytes(asked).map_err(nonsense)?;
        let (space, fields) = order.spaces()?;
        let order = Array::new(space, packed(&fields)?);
        let entries = order.space.extents().into_iter().fold(1, u64::saturating_mul);
        let (bytes, most) = (order.bytes()?.max(entries), GROUP_BYTES);
        if bytes > most {
            return Err(ArgumentError::TooMuchAtOnce { bytes, most }.into());
        }
        Machine::handle(shared).sums(&self.reached_by_others(described)?, &order, is_vain)
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
