//! The thread that hears other nodes.

use super::Nodes;
use super::desk::Clerk;
use super::letters::{Letter, Topic};
use crate::runtime::Shared;
use channel::Regions;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How long what a node said before it was lost may take to come.
const LAST_WORDS: Duration = Duration::from_millis(2);

/// The running thread. It sleeps whenever nothing comes.
pub(crate) struct Service {
    nodes: Arc<Nodes>,
    thread: JoinHandle<()>,
    clerk: Clerk,
}

impl Service {
    /// Serves the nodes of `shared`, if it is among any.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Option<Self>> {
        let Some(nodes) = shared.nodes.clone() else { return Ok(None) };
        let clerk = Clerk::start(&nodes.desk, shared)?;
        let (shared, served) = (Arc::clone(shared), Arc::clone(&nodes));
        let body = move || serve(&shared, &served);
        match Builder::new().name("isometry-nodes".to_owned()).spawn(body) {
            Ok(thread) => Ok(Some(Service { nodes, thread, clerk })),
            Err(error) => {
                clerk.join(&nodes.desk);
                Err(error)
            }
        }
    }

    /// Ends the thread, and leaves: to each other, this node and all others are lost. What of devices' memory
    /// others may have open yet is never given back.
    pub(crate) fn join(self, regions: &Regions) {
        // While the thread hears what others say to that.
        for room in self.nodes.withdraw().into_iter().filter_map(|room| regions.get(room)) {
            log::warn!("memory of a device stays allocated, which others may have open: {room:?}");
            std::mem::forget(room);
        }
        self.nodes.end();
        // A panic of the thread was printed when it happened.
        let _ = self.thread.join();
        self.clerk.join(&self.nodes.desk);
        self.nodes.clear();
        // Before others hear that it has left, and give back what it had open.
        self.nodes.close_rooms(&self.nodes.others().collect::<Vec<_>>());
        self.nodes.leave();
    }
}

fn serve(shared: &Arc<Shared>, nodes: &Nodes) {
    while !nodes.is_over() {
        // It has all the time, and is no handler.
        let _ = nodes.fabric.sleep_until(None, || nodes.has_news());
        let lost = nodes.newly_lost();
        if !lost.is_empty() {
            // What they said before comes first, also where another thread has just begun to take it.
            let _ = nodes.fabric.sleep_until(Some(LAST_WORDS), || false);
        }
        let letters = nodes.inbox.take().into_iter();
        nodes.inbox.forget(&lost);
        let packets = letters.filter_map(|letter| hear(shared, nodes, letter)).collect();
        shared.hear_peers(packets, &lost);
        nodes.close_rooms(&lost);
        if !lost.is_empty() {
            relink(shared, nodes);
        }
    }
}

/// Makes room where that is needed from now on, and has copies go by the links that there are.
fn relink(shared: &Shared, nodes: &Nodes) {
    shared.open_rooms();
    shared.set_topology(nodes.cluster());
}

/// Acts on a letter, but for the packet that it may be.
fn hear(shared: &Arc<Shared>, nodes: &Nodes, letter: Letter) -> Option<engine::Packet> {
    let from = letter.from;
    let heard = match letter.topic {
        Topic::Packet => match nodes.decode(from, &letter.bytes) {
            Ok(packet) => return Some(packet),
            Err(error) => Err(error.to_string()),
        },
        Topic::Class if nodes.begins_to_measure(from) => measure_first(shared, nodes, &letter),
        Topic::Class => hear_class(shared, nodes, &letter),
        Topic::Lookup => nodes.hear_lookup(from, &letter.bytes),
        Topic::Found => nodes.hear_answer(from, &letter.bytes).map(drop),
        Topic::File => nodes.hear_file(from, &letter.bytes),
        Topic::FileAnswer => nodes.hear_file_answer(from, &letter.bytes),
        Topic::Sums => nodes.hear_sums_asked(from, &letter.bytes),
        Topic::GiveBack => nodes.hear_give_back(from, &letter.bytes),
        Topic::Closed => {
            nodes.hear_closed(from);
            Ok(())
        }
    };
    if let Err(why) = heard {
        log::warn!("dropped what {from} said of {:?}: {why}", letter.topic);
    }
    None
}

fn hear_class(shared: &Shared, nodes: &Nodes, letter: &Letter) -> Result<(), String> {
    nodes.hear_class(letter.from, &letter.bytes)?;
    // First, so that who comes hears of all the rooms, and this node knows it when it asks for a copy.
    relink(shared, nodes);
    nodes.introduce_to(letter.from);
    Ok(())
}

/// Hears what a node is once the link to it was measured, on a thread that nobody waits for: it ends at the
/// latest when this node has left.
fn measure_first(shared: &Arc<Shared>, nodes: &Nodes, letter: &Letter) -> Result<(), String> {
    let (theirs, said) = (Arc::clone(shared), letter.clone());
    let body = move || {
        let Some(nodes) = theirs.nodes.as_deref() else { return };
        nodes.measure_newcomer(said.from);
        if let Err(why) = hear_class(&theirs, nodes, &said) {
            log::warn!("dropped what {} said of itself: {why}", said.from);
        }
    };
    let Err(error) = Builder::new().name("isometry-link".to_owned()).spawn(body) else {
        return Ok(());
    };
    log::warn!("the rates of links are assumed: {error}");
    hear_class(shared, nodes, letter)
}
