//! A node's firehoses: which buckets of others it may reach without asking, and which of these are in
//! use.
//!
//! **Hazard.** Messages overtake each other: what one frees must not be counted on by another that
//! comes first. **Guarantee.** Whatever order its messages come in, an owner finds that this node holds
//! no more than its limit and gives up nothing that it does not hold. No firehose is moved while it is
//! in use. Who asks for buckets has all of them at once or waits for its turn and has none, so that no
//! two wait for each other. **Structure.** [`Hoses::acquire`] is a hit, or gives a number to ask
//! [`Hoses::outcome`] about; [`Hoses::poll_request`] says what to send, and `handle_*` hear what comes.
//! A firehose that nobody uses stands in its peer's queue, the one first that was released first: that
//! is the one that a miss moves. It takes a node as many steps as there are buckets to acquire or
//! release them, but where a peer is lost.

mod steal;

use super::arena::{Arena, Chain};
use super::run::Run;
use foldhash::fast::RandomState;
use model::NodeId;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// The pressure of who has just moved a firehose: whoever asks so many times over, as a power of two,
/// while no other is moved, finds none.
const PRESSURE: u8 = 16;

/// What holds for all peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// How many buckets this node may hold of each peer's memory, at first: F.
    pub(crate) share: u64,
    /// How many of these it keeps, whatever others ask for.
    pub(crate) floor: u64,
    /// How many that follow each other are one firehose at most.
    pub(crate) region: u64,
    /// How many runs a message has at most, at least 2.
    pub(crate) runs: usize,
    /// Whether a firehose stays where it is when it is released.
    pub(crate) stays: bool,
}

impl Rules {
    /// How many buckets one call may acquire: there is room for them once nothing is in use, also for
    /// what else is in the regions at both ends, and in one message.
    pub(crate) fn most(&self) -> u64 {
        let most = self.floor.saturating_sub(2 * (self.region - 1));
        most.min(self.runs as u64 / 2).max(1)
    }
}

/// What is to be sent to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// To an owner: gives up some buckets and needs others.
    Pin { miss: u64, unpin: Vec<Run>, pin: Vec<Run> },
    /// To another that may hold buckets of `owner`: give up to so many of them.
    Give { owner: NodeId, buckets: u64 },
    /// To an owner: `from` gave so many of its buckets, and held some of them still. Or it gave
    /// nothing, since it is lost.
    Move { from: NodeId, buckets: u64, unpin: Vec<Run>, is_given: bool },
}

/// Whether buckets were there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// All: they are in use now.
    Now,
    /// Not all; [`Hoses::outcome`] of this says what became of it.
    Later(u32),
}

/// Why buckets could not be acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Their owner is lost.
    Lost,
    /// Their owner could not pin them, for this reason.
    Refused(i32),
}

/// What was counted, in buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Firehoses were there.
    pub(crate) hits: u64,
    /// Their owner had been asked for them already.
    pub(crate) joined: u64,
    /// Their owner was asked.
    pub(crate) misses: u64,
    /// Given by others.
    pub(crate) stolen: u64,
}

/// A firehose: buckets that the owner pins and gives up as one.
#[derive(Debug)]
struct Hose {
    run: Run,
    /// How many use it, or wait for it.
    refs: u64,
    /// What asked for it, until that is answered.
    asked: Option<u64>,
}

/// What is known of a peer's memory.
#[derive(Debug, Default)]
struct Peer {
    /// How many buckets this node may hold.
    limit: u64,
    /// How many the owner counts at most, whichever messages have come.
    used: u64,
    table: HashMap<u64, u32, RandomState>,
    /// Those that nobody uses, and how many buckets they have.
    idle: Chain,
    idle_buckets: u64,
    /// Who waits for others to release buckets.
    waiting: VecDeque<u32>,
    /// How many buckets are to be moved before others are asked for some.
    calm: u64,
    /// How many of those asked gave none, since one did or there was calm.
    refused: u32,
    /// How much this node needs all that it has: halved whenever another asks for some.
    pressure: u8,
    /// Who is asked.
    giver: Option<NodeId>,
    /// Who was asked last.
    last_giver: u32,
    is_lost: bool,
}

#[derive(Debug)]
struct Miss {
    peer: NodeId,
    hoses: Vec<u32>,
    /// How many fewer buckets the owner counts once it has heard.
    surplus: u64,
    waiters: Vec<u32>,
}

#[derive(Debug)]
struct Pending {
    peer: NodeId,
    run: Run,
    state: State,
    /// Nobody asks what becomes of it.
    is_left: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// For others to release buckets.
    Waits,
    /// For the answers to so many misses, of which one has failed, or none so far.
    Asked(usize, Option<i32>),
    Over(Result<(), Failure>),
}

/// What is there of a run.
#[derive(Debug, Default)]
struct Look {
    missing: u64,
    asked: u64,
    /// Of firehoses that nobody uses.
    idle: u64,
}

/// The firehoses of a node.
#[derive(Debug)]
pub(crate) struct Hoses {
    me: NodeId,
    rules: Rules,
    peers: Vec<Peer>,
    arena: Arena<Hose>,
    pending: Arena<Pending>,
    misses: HashMap<u64, Miss, RandomState>,
    last_miss: u64,
    requests: VecDeque<(NodeId, Request)>,
    counts: Counts,
}

impl Hoses {
    /// None holds anything yet.
    pub(crate) fn new(me: NodeId, nodes: u32, rules: Rules) -> Hoses {
        let peer = |peer: u32| Peer { limit: rules.share, last_giver: peer, ..Peer::default() };
        Hoses {
            me,
            rules,
            peers: (0..nodes).map(peer).collect(),
            arena: Arena::default(),
            pending: Arena::default(),
            misses: HashMap::default(),
            last_miss: 0,
            requests: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn rules(&self) -> Rules {
        self.rules
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The next message to send.
    pub(crate) fn poll_request(&mut self) -> Option<(NodeId, Request)> {
        self.requests.pop_front()
    }

    pub(crate) fn has_request(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Uses buckets of another node, no more than [`Rules::most`]; each use ends by
    /// [`Hoses::release`].
    ///
    /// # Errors
    /// [`Failure::Lost`].
    pub(crate) fn acquire(&mut self, peer: NodeId, run: Run) -> Result<Acquired, Failure> {
        if self.peer(peer).is_lost {
            return Err(Failure::Lost);
        }
        if self.use_one(peer, run) {
            return Ok(Acquired::Now);
        }
        let look = self.look(peer, run);
        if look.missing == 0 && look.asked == 0 {
            self.counts.hits += run.count;
            self.take(peer, run);
            return Ok(Acquired::Now);
        }
        let pending = Pending { peer, run, state: State::Waits, is_left: false };
        let id = self.pending.insert(pending);
        if !self.peer(peer).waiting.is_empty() || !self.admit(id) {
            self.peer(peer).waiting.push_back(id);
            self.ask_others(peer);
        }
        // Whoever waited may have left nothing to wait for.
        self.serve(peer);
        Ok(Acquired::Later(id))
    }

    /// What became of an [`Acquired::Later`], once that is known; its number then means nothing.
    pub(crate) fn outcome(&mut self, id: u32) -> Option<Result<(), Failure>> {
        let State::Over(outcome) = self.pending.get(id).state else { return None };
        self.pending.remove(id);
        Some(outcome)
    }

    pub(crate) fn is_over(&self, id: u32) -> bool {
        matches!(self.pending.get(id).state, State::Over(_))
    }

    /// Nobody asks for the outcome any more; what is acquired is released.
    pub(crate) fn leave(&mut self, id: u32) {
        self.pending.get_mut(id).is_left = true;
        self.end_left(id);
    }

    /// Ends one use of buckets. Returns whether another may have got what it waits for.
    pub(crate) fn release(&mut self, peer: NodeId, run: Run) -> bool {
        if self.peer(peer).is_lost {
            return false;
        }
        self.drop_uses(peer, run);
        self.serve(peer)
    }

    /// An owner has answered: it has pinned what a miss needs, or could not.
    pub(crate) fn handle_pinned(&mut self, from: NodeId, miss: u64, outcome: Result<(), i32>) {
        if self.misses.get(&miss).is_none_or(|miss| miss.peer != from) {
            return;
        }
        let miss = self.misses.remove(&miss).expect("it is there");
        self.peer(from).used -= miss.surplus;
        miss.waiters.iter().for_each(|&id| self.hear(id, outcome.err()));
        miss.hoses.iter().for_each(|&hose| self.settle(from, hose, outcome.is_ok()));
        miss.waiters.iter().for_each(|&id| self.end_left(id));
        self.serve(from);
    }

    /// A node is lost: so are the firehoses to it, and whoever waits for them hears that.
    pub(crate) fn handle_lost(&mut self, lost: NodeId) {
        for peer in self.peers.iter_mut().filter(|peer| peer.giver == Some(lost)) {
            peer.giver = None;
        }
        while let Some(first) = self.peer(lost).idle.first() {
            self.unplug(lost, first);
        }
        let used = std::mem::take(self.peer(lost)).table;
        self.peer(lost).is_lost = true;
        let used: BTreeSet<_> = used.into_values().collect();
        used.into_iter().for_each(|hose| _ = self.arena.remove(hose));
        self.misses.retain(|_, miss| miss.peer != lost);
        self.requests.retain(|(to, _)| *to != lost);
        let is_open = |p: &Pending| p.peer == lost && !matches!(p.state, State::Over(_));
        let open = self.pending.iter().filter(|(_, p)| is_open(p));
        for id in open.map(|(id, _)| id).collect::<Vec<_>>() {
            self.pending.get_mut(id).state = State::Over(Err(Failure::Lost));
            self.end_left(id);
        }
    }

    fn peer(&mut self, peer: NodeId) -> &mut Peer {
        &mut self.peers[peer.0 as usize]
    }

    /// The firehoses that there are of `run`, in order, and for each bucket without one `None`.
    fn parts(&self, peer: NodeId, run: Run) -> impl Iterator<Item = (u64, Option<u32>)> {
        let mut at = run.start;
        std::iter::from_fn(move || {
            let start = (at < run.end()).then_some(at)?;
            let hose = self.peers[peer.0 as usize].table.get(&start).copied();
            at = hose.map_or(start + 1, |hose| self.arena.get(hose).run.end());
            Some((at.min(run.end()) - start, hose))
        })
    }

    fn look(&self, peer: NodeId, run: Run) -> Look {
        let mut look = Look::default();
        for (buckets, hose) in self.parts(peer, run) {
            match hose.map(|hose| self.arena.get(hose)) {
                None => look.missing += buckets,
                Some(hose) if hose.asked.is_some() => look.asked += buckets,
                Some(hose) if hose.refs == 0 => look.idle += hose.run.count,
                Some(_) => {}
            }
        }
        look
    }

    /// Uses `run` where it is of one firehose that is there, as most are.
    fn use_one(&mut self, peer: NodeId, run: Run) -> bool {
        let Some(&index) = self.peer(peer).table.get(&run.start) else { return false };
        let hose = self.arena.get(index);
        let is_there = hose.asked.is_none() && run.end() <= hose.run.end();
        if is_there {
            self.counts.hits += run.count;
            self.use_hose(peer, index);
        }
        is_there
    }

    /// Uses the firehoses that there are of `run`.
    fn take(&mut self, peer: NodeId, run: Run) {
        let mut at = run.start;
        while at < run.end() {
            let index = self.peer(peer).table.get(&at).copied();
            at = index.map_or(at + 1, |index| self.use_hose(peer, index).end());
        }
    }

    fn use_hose(&mut self, peer: NodeId, index: u32) -> Run {
        let hose = self.arena.get_mut(index);
        hose.refs += 1;
        let (run, is_first) = (hose.run, hose.refs == 1 && hose.asked.is_none());
        if is_first {
            let peer = &mut self.peers[peer.0 as usize];
            peer.idle.remove(&mut self.arena, index);
            peer.idle_buckets -= run.count;
        }
        run
    }

    /// Ends a use of each firehose of `run`.
    fn drop_uses(&mut self, peer: NodeId, run: Run) {
        let mut at = run.start;
        while at < run.end() {
            let index = self.peer(peer).table[&at];
            let hose = self.arena.get_mut(index);
            at = hose.run.end();
            hose.refs -= 1;
            if hose.refs == 0 && hose.asked.is_none() {
                self.rest(peer, index);
            }
        }
    }

    /// Nobody uses it.
    fn rest(&mut self, peer: NodeId, index: u32) {
        let run = self.arena.get(index).run;
        let peer = &mut self.peers[peer.0 as usize];
        peer.idle.push(&mut self.arena, index);
        peer.idle_buckets += run.count;
        if !self.rules.stays {
            run.buckets().for_each(|bucket| _ = peer.table.remove(&bucket));
        }
    }

    /// Takes away a firehose that nobody uses.
    fn unplug(&mut self, peer: NodeId, index: u32) -> Run {
        let peer = &mut self.peers[peer.0 as usize];
        peer.idle.remove(&mut self.arena, index);
        let run = self.arena.remove(index).run;
        peer.idle_buckets -= run.count;
        if self.rules.stays {
            run.buckets().for_each(|bucket| _ = peer.table.remove(&bucket));
        }
        run
    }

    /// Serves those that wait for others to release buckets; returns whether that served any.
    fn serve(&mut self, peer: NodeId) -> bool {
        let mut has_served = false;
        while let Some(&first) = self.peer(peer).waiting.front() {
            if self.pending.get(first).is_left {
                self.pending.remove(first);
            } else if !self.admit(first) {
                break;
            }
            self.peer(peer).waiting.pop_front();
            has_served = true;
        }
        has_served
    }

    /// Uses what there is of what is waited for and asks for the rest, where there is room for that.
    fn admit(&mut self, id: u32) -> bool {
        let Pending { peer, run, .. } = *self.pending.get(id);
        let look = self.look(peer, run);
        let Peer { limit, used, idle_buckets, .. } = *self.peer(peer);
        if limit - used + idle_buckets - look.idle < look.missing {
            return false;
        }
        self.counts.misses += look.missing;
        self.counts.joined += look.asked;
        self.counts.hits += run.count - look.missing - look.asked;
        self.take(peer, run);
        if look.missing > 0 {
            self.ask(peer, run);
        }
        let left = self.await_answers(id, (peer, run));
        let over = State::Over(Ok(()));
        self.pending.get_mut(id).state = if left == 0 { over } else { State::Asked(left, None) };
        true
    }

    /// Waits for what was asked for already and now; returns how many answers that are.
    fn await_answers(&mut self, id: u32, (peer, run): (NodeId, Run)) -> usize {
        let hoses: Vec<_> = self.parts(peer, run).filter_map(|(_, hose)| hose).collect();
        let mut left = 0;
        for miss in hoses.into_iter().filter_map(|hose| self.arena.get(hose).asked) {
            let waiters = &mut self.misses.get_mut(&miss).expect("it is not answered").waiters;
            if waiters.last() != Some(&id) {
                waiters.push(id);
                left += 1;
            }
        }
        left
    }

    /// Asks for the buckets of `run` that have no firehose, in place of those that were released
    /// first.
    fn ask(&mut self, peer: NodeId, run: Run) {
        self.last_miss += 1;
        let (id, mut surplus) = (self.last_miss, 0);
        let (mut unpin, mut hoses) = (Vec::new(), Vec::new());
        let pin = self.missing(peer, run);
        for &run in &pin {
            while self.peer(peer).limit - self.peer(peer).used + surplus < run.count {
                let first = self.peer(peer).idle.first().expect("there is room for all");
                surplus += self.move_away(peer, first, &mut unpin);
            }
            let replaced = run.count.min(surplus);
            surplus -= replaced;
            self.peer(peer).used += run.count - replaced;
            let hose = self.arena.insert(Hose { run, refs: 1, asked: Some(id) });
            run.buckets().for_each(|bucket| _ = self.peer(peer).table.insert(bucket, hose));
            hoses.push(hose);
        }
        // What was released since the last miss goes with this one.
        while !self.rules.stays
            && pin.len() + unpin.len() < self.rules.runs
            && let Some(first) = self.peer(peer).idle.first()
        {
            surplus += self.move_away(peer, first, &mut unpin);
        }
        let has_moved = !unpin.is_empty();
        self.misses.insert(id, Miss { peer, hoses, surplus, waiters: Vec::new() });
        self.requests.push_back((peer, Request::Pin { miss: id, unpin, pin }));
        if has_moved && self.peer(peer).calm == 0 {
            self.ask_others(peer);
        }
    }

    fn move_away(&mut self, peer: NodeId, index: u32, unpin: &mut Vec<Run>) -> u64 {
        let run = self.unplug(peer, index);
        unpin.push(run);
        let peer = self.peer(peer);
        peer.calm = peer.calm.saturating_sub(run.count);
        peer.pressure = PRESSURE;
        run.count
    }

    /// What of `run` has no firehose, in regions.
    fn missing(&self, peer: NodeId, run: Run) -> Vec<Run> {
        let mut missing: Vec<Run> = Vec::new();
        let mut at = run.start;
        for (buckets, hose) in self.parts(peer, run) {
            match missing.last_mut().filter(|last| last.end() == at) {
                _ if hose.is_some() => {}
                Some(last) if last.count < self.rules.region => last.count += 1,
                _ => missing.push(Run::one(at)),
            }
            at += buckets;
        }
        missing
    }

    /// One answer that is waited for has come.
    fn hear(&mut self, id: u32, failed: Option<i32>) {
        let Pending { peer, run, state, .. } = *self.pending.get(id);
        let State::Asked(left, before) = state else { unreachable!("it waits for an answer") };
        if failed.is_some() && before.is_none() {
            self.drop_uses(peer, run);
        }
        let failed = before.or(failed);
        let over = State::Over(failed.map(Failure::Refused).map_or(Ok(()), Err));
        let state = if left == 1 { over } else { State::Asked(left - 1, failed) };
        self.pending.get_mut(id).state = state;
    }

    /// The answer to what asked for `hose` has come.
    fn settle(&mut self, peer: NodeId, hose: u32, is_pinned: bool) {
        let Hose { run, refs, asked } = self.arena.get_mut(hose);
        *asked = None;
        let (run, refs) = (*run, *refs);
        if !is_pinned {
            assert_eq!(refs, 0, "all who waited for it have failed");
            let peer = &mut self.peers[peer.0 as usize];
            run.buckets().for_each(|bucket| _ = peer.table.remove(&bucket));
            peer.used -= run.count;
            self.arena.remove(hose);
        } else if refs == 0 {
            self.rest(peer, hose);
        }
    }

    /// Ends what is over and nobody asks about.
    fn end_left(&mut self, id: u32) {
        let Pending { peer, run, state, is_left } = *self.pending.get(id);
        if let (State::Over(outcome), true) = (state, is_left) {
            self.pending.remove(id);
            if outcome.is_ok() {
                self.release(peer, run);
            }
        }
    }
}

#[cfg(test)]
impl Hoses {
    pub(crate) fn limit(&self, owner: NodeId) -> u64 {
        self.peers[owner.0 as usize].limit
    }

    /// Whether nothing is in use or on its way, and all that is counted adds up.
    pub(crate) fn is_still(&self) -> bool {
        let idle = self.arena.iter().map(|(_, hose)| hose.run.count).sum::<u64>();
        let of = |what: fn(&Peer) -> u64| self.peers.iter().map(what).sum::<u64>();
        let is_still = |peer: &Peer| peer.waiting.is_empty() && peer.used <= peer.limit;
        self.arena.iter().all(|(_, hose)| hose.refs == 0 && hose.asked.is_none())
            && [of(|peer| peer.used), of(|peer| peer.idle_buckets)] == [idle; 2]
            && self.peers.iter().all(is_still)
            && self.pending.iter().count() + self.misses.len() + self.requests.len() == 0
    }
}
