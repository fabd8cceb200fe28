//! The threads that hear other nodes, and meet those that come.

use super::Nodes;
use super::desk::Clerk;
use super::letters::{Letter, Topic};
use crate::runtime::Shared;
use channel::{Region, Regions, TaskQueue};
use model::NodeId;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How long what a node said before it was lost may take to come.
const LAST_WORDS: Duration = Duration::from_millis(2);

/// What the threads are told.
#[derive(Default)]
pub(super) struct Orders {
    /// Whether they are to end.
    pub(super) is_over: AtomicBool,
    /// What drivers take their time for, and others are heard meanwhile.
    pub(super) rooms: TaskQueue<Order>,
}

/// An order about rooms of devices.
pub(super) enum Order {
    /// Some may have to be made; who was heard, if that is why, is then told what this node is.
    Make(Option<NodeId>),
    /// These of other nodes, which nobody uses any more, are to be closed.
    Close(Vec<(NodeId, Arc<Region>)>),
}

/// The running threads. They sleep whenever nothing comes.
pub(crate) struct Service {
    nodes: Arc<Nodes>,
    threads: Vec<JoinHandle<()>>,
    clerk: Clerk,
}

/// What a thread does, each with a name.
type Body = (&'static str, fn(&Arc<Shared>, &Nodes));

const BODIES: [Body; 2] = [("isometry-nodes", serve), ("isometry-rooms", see_to_rooms)];

impl Service {
    /// Serves the nodes of `shared`, if it is among any.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Option<Self>> {
        let Some(nodes) = shared.nodes.clone() else { return Ok(None) };
        let clerk = Clerk::start(&nodes.desk, shared)?;
        let mut service = Service { nodes, threads: Vec::new(), clerk };
        match BODIES.into_iter().try_for_each(|body| service.spawn(shared, body)) {
            Ok(()) => Ok(Some(service)),
            Err(error) => {
                service.end();
                Err(error)
            }
        }
    }

    fn spawn(&mut self, shared: &Arc<Shared>, (name, body): Body) -> io::Result<()> {
        let (shared, nodes) = (Arc::clone(shared), Arc::clone(&self.nodes));
        let thread = Builder::new().name(name.to_owned()).spawn(move || body(&shared, &nodes))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends the threads.
    fn end(self) {
        self.nodes.end();
        // A panic of a thread was printed when it happened.
        self.threads.into_iter().for_each(|thread| _ = thread.join());
        self.clerk.join(&self.nodes.desk);
    }

    /// Ends the threads, and leaves: to each other, this node and all others are lost. What of devices' memory
    /// others may have open yet is never given back.
    pub(crate) fn join(self, regions: &Regions) {
        let nodes = Arc::clone(&self.nodes);
        // While it is heard what others say to that.
        for room in nodes.withdraw().into_iter().filter_map(|room| regions.get(room)) {
            log::warn!("memory of a device stays allocated, which others may have open: {room:?}");
            std::mem::forget(room);
        }
        self.end();
        nodes.clear();
        // Before others hear that it has left, and give back what it had open.
        nodes.close_rooms();
        nodes.leave();
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
        if !lost.is_empty() {
            nodes.lose_rooms(&lost);
            relink(shared, nodes, None);
        }
    }
}

/// Has copies go by the links that there are, and rooms made where these are needed from now on; `met`, which was
/// heard, is then told what this node is.
fn relink(shared: &Shared, nodes: &Nodes, met: Option<NodeId>) {
    shared.set_topology(nodes.cluster());
    nodes.orders.rooms.push(Order::Make(met));
}

/// Makes rooms and introduces this node, and closes those of others.
fn see_to_rooms(shared: &Arc<Shared>, nodes: &Nodes) {
    while let Some(order) = nodes.orders.rooms.take() {
        match order {
            Order::Make(met) => {
                shared.open_rooms();
                // Then, so that who comes hears of all the rooms.
                met.into_iter().for_each(|node| nodes.introduce_to(node));
            }
            Order::Close(rooms) => nodes.close(rooms),
        }
    }
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
    relink(shared, nodes, Some(letter.from));
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
