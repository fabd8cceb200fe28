//! What a node asks of others that open and make files for it, and what it lends to those that ask.

use super::described::Described;
use super::desk::Task;
use super::files::{Answered, Asked, Refused};
use super::letters::Topic;
use super::registry::Asker;
use super::{Nodes, postcard};
use crate::instance::{Instance, Keeper};
use crate::runtime::Shared;
use crate::{Array, Error, FileOptions};
use model::{NodeId, RegionId};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long another node has to open a file, or to make one: a disk may be measured first.
const PATIENCE: Duration = Duration::from_secs(60);

impl Nodes {
    /// The file at `path` of `node`, called `name`: made of `array` where there is one, else as it is.
    /// That node keeps it until the instance is dropped, or this node is lost.
    ///
    /// # Errors
    /// [`Error::FarFile`] as it answers; [`Error::Nodes`] where it is lost; [`Error::TimedOut`].
    pub(crate) fn file_at(
        &self,
        shared: &Arc<Shared>,
        (node, name): (NodeId, &str),
        path: &Path,
        (array, options): (Option<&Array>, &FileOptions),
    ) -> Result<Instance, Error> {
        let question = (Topic::File, Asked::of(path, array, options));
        let end = Instant::now() + PATIENCE;
        let answered: Answered = self.ask(node, question, (Some(end), &|| false))?;
        let described = answered.map_err(|refused| refused.error(name, path))?;
        described.instance(shared, (node, Keeper::Lender(node)))
    }

    pub(super) fn hear_file(&self, from: NodeId, bytes: &[u8]) -> Result<(), String> {
        let (serial, asked): (u64, Asked) =
            ::postcard::from_bytes(bytes).map_err(|e| e.to_string())?;
        let refused = match self.served.serves_any() {
            true if self.desk.take((from, serial), Task::File(Box::new(asked))) => return Ok(()),
            true => Refused::busy(),
            false => Refused::not_served("the node serves no files"),
        };
        self.answer((from, serial), (Topic::FileAnswer, Answered::Err(refused)));
        Ok(())
    }

    /// Opens or makes a file for another node.
    pub(super) fn answer_file(&self, shared: &Arc<Shared>, asker: Asker, asked: &Asked) {
        let from = asker.0;
        let what = self.served.open(shared, asked).and_then(|instance| {
            // Before the answer: who has it may use it at once.
            if !self.served.lend(from, &instance) {
                return Err(Refused::busy());
            }
            self.registry.open(instance.place().region, instance.is_writable());
            Ok(Described::of(&instance))
        });
        self.answer(asker, (Topic::FileAnswer, what));
        if self.fabric.lost(from).is_some() {
            self.forget_lent(|node| node == from);
        }
    }

    /// Hears of a file; where nobody waits for it any more, it goes back.
    pub(super) fn hear_file_answer(&self, from: NodeId, bytes: &[u8]) -> Result<(), String> {
        let Some(answer) = self.hear_answer(from, bytes)? else { return Ok(()) };
        let answered: Answered = ::postcard::from_bytes(answer).map_err(|e| e.to_string())?;
        if let Ok(described) = answered {
            self.give_back(from, described.region());
        }
        Ok(())
    }

    /// Tells `node` that what it has lent is not needed any more.
    pub(crate) fn give_back(&self, node: NodeId, region: RegionId) {
        let said = postcard(&(region.index, region.generation));
        self.outbox.post(&self.fabric, node, Topic::GiveBack, said);
    }

    pub(super) fn hear_give_back(&self, from: NodeId, bytes: &[u8]) -> Result<(), String> {
        let (index, generation) = ::postcard::from_bytes(bytes).map_err(|e| e.to_string())?;
        let region = RegionId { index, generation };
        if !self.served.take_back(from, region) {
            return Err("it was not lent that".to_owned());
        }
        self.registry.shut(region);
        Ok(())
    }

    /// Takes back what was lent to some.
    pub(super) fn forget_lent(&self, is_to: impl Fn(NodeId) -> bool) {
        let regions = self.served.take_back_all(is_to);
        regions.into_iter().for_each(|region| self.registry.shut(region));
    }
}
