//! Letters: bytes of any length from one node to another, once and in order, cut into messages.
//!
//! **Hazard.** A handler may not send, and who sends may not wait for a peer that has stopped.
//! **Guarantee.** Handlers only put together what comes; what does not go out at once waits in a queue
//! of its peer's, and goes on when there is room. A letter that is not what one is never becomes one.
//! **Structure.** [`Inbox`] is filled by the handler and emptied by the thread that serves;
//! [`Outbox`] has a queue for each peer, which any thread may flush.

use fabric::{Call, Fabric, Handlers, Payload};
use model::NodeId;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The handler of letters.
const HANDLER: u8 = 128;

/// The longest letter: only an index list makes one long.
const MOST_BYTES: usize = wire::MAX_PACKET_BYTES;

/// How many letters may wait for one peer before packets are lost; no more either once they have
/// [`MOST_BYTES`] together, since the engine says a long one again while the first still waits.
const MOST_WAITING: usize = 1024;

/// So many times as many before others are: one that asks and asks, and takes no answer.
const OTHERS: usize = 4;

/// How many letters of one node, and bytes of them, may have come and not been taken; what comes then is
/// lost, as where that one floods this one, and of packets half as many.
const MOST_COME: usize = 1 << 14;
const MOST_COME_BYTES: usize = 4 * MOST_BYTES;

/// What a letter is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    /// A packet of one engine for another.
    Packet,
    /// What the sender's memories and channels are.
    Class,
    /// The sender asks for what is published under a name.
    Lookup,
    /// The answer.
    Found,
    /// The sender asks for a file to be opened or made.
    File,
    /// The answer.
    FileAnswer,
    /// The sender needs no more what it was lent.
    GiveBack,
    /// The sender asks for checksums.
    Sums,
    /// The sender has nothing open of what the other has withdrawn.
    Closed,
}

impl Topic {
    const ALL: [Topic; 9] = [
        Topic::Packet,
        Topic::Class,
        Topic::Lookup,
        Topic::Found,
        Topic::File,
        Topic::FileAnswer,
        Topic::GiveBack,
        Topic::Sums,
        Topic::Closed,
    ];

    fn of(number: u32) -> Option<Topic> {
        Topic::ALL.into_iter().find(|topic| *topic as u32 == number)
    }
}

/// What has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Letter {
    pub(crate) from: NodeId,
    pub(crate) topic: Topic,
    pub(crate) bytes: Vec<u8>,
}

/// Letters that have come, and those of which a part has.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    state: Mutex<Incoming>,
}

#[derive(Debug, Default)]
struct Incoming {
    parts: HashMap<NodeId, Part>,
    whole: Vec<Letter>,
    /// How many of each node that are, and how many bytes.
    held: HashMap<NodeId, (usize, usize)>,
}

#[derive(Debug)]
struct Part {
    topic: Topic,
    total: usize,
    bytes: Vec<u8>,
}

impl Inbox {
    /// Adds the handler that fills `inbox`.
    pub(crate) fn handle(inbox: &std::sync::Arc<Inbox>, handlers: Handlers) -> Handlers {
        let inbox = std::sync::Arc::clone(inbox);
        handlers.with(HANDLER, move |call: &Call<'_>| {
            let bytes = if let Payload::Bytes(bytes) = call.payload() { bytes } else { &[] };
            if let Err(why) = inbox.lock().hear(call.source(), call.args(), bytes) {
                log::warn!("dropped a letter of node {}: {why}", call.source().0);
            }
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().whole.is_empty()
    }

    /// Whether any has come that is about `topic`.
    pub(crate) fn has(&self, topic: Topic) -> bool {
        self.lock().whole.iter().any(|letter| letter.topic == topic)
    }

    /// All that have come, in the order of each sender.
    pub(crate) fn take(&self) -> Vec<Letter> {
        let mut incoming = self.lock();
        incoming.held.clear();
        std::mem::take(&mut incoming.whole)
    }

    /// Those that are about `topic`; the others are taken later.
    pub(crate) fn take_about(&self, topic: Topic) -> Vec<Letter> {
        let Incoming { whole, held, .. } = &mut *self.lock();
        let is_taken = |letter: &mut Letter| letter.topic == topic;
        let taken: Vec<_> = whole.extract_if(.., is_taken).collect();
        for letter in &taken {
            let (letters, bytes) = held.entry(letter.from).or_default();
            (*letters, *bytes) = (*letters - 1, *bytes - letter.bytes.len());
        }
        taken
    }

    /// What has come in part of these never comes whole.
    pub(crate) fn forget(&self, lost: &[NodeId]) {
        self.lock().parts.retain(|from, _| !lost.contains(from));
    }

    fn lock(&self) -> MutexGuard<'_, Incoming> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Incoming {
    /// Takes a part of a letter.
    ///
    /// # Errors
    /// Why it goes nowhere.
    fn hear(&mut self, from: NodeId, args: &[u32], bytes: &[u8]) -> Result<(), &'static str> {
        let part = self.parts.remove(&from);
        let mut part = Part::begun(part, args, bytes.len()).ok_or("not what one is")?;
        part.bytes.extend_from_slice(bytes);
        if part.bytes.len() < part.total {
            self.parts.insert(from, part);
            return Ok(());
        }
        let (letters, bytes) = self.held.entry(from).or_default();
        let parts = if part.topic == Topic::Packet { 2 } else { 1 };
        if *letters >= MOST_COME / parts || *bytes >= MOST_COME_BYTES / parts {
            return Err("too many of it wait to be heard");
        }
        (*letters, *bytes) = (*letters + 1, *bytes + part.total);
        self.whole.push(Letter { from, topic: part.topic, bytes: part.bytes });
        Ok(())
    }
}

impl Part {
    /// The letter that the next `bytes` go on with, be it `before` or a new one; `None` where they are no
    /// part of one.
    fn begun(before: Option<Part>, args: &[u32], bytes: usize) -> Option<Part> {
        let &[topic, total, at] = args else { return None };
        let (total, at) = (total as usize, at as usize);
        let part = match before {
            Some(part) if at > 0 => part,
            _ => Part { topic: Topic::of(topic)?, total, bytes: Vec::new() },
        };
        let goes_on = part.bytes.len() == at && part.total == total && total <= MOST_BYTES;
        // A part of nothing would never come to an end.
        let is_some = bytes > 0 || total == at;
        let fits = goes_on && part.topic as u32 == topic && bytes <= total - at;
        (fits && is_some).then_some(part)
    }
}

/// Letters that are to go, by peer.
#[derive(Debug)]
pub(crate) struct Outbox {
    queues: Vec<Mutex<VecDeque<Outgoing>>>,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct Outgoing {
    topic: Topic,
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    /// For as many peers as there may ever be.
    pub(crate) fn new(capacity: u32) -> Outbox {
        Outbox { queues: (0..capacity).map(|_| Mutex::default()).collect(), waiting: 0.into() }
    }

    /// Sends a letter, now or when there is room. It is lost where much waits already: a packet the engine
    /// says again.
    pub(crate) fn post(&self, fabric: &Fabric, to: NodeId, topic: Topic, bytes: Vec<u8>) {
        if bytes.len() > MOST_BYTES {
            return log::error!("{} B are too many to say to {to} at once", bytes.len());
        }
        let mut queue = self.queue(to.0 as usize);
        match topic {
            Topic::Packet if is_full(&queue, 1) => return,
            _ if is_full(&queue, OTHERS) => {
                return log::warn!(
                    "dropped a letter to {to} of {topic:?}: it takes none, and many wait"
                );
            }
            _ => {}
        }
        queue.push_back(Outgoing { topic, bytes, sent: 0 });
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.flush(fabric, to, &mut queue);
    }

    /// Sends what there is room for; returns whether anything went.
    pub(crate) fn flush_all(&self, fabric: &Fabric) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut any = false;
        for to in (0..fabric.size()).map(NodeId) {
            any |= self.flush(fabric, to, &mut self.queue(to.0 as usize));
        }
        any
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    fn queue(&self, to: usize) -> MutexGuard<'_, VecDeque<Outgoing>> {
        self.queues[to].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under the queue's lock, so that the parts of two letters don't mix.
    fn flush(&self, fabric: &Fabric, to: NodeId, queue: &mut VecDeque<Outgoing>) -> bool {
        let room = fabric.medium_bytes(to);
        let mut any = false;
        while let Some(first) = queue.front_mut() {
            let end = first.bytes.len().min(first.sent + room);
            let args = [first.topic as u32, first.bytes.len() as u32, first.sent as u32];
            match fabric.try_request(to, HANDLER, &args, &first.bytes[first.sent..end]) {
                Ok(true) => first.sent = end,
                Ok(false) => break,
                // The peer is lost, and with it all that was for it.
                Err(_) => first.sent = first.bytes.len(),
            }
            any = true;
            if first.sent == first.bytes.len() {
                queue.pop_front();
                self.waiting.fetch_sub(1, Ordering::Relaxed);
            }
        }
        any
    }
}

/// Whether so many times as much waits as may before packets are lost.
fn is_full(queue: &VecDeque<Outgoing>, times: usize) -> bool {
    let bytes: usize = queue.iter().map(|letter| letter.bytes.len()).sum();
    queue.len() >= times * MOST_WAITING || bytes >= times * MOST_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric::{APART, Config, Job};
    use std::sync::Arc;
    use std::thread;

    const FROM: NodeId = NodeId(3);

    fn heard(parts: &[([u32; 3], usize)]) -> (Vec<bool>, Vec<usize>) {
        let mut incoming = Incoming::default();
        let hear =
            |(args, bytes): &([u32; 3], usize)| incoming.hear(FROM, args, &vec![7; *bytes]).is_ok();
        let answers = parts.iter().map(hear).collect();
        (answers, incoming.whole.iter().map(|letter| letter.bytes.len()).collect())
    }

    #[test]
    fn parts_that_follow_each_other_are_a_letter() {
        let topic = Topic::Lookup as u32;
        assert_eq!(heard(&[([topic, 0, 0], 0)]), (vec![true], vec![0]));
        let parts = [([topic, 5, 0], 2), ([topic, 5, 2], 3), ([topic, 1, 0], 1)];
        assert_eq!(heard(&parts), (vec![true; 3], vec![5, 1]));
    }

    #[test]
    fn what_floods_a_node_is_lost_until_some_was_taken() {
        let inbox = Inbox::default();
        let hear = |from, topic: Topic, bytes: usize| {
            inbox.lock().hear(from, &[topic as u32, bytes as u32, 0], &vec![7; bytes]).is_ok()
        };
        assert!((0..MOST_COME / 2).all(|_| hear(FROM, Topic::Packet, 0)));
        assert!(!hear(FROM, Topic::Packet, 0));
        assert!((0..MOST_COME / 2).all(|_| hear(FROM, Topic::Lookup, 0)));
        assert!(!hear(FROM, Topic::Lookup, 0) && hear(NodeId(4), Topic::Packet, 0));
        assert_eq!(inbox.take().len(), MOST_COME + 1);
        assert!((0..4).all(|_| hear(FROM, Topic::Lookup, MOST_BYTES)));
        assert!(!hear(FROM, Topic::Lookup, 1));
        assert_eq!(inbox.take().len(), 4);
        assert!(hear(FROM, Topic::Lookup, 1));
    }

    #[test]
    fn nothing_is_kept_of_a_letter_whose_sender_is_lost() {
        let inbox = Inbox::default();
        let hear = |from, at| inbox.lock().hear(from, &[0, 4, at], &[7, 7]).is_ok();
        let others = NodeId(4);
        assert!(hear(FROM, 0) && hear(others, 0));
        inbox.forget(&[FROM]);
        assert_eq!(inbox.lock().parts.len(), 1);
        assert!(!hear(FROM, 2) && hear(others, 2));
        assert_eq!(inbox.take().len(), 1);
    }

    #[test]
    fn what_is_left_for_later_counts_as_before() {
        let inbox = Inbox::default();
        let hear = |topic: Topic| inbox.lock().hear(FROM, &[topic as u32, 1, 0], &[7]).is_ok();
        assert!((0..MOST_COME - 1).all(|_| hear(Topic::Lookup)) && !inbox.has(Topic::Class));
        assert!(hear(Topic::Class) && inbox.has(Topic::Class) && !hear(Topic::Class));
        assert_eq!(inbox.take_about(Topic::Class).len(), 1);
        assert!(hear(Topic::Lookup) && !hear(Topic::Lookup), "there was room for one");
        assert!(inbox.take_about(Topic::Class).is_empty());
        assert_eq!(inbox.take().len(), MOST_COME);
    }

    #[test]
    fn a_queue_is_full_of_many_letters_or_of_long_ones() {
        let queue = |count, bytes| {
            let letter = || Outgoing { topic: Topic::Packet, bytes: vec![0; bytes], sent: 0 };
            std::iter::repeat_with(letter).take(count).collect()
        };
        for times in [1, OTHERS] {
            let (most, bytes) = (times * MOST_WAITING, times * MOST_BYTES);
            let is_full = |queue| is_full(&queue, times);
            assert!(!is_full(queue(0, 0)) && !is_full(queue(most - 1, 1)));
            assert!(is_full(queue(most, 1)));
            assert!(!is_full(queue(1, bytes - 1)) && is_full(queue(2, bytes / 2)));
        }
    }

    #[test]
    fn who_takes_nothing_has_so_much_kept_for_it_and_no_more() {
        let job = Job::new(2).unwrap();
        let join = |rank| {
            let variables = job.variables(rank);
            let find = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
            Fabric::join(&Config::from_variables(find).unwrap(), Handlers::new()).unwrap()
        };
        let [asked, asks] = thread::scope(|scope| {
            let second = scope.spawn(|| join(1));
            [join(0), second.join().unwrap()]
        });
        let outbox = Outbox::new(2);
        let post = |topic| outbox.post(&asked, asks.rank(), topic, vec![7; 3000]);
        let waiting = || outbox.queue(1).len();
        for (topic, most) in [(Topic::Packet, MOST_WAITING), (Topic::Found, OTHERS * MOST_WAITING)]
        {
            (0..2 * most).for_each(|_| post(topic));
            assert_eq!(waiting(), most, "{topic:?}");
        }
        drop(asks);
        asked.wait_until(None, || asked.lost(NodeId(1)).is_some()).unwrap();
        outbox.flush_all(&asked);
        assert!(outbox.is_empty());
    }

    /// Of one machine, and yet apart to one of them, as nodes of several are.
    #[test]
    fn a_letter_goes_in_messages_as_long_as_its_peer_takes() {
        let [(_, apart), ..] = Job::loopback(3).unwrap().variables(0);
        let near = apart.replace(APART, "");
        let counts = [0; 3].map(|_| Arc::new(AtomicUsize::new(0)));
        let join = |rank: u32| {
            let config = Config::new(if rank == 2 { &apart } else { &near }, (rank, 3), b"key");
            let count = Arc::clone(&counts[rank as usize]);
            let handler = move |_: &Call<'_>| _ = count.fetch_add(1, Ordering::Relaxed);
            Fabric::join(&config, Handlers::new().with(HANDLER, handler)).unwrap()
        };
        let [posts, near, apart] = thread::scope(|scope| {
            let join = &join;
            let [near, apart] = [1, 2].map(|rank| scope.spawn(move || join(rank)));
            [join(0), near.join().unwrap(), apart.join().unwrap()]
        });
        const BYTES: usize = 32 << 10;
        let outbox = Outbox::new(3);
        for (to, most) in [(&near, posts.capabilities().medium_bytes), (&apart, BYTES)] {
            let count = &counts[to.rank().0 as usize];
            outbox.post(&posts, to.rank(), Topic::Lookup, vec![7; BYTES]);
            let is_there = || {
                outbox.flush_all(&posts);
                count.load(Ordering::Relaxed) >= BYTES / most
            };
            to.wait_until(None, is_there).unwrap();
            assert!(outbox.is_empty());
            assert_eq!(count.load(Ordering::Relaxed), BYTES / most);
        }
    }

    #[test]
    fn anything_else_is_none() {
        let (topic, most) = (Topic::Lookup as u32, MOST_BYTES as u32);
        for parts in [
            [([topic, 5, 2], 3), ([topic, 5, 5], 0)],
            [([topic, 5, 0], 2), ([topic, 5, 3], 2)],
            [([topic, 5, 0], 2), ([topic, 6, 2], 4)],
            [([topic, 5, 0], 2), ([topic + 1, 5, 2], 3)],
            [([topic, 5, 0], 6), ([topic, 5, 0], 0)],
            [([99, 1, 0], 1), ([topic, most + 1, 0], 1)],
        ] {
            let (answers, letters) = heard(&parts);
            assert!(answers.contains(&false) && letters.is_empty(), "{parts:?}: {answers:?}");
        }
    }
}
