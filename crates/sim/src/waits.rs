//! Who waits for whom when nothing goes on, in words that say where to look.

use engine::{Dependency, Wait};
use model::{MemoryId, TransferId};
use std::fmt;

/// What each transfer that does not end waits for, on each node that has part in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waits(Vec<String>);

impl Waits {
    /// `what` waits for each of `waits`; `name` knows the engine's transfers.
    pub(crate) fn add(&mut self, what: &str, waits: &[Wait], name: impl Fn(TransferId) -> String) {
        let lines = waits.iter().map(|wait| format!("{what} waits for {}", told(wait, &name)));
        self.0.extend(lines);
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// What is waited for.
fn told(wait: &Wait, name: impl Fn(TransferId) -> String) -> String {
    match wait {
        Wait::Other(Dependency::Transfer(id)) => name(*id),
        Wait::Other(Dependency::Fence(fence)) => format!("fence {}", fence.0),
        Wait::Staging { memory, held_by, behind } => {
            let held: Vec<String> = held_by.iter().map(|id| name(*id)).collect();
            let first = behind.map(|id| format!("; {} is first", name(id))).unwrap_or_default();
            let holders = if held.is_empty() { "nobody".to_owned() } else { held.join(", ") };
            format!("staging in {}, held by {holders}{first}", memory_name(*memory))
        }
        Wait::Channel { hop, channel } => {
            format!("channel {} of {}, for hop {hop}", channel.index, channel.node)
        }
        Wait::Requests { hop, channel, count } => {
            format!(
                "{count} requests of hop {hop} on channel {} of {}",
                channel.index, channel.node
            )
        }
        Wait::Input { hop, from } => format!("what comes to hop {hop} from {from}"),
        Wait::Space { hop, of } => format!("credit for hop {hop} from {of}"),
        Wait::Leave { hop, of } => format!("word from {of} where hop {hop} may write"),
        Wait::Party { node, has_reserved: false } => format!("{node} to reserve its share"),
        Wait::Party { node, has_reserved: true } => format!("{node} to end its share"),
        Wait::Quiet { node } => format!("{node} to be quiet"),
        Wait::CutOff { node } => format!("its driver to cut {node} off"),
    }
}

fn memory_name(memory: MemoryId) -> String {
    format!("memory {} of {}", memory.index, memory.node)
}
