//! Several nodes and the messages between them, delivered in any order, against sets that know
//! everything.

use super::super::buckets::{Buckets, Budget, Work};
use super::super::hoses::{Acquired, Failure, Hoses, Request, Rules};
use super::super::run::Run;
use model::NodeId;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The buckets of each node's memory.
const END: u64 = 64;

/// A message on its way.
#[derive(Debug, Clone)]
enum Message {
    Ask(Request),
    Pinned { miss: u64, pin: Vec<Run>, outcome: Result<(), i32> },
    Given { owner: NodeId, given: (u64, Vec<Run>) },
    Moved { from: NodeId, buckets: u64 },
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) hoses: Hoses,
    pub(crate) buckets: Buckets,
    /// What is pinned in truth.
    pinned: BTreeSet<u64>,
    is_lost: bool,
}

/// A use that was asked for: by whom, of whose memory, and its number until it is there.
#[derive(Debug, Clone, Copy)]
struct Use {
    node: usize,
    owner: NodeId,
    run: Run,
    pending: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    budget: Budget,
    messages: Vec<(NodeId, NodeId, Message)>,
    uses: Vec<Use>,
    /// Uses of a node's own memory.
    held: Vec<(usize, Run)>,
    /// By node, the buckets of others that it has heard were pinned and has not given up.
    has: Vec<BTreeMap<(u32, u64), u64>>,
    /// Buckets that can't be pinned.
    refused: HashSet<u64>,
}

/// As many as others may hold of a node's memory, in equal shares.
fn limits(me: usize, nodes: usize, share: u64) -> impl Iterator<Item = u64> {
    (0..nodes).map(move |node| if node == me { 0 } else { share })
}

impl World {
    pub(crate) fn new(nodes: usize, rules: Rules, (kept, victims): (u64, u64), end: u64) -> World {
        let budget = Budget { lent: rules.share * (nodes as u64 - 1), kept, victims };
        let node = |me: usize| Node {
            hoses: Hoses::new(NodeId(me as u32), nodes as u32, rules),
            buckets: Buckets::new(budget, end, limits(me, nodes, rules.share)),
            pinned: BTreeSet::new(),
            is_lost: false,
        };
        World {
            nodes: (0..nodes).map(node).collect(),
            budget,
            messages: Vec::new(),
            uses: Vec::new(),
            held: Vec::new(),
            has: vec![BTreeMap::new(); nodes],
            refused: HashSet::new(),
        }
    }

    /// Does what a node's tables say, and checks that it may be done. Returns what could not be pinned.
    fn work(&mut self, node: usize, work: &Work) -> Vec<Run> {
        for bucket in work.unpin.iter().flat_map(|run| run.buckets()) {
            assert!(self.nodes[node].pinned.remove(&bucket), "{bucket} is not pinned");
            self.is_unused(node, bucket);
        }
        let mut failed = Vec::new();
        for &run in &work.pin {
            if run.buckets().any(|bucket| self.refused.contains(&bucket)) {
                failed.push(run);
                continue;
            }
            for bucket in run.buckets() {
                assert!(self.nodes[node].pinned.insert(bucket), "{bucket} is pinned already");
            }
        }
        let pinned = self.nodes[node].pinned.len() as u64;
        assert!(pinned <= self.budget.most(), "{pinned} of {:?}", self.budget);
        failed
    }

    /// That nobody uses `bucket` of `node`, nor thinks that it is pinned.
    fn is_unused(&self, node: usize, bucket: u64) {
        let is_there = |run: Run| run.buckets().contains(&bucket);
        assert!(!self.held.iter().any(|&(held, run)| held == node && is_there(run)), "{bucket}");
        for (i, has) in self.has.iter().enumerate() {
            let has = self.nodes[i].is_lost || !has.contains_key(&(node as u32, bucket));
            assert!(has, "node {i} thinks that {bucket} of {node} is pinned");
        }
    }

    fn give_up(&mut self, node: usize, owner: NodeId, runs: &[Run]) {
        for bucket in runs.iter().flat_map(|run| run.buckets()) {
            let times = self.has[node].get_mut(&(owner.0, bucket));
            *times.expect("it gives up what it has") -= 1;
            self.has[node].retain(|_, times| *times > 0);
        }
    }

    fn flush(&mut self, node: usize) {
        while let Some((to, request)) = self.nodes[node].hoses.poll_request() {
            match &request {
                Request::Pin { unpin, .. } => self.give_up(node, to, unpin),
                // What another gave is not in its own table any more.
                Request::Give { .. } | Request::Move { .. } => {}
            }
            self.messages.push((NodeId(node as u32), to, Message::Ask(request)));
        }
    }

    fn deliver(&mut self, which: usize) {
        let (from, to, message) = self.messages.swap_remove(which);
        let node = to.0 as usize;
        if self.nodes[node].is_lost {
            return;
        }
        let answer = match message {
            Message::Ask(request) => Some(self.answer(from, node, request)),
            Message::Pinned { miss, pin, outcome } => {
                if outcome.is_ok() && !self.nodes[from.0 as usize].is_lost {
                    for bucket in pin.iter().flat_map(|run| run.buckets()) {
                        *self.has[node].entry((from.0, bucket)).or_default() += 1;
                    }
                }
                self.nodes[node].hoses.handle_pinned(from, miss, outcome);
                None
            }
            Message::Given { owner, given } => {
                self.nodes[node].hoses.handle_given(from, owner, given);
                None
            }
            Message::Moved { from: giver, buckets } => {
                self.nodes[node].hoses.handle_moved(from, giver, buckets);
                None
            }
        };
        self.messages.extend(answer.map(|answer| (to, from, answer)));
        self.flush(node);
    }

    fn answer(&mut self, from: NodeId, node: usize, request: Request) -> Message {
        let buckets = &mut self.nodes[node].buckets;
        match request {
            Request::Pin { miss, unpin, pin } => {
                let work = match buckets.exchange(from, &unpin, &pin) {
                    Ok(work) => work,
                    Err(_) => {
                        assert!(self.nodes[from.0 as usize].is_lost, "{unpin:?} {pin:?}");
                        return Message::Pinned { miss, pin, outcome: Err(22) };
                    }
                };
                let failed = self.work(node, &work);
                if failed.is_empty() {
                    return Message::Pinned { miss, pin, outcome: Ok(()) };
                }
                let undo = self.nodes[node].buckets.undo(Some(from), &pin, &failed);
                self.work(node, &undo);
                Message::Pinned { miss, pin, outcome: Err(1) }
            }
            Request::Give { owner, buckets } => {
                let given = self.nodes[node].hoses.handle_give((from, owner), buckets);
                self.give_up(node, owner, &given.1);
                Message::Given { owner, given }
            }
            Request::Move { from: giver, buckets: count, unpin, is_given } => {
                let (got, work) = match buckets.transfer(from, (giver, count, is_given), &unpin) {
                    Ok(got) => got,
                    Err(_) => {
                        assert!(self.nodes[from.0 as usize].is_lost);
                        (0, Work::default())
                    }
                };
                self.work(node, &work);
                Message::Moved { from: giver, buckets: got }
            }
        }
    }

    /// Asks for a use; whether it is there at once is what the tables that know everything say.
    pub(crate) fn acquire(&mut self, node: usize, owner: NodeId, run: Run) -> bool {
        let has = &self.has[node];
        let is_hit = run.buckets().all(|bucket| has.contains_key(&(owner.0, bucket)));
        let acquired = self.nodes[node].hoses.acquire(owner, run);
        let pending = match acquired {
            Ok(Acquired::Now) => None,
            Ok(Acquired::Later(id)) => Some(id),
            Err(failure) => {
                assert_eq!(failure, Failure::Lost);
                assert!(self.nodes[owner.0 as usize].is_lost);
                return false;
            }
        };
        let is_now = pending.is_none();
        assert!(is_now == is_hit || is_hit && !self.nodes[node].hoses.rules().stays, "{run:?}");
        self.uses.push(Use { node, owner, run, pending });
        self.flush(node);
        pending.is_none()
    }

    /// Takes the outcomes of all that are over.
    fn settle(&mut self) {
        let mut i = 0;
        while i < self.uses.len() {
            let Use { owner, run, pending, node } = self.uses[i];
            let Some(id) = pending else {
                i += 1;
                continue;
            };
            match self.nodes[node].hoses.outcome(id) {
                None => i += 1,
                Some(Ok(())) => self.uses[i].pending = None,
                Some(Err(failure)) => {
                    let is_lost = self.nodes[owner.0 as usize].is_lost;
                    // One bucket may fail with others of its message.
                    let is_refused = failure == Failure::Refused(1) && !self.refused.is_empty();
                    assert!(is_lost || is_refused, "{failure:?} of {run:?}");
                    self.uses.swap_remove(i);
                }
            }
        }
    }

    /// What is in use is pinned.
    fn check(&self) {
        for &Use { node, owner, run, .. } in self.uses.iter().filter(|u| u.pending.is_none()) {
            if !self.nodes[node].is_lost && !self.nodes[owner.0 as usize].is_lost {
                let pinned = &self.nodes[owner.0 as usize].pinned;
                assert!(run.buckets().all(|b| pinned.contains(&b)), "{run:?} of {owner:?}");
            }
        }
        for (node, run) in &self.held {
            assert!(run.buckets().all(|b| self.nodes[*node].pinned.contains(&b)));
        }
        for node in self.nodes.iter().filter(|node| !node.is_lost) {
            assert_eq!(node.buckets.pinned(), node.pinned.len() as u64);
            assert!(node.buckets.done().peak <= self.budget.most());
        }
    }

    /// Ends a use, or leaves one that is not there yet.
    fn end(&mut self, which: usize) {
        let Use { node, owner, run, pending } = self.uses.swap_remove(which);
        match pending {
            None => _ = self.nodes[node].hoses.release(owner, run),
            Some(id) => self.nodes[node].hoses.leave(id),
        }
        self.flush(node);
    }

    fn hold(&mut self, node: usize, run: Run) {
        let Some(work) = self.nodes[node].buckets.hold(run) else { return };
        let failed = self.work(node, &work);
        if failed.is_empty() {
            self.held.push((node, run));
        } else {
            let undo = self.nodes[node].buckets.undo(None, &[run], &failed);
            self.work(node, &undo);
        }
    }

    fn let_go(&mut self, which: usize) {
        let (node, run) = self.held.swap_remove(which);
        let work = self.nodes[node].buckets.let_go(run);
        self.work(node, &work);
    }

    fn lose(&mut self, lost: usize) {
        self.nodes[lost].is_lost = true;
        self.uses.retain(|u| u.node != lost);
        self.held.retain(|&(node, _)| node != lost);
        let id = NodeId(lost as u32);
        for node in (0..self.nodes.len()).filter(|&node| node != lost) {
            if self.nodes[node].is_lost {
                continue;
            }
            self.has[node].retain(|(owner, _), _| *owner != id.0);
            self.nodes[node].hoses.handle_lost(id);
            let work = self.nodes[node].buckets.lose(id);
            self.work(node, &work);
            self.flush(node);
        }
    }

    /// Delivers all there is, and releases all that is used, until nothing is left.
    fn drain(&mut self, seed: usize) {
        let mut steps = 0;
        while !self.messages.is_empty() || !self.uses.is_empty() {
            steps += 1;
            assert!(steps < 100_000, "{:?} end never", self.uses);
            if !self.messages.is_empty() {
                self.deliver(seed.wrapping_mul(steps) % self.messages.len());
            } else {
                let over = self.uses.iter().position(|u| u.pending.is_none());
                self.end(over.expect("one of them is there when all was said"));
            }
            self.settle();
            self.check();
        }
        while !self.held.is_empty() {
            self.let_go(0);
        }
    }

    /// Delivers all that is on its way, in order.
    pub(crate) fn deliver_all(&mut self) {
        while !self.messages.is_empty() {
            self.messages.rotate_left(1);
            self.deliver(self.messages.len() - 1);
        }
        self.settle();
    }

    /// Uses buckets once, as who does nothing else meanwhile.
    pub(crate) fn touch(&mut self, node: usize, owner: NodeId, run: Run) {
        self.acquire(node, owner, run);
        self.deliver_all();
        assert_eq!(self.uses.len(), 1);
        self.check();
        self.end(0);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Acquire(usize, usize, u64, u64),
    End(usize),
    Deliver(usize),
    Hold(usize, u64, u64),
    LetGo(usize),
    Lose(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let any = any::<usize>;
    prop_oneof![
        8 => (any(), any(), 0..END, 1_u64..6).prop_map(|(n, o, s, c)| Step::Acquire(n, o, s, c)),
        4 => any().prop_map(Step::End),
        12 => any().prop_map(Step::Deliver),
        1 => (any(), 0..END, 1_u64..4).prop_map(|(n, s, c)| Step::Hold(n, s, c)),
        1 => any().prop_map(Step::LetGo),
    ]
}

/// Steps, among them now and then that a node is lost.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lose = prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<usize>()));
    (prop::collection::vec(step(), 1..400), lose).prop_map(|(mut steps, lose)| {
        if let Some((at, node)) = lose {
            steps.insert(at.index(steps.len()), Step::Lose(node));
        }
        steps
    })
}

fn run_steps(world: &mut World, steps: Vec<Step>) {
    let nodes = world.nodes.len();
    for step in steps {
        match step {
            Step::Acquire(node, owner, start, count) => {
                let (node, owner) = (node % nodes, owner % nodes);
                if node == owner || world.nodes[node].is_lost {
                    continue;
                }
                let count = count.min(world.nodes[node].hoses.rules().most()).min(END - start);
                world.acquire(node, NodeId(owner as u32), Run { start, count });
            }
            Step::End(which) if !world.uses.is_empty() => world.end(which % world.uses.len()),
            Step::Deliver(which) if !world.messages.is_empty() => {
                world.deliver(which % world.messages.len());
            }
            Step::Hold(node, start, count) if !world.nodes[node % nodes].is_lost => {
                world.hold(node % nodes, Run { start, count: count.min(END - start) });
            }
            Step::LetGo(which) if !world.held.is_empty() => {
                world.let_go(which % world.held.len());
            }
            Step::Lose(node) => world.lose(node % nodes),
            _ => {}
        }
        world.settle();
        world.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    /// Whatever comes in whatever order: what is in use is pinned, what is pinned stays within its
    /// budget, hits are where they are to be, and every acquire ends.
    #[test]
    fn nothing_in_use_is_unpinned_and_every_acquire_ends(
        nodes in 2_usize..5,
        rules in (1_u64..12, 1_u64..12, 1_u64..5, 2_usize..12, any::<bool>()),
        (kept, victims) in (0_u64..8, prop_oneof![Just(u64::MAX), 0_u64..6]),
        refused in prop::collection::hash_set(0..END, 0..12),
        steps in steps(),
        seed in any::<usize>(),
    ) {
        let (share, floor, region, runs, stays) = rules;
        let floor = floor.min(share);
        let mut world = World::new(nodes, Rules { share, floor, region, runs, stays }, (kept, victims), END);
        world.refused = refused;
        run_steps(&mut world, steps);
        world.drain(seed);
        for node in world.nodes.iter().filter(|node| !node.is_lost) {
            assert!(node.hoses.is_still(), "{:?}", node.hoses);
        }
    }
}

#[test]
fn what_an_owner_may_not_believe_changes_nothing() {
    let budget = Budget { lent: 8, kept: 1, victims: 9 };
    let mut buckets = Buckets::new(budget, END, limits(0, 3, 4));
    let run = |start, count| Run { start, count };
    let work = buckets.exchange(NodeId(1), &[], &[run(0, 3)]).unwrap();
    assert_eq!(work, Work { unpin: vec![], pin: vec![run(0, 3)] });
    let nonsense = [
        (1, vec![], vec![run(10, 2)]),
        (1, vec![], vec![run(END, 1)]),
        (1, vec![], vec![run(5, 0)]),
        (1, vec![], vec![run(1, u64::MAX)]),
        (1, vec![run(3, 1)], vec![]),
        (1, vec![run(0, 1), run(0, 1)], vec![]),
        (2, vec![run(0, 1)], vec![]),
        (0, vec![], vec![run(5, 1)]),
        (3, vec![], vec![run(5, 1)]),
    ];
    for (peer, unpin, pin) in nonsense {
        let told = buckets.exchange(NodeId(peer), &unpin, &pin);
        assert!(told.is_err(), "{peer}: {unpin:?} {pin:?}");
    }
    for (thief, from, count, unpin) in [
        (2, 2, 1, vec![]),
        (2, 1, 2, vec![]),
        (2, 1, 5, vec![run(0, 3)]),
        (2, 1, 1, vec![run(3, 1)]),
        (2, 3, 1, vec![]),
        (3, 1, 1, vec![]),
    ] {
        let told = buckets.transfer(NodeId(thief), (NodeId(from), count, true), &unpin);
        assert!(told.is_err(), "{thief} of {from}: {count} {unpin:?}");
    }
    let (got, _) = buckets.transfer(NodeId(2), (NodeId(1), 2, true), &[run(1, 1)]).unwrap();
    assert_eq!((got, buckets.pinned()), (2, 3));
    assert!(buckets.exchange(NodeId(1), &[], &[run(1, 1)]).is_err());
    assert!(buckets.exchange(NodeId(2), &[], &[run(1, 6)]).is_ok());
}
