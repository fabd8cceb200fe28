//! A node's own memory: which of its buckets are pinned, and who needs them.
//!
//! **Guarantee.** No bucket is unpinned while anybody needs it, and no more than [`Budget::most`] are
//! pinned, ever: others may need no more than what is lent to them, this node no more than what it has
//! kept, so that there is always a victim for what is needed next. **Structure.** Each call returns the
//! [`Work`] that makes the memory what the tables say: all of it is done, unpinning first, before the
//! next call.

use super::arena::{Arena, Chain};
use super::run::{self, Run};
use foldhash::fast::RandomState;
use model::NodeId;
use std::collections::HashMap;

/// How many buckets may be pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Those that others' firehoses may hold, in all: M.
    pub(crate) lent: u64,
    /// What this node may hold beside them: MAXVICTIM.
    pub(crate) kept: u64,
    /// How many that nobody needs stay pinned, where there is room.
    pub(crate) victims: u64,
}

impl Budget {
    /// How many may be pinned.
    pub(crate) fn most(self) -> u64 {
        self.lent + self.kept
    }
}

/// What is to be unpinned, and then pinned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) unpin: Vec<Run>,
    pub(crate) pin: Vec<Run>,
}

/// A peer asked for what it may not: beyond the memory, beyond its share, or what it does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nonsense;

/// What was done so far, in buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// This node's own that were pinned already.
    pub(crate) local_hits: u64,
    /// And were not.
    pub(crate) local_misses: u64,
    /// Asked for by others while they were victims.
    pub(crate) victim_hits: u64,
    pub(crate) pins: u64,
    pub(crate) unpins: u64,
    /// The most that were pinned at once.
    pub(crate) peak: u64,
}

#[derive(Debug)]
struct Bucket {
    number: u64,
    /// How many need it: firehoses, and uses of this node.
    refs: u64,
    /// How many of these are this node's.
    local: u64,
}

/// What another node holds.
#[derive(Debug, Default)]
struct Holder {
    limit: u64,
    /// The sum of `buckets`.
    holds: u64,
    /// How often it holds each: it may ask for one anew before it is heard that it gave it up.
    buckets: HashMap<u64, u64, RandomState>,
    is_lost: bool,
}

/// The pinned buckets of a node.
#[derive(Debug)]
pub(crate) struct Buckets {
    budget: Budget,
    /// How many the memory has.
    end: u64,
    table: HashMap<u64, u32, RandomState>,
    arena: Arena<Bucket>,
    /// Those that nobody needs, the one first that nobody has needed for longest.
    victims: Chain,
    victim_count: u64,
    /// How many this node needs.
    local: u64,
    holders: Vec<Holder>,
    done: Done,
}

impl Buckets {
    /// None of `end` is pinned. Each node may hold as many as `limits` say, in all no more than are
    /// lent.
    pub(crate) fn new(budget: Budget, end: u64, limits: impl Iterator<Item = u64>) -> Buckets {
        let holder = |limit| Holder { limit, ..Holder::default() };
        Buckets {
            budget,
            end,
            table: HashMap::default(),
            arena: Arena::default(),
            victims: Chain::default(),
            victim_count: 0,
            local: 0,
            holders: limits.map(holder).collect(),
            done: Done::default(),
        }
    }

    pub(crate) fn done(&self) -> Done {
        self.done
    }

    /// How many are pinned.
    pub(crate) fn pinned(&self) -> u64 {
        self.table.len() as u64
    }

    /// A peer gives `unpin` up and needs `pin`.
    ///
    /// # Errors
    /// [`Nonsense`], and nothing has changed.
    pub(crate) fn exchange(
        &mut self,
        peer: NodeId,
        unpin: &[Run],
        pin: &[Run],
    ) -> Result<Work, Nonsense> {
        let holder = self.holders.get_mut(peer.0 as usize).ok_or(Nonsense)?;
        let pins = run::sum(pin, self.end).ok_or(Nonsense)?;
        let unpins = run::sum(unpin, self.end).ok_or(Nonsense)?;
        if holder.is_lost || holder.holds.checked_sub(unpins).ok_or(Nonsense)? + pins > holder.limit
        {
            return Err(Nonsense);
        }
        holder.give_up(unpin)?;
        holder.take(pin);
        each(unpin, |bucket| self.drop_one(bucket, false));
        let mut work = Work::default();
        each(pin, |bucket| {
            let victims = self.victim_count;
            if self.need(bucket, false) {
                run::append(&mut work.pin, bucket);
            }
            self.done.victim_hits += victims - self.victim_count;
        });
        self.evict(&mut work);
        Ok(work)
    }

    /// Whether this node may need `run` itself, beside what it needs already.
    pub(crate) fn has_room(&self, run: Run) -> bool {
        let is_new = |bucket: &u64| self.bucket(*bucket).is_none_or(|bucket| bucket.local == 0);
        self.local + run.buckets().filter(is_new).count() as u64 <= self.budget.kept
    }

    /// This node needs `run` itself; `None` while it needs too many others.
    pub(crate) fn hold(&mut self, run: Run) -> Option<Work> {
        if !self.has_room(run) {
            return None;
        }
        let mut work = Work::default();
        for bucket in run.buckets() {
            if self.need(bucket, true) {
                run::append(&mut work.pin, bucket);
                self.done.local_misses += 1;
            } else {
                self.done.local_hits += 1;
            }
        }
        self.evict(&mut work);
        Some(work)
    }

    /// This node does not need `run` any more.
    pub(crate) fn let_go(&mut self, run: Run) -> Work {
        run.buckets().for_each(|bucket| self.drop_one(bucket, true));
        self.rest()
    }

    /// What the last [`Buckets::exchange`] with `peer`, or [`Buckets::hold`] where it is `None`, asked
    /// for is not needed, since `failed` of what it had to pin could not be.
    pub(crate) fn undo(&mut self, peer: Option<NodeId>, pin: &[Run], failed: &[Run]) -> Work {
        if let Some(peer) = peer {
            let gave_up = self.holders[peer.0 as usize].give_up(pin);
            assert!(gave_up.is_ok(), "it took them just now");
        }
        each(failed, |bucket| {
            self.forget(bucket);
            self.done.pins -= 1;
        });
        each(pin, |bucket| {
            if self.table.contains_key(&bucket) {
                self.drop_one(bucket, peer.is_none());
            }
        });
        self.rest()
    }

    /// `thief` was given so many of the buckets that `from` may hold, which held some of them still, or
    /// wants them since that is lost; returns how many it got.
    ///
    /// # Errors
    /// [`Nonsense`], and nothing has changed.
    pub(crate) fn transfer(
        &mut self,
        thief: NodeId,
        (from, buckets, is_given): (NodeId, u64, bool),
        unpin: &[Run],
    ) -> Result<(u64, Work), Nonsense> {
        let unpins = run::sum(unpin, self.end).ok_or(Nonsense)?;
        let is_lost = |node: NodeId| self.holders.get(node.0 as usize).map(|h| h.is_lost);
        if thief == from || is_lost(thief) != Some(false) {
            return Err(Nonsense);
        }
        let giver = self.holders.get_mut(from.0 as usize).ok_or(Nonsense)?;
        let mut got = buckets;
        if giver.is_lost {
            // What it held was given up for it.
            got = got.min(giver.limit);
        } else if !is_given {
            // Not as far as this node knows.
            got = 0;
        } else {
            let left = giver.limit.checked_sub(buckets).ok_or(Nonsense)?;
            if giver.holds.checked_sub(unpins).is_none_or(|holds| holds > left) {
                return Err(Nonsense);
            }
            giver.give_up(unpin)?;
            each(unpin, |bucket| self.drop_one(bucket, false));
        }
        self.holders[from.0 as usize].limit -= got;
        self.holders[thief.0 as usize].limit += got;
        Ok((got, self.rest()))
    }

    /// `peer` needs nothing any more.
    pub(crate) fn lose(&mut self, peer: NodeId) -> Work {
        let holder = &mut self.holders[peer.0 as usize];
        holder.is_lost = true;
        holder.holds = 0;
        for (bucket, times) in std::mem::take(&mut holder.buckets) {
            (0..times).for_each(|_| self.drop_one(bucket, false));
        }
        self.rest()
    }

    fn bucket(&self, number: u64) -> Option<&Bucket> {
        self.table.get(&number).map(|&index| self.arena.get(index))
    }

    /// One more needs it; returns whether it is to be pinned.
    fn need(&mut self, number: u64, is_local: bool) -> bool {
        let known = self.table.get(&number).copied();
        let index = known.unwrap_or_else(|| {
            let index = self.arena.insert(Bucket { number, refs: 0, local: 0 });
            self.table.insert(number, index);
            index
        });
        let bucket = self.arena.get_mut(index);
        bucket.refs += 1;
        let (is_first, is_new) = (bucket.refs == 1, is_local && bucket.local == 0);
        bucket.local += u64::from(is_local);
        self.local += u64::from(is_new);
        if known.is_some() && is_first {
            self.victims.remove(&mut self.arena, index);
            self.victim_count -= 1;
        }
        known.is_none()
    }

    /// One fewer needs it.
    fn drop_one(&mut self, number: u64, is_local: bool) {
        let index = self.table[&number];
        let bucket = self.arena.get_mut(index);
        bucket.refs -= 1;
        bucket.local -= u64::from(is_local);
        self.local -= u64::from(is_local && bucket.local == 0);
        if bucket.refs == 0 {
            self.victims.push(&mut self.arena, index);
            self.victim_count += 1;
        }
    }

    /// It could not be pinned, so that only those who asked for it just now need it.
    fn forget(&mut self, number: u64) {
        let index = self.table.remove(&number).expect("it is in the table");
        let bucket = self.arena.remove(index);
        self.local -= u64::from(bucket.local > 0);
    }

    /// What is to be done where nothing new is needed.
    fn rest(&mut self) -> Work {
        let mut work = Work::default();
        self.evict(&mut work);
        work
    }

    /// Unpins as many victims as are too many.
    fn evict(&mut self, work: &mut Work) {
        while self.pinned() > self.budget.most() || self.victim_count > self.budget.victims {
            let first = self.victims.first().expect("no more are needed than may be pinned");
            self.victims.remove(&mut self.arena, first);
            self.victim_count -= 1;
            let bucket = self.arena.remove(first).number;
            self.table.remove(&bucket);
            run::append(&mut work.unpin, bucket);
            self.done.unpins += 1;
        }
        self.done.pins += work.pin.iter().map(|run| run.count).sum::<u64>();
        self.done.peak = self.done.peak.max(self.pinned());
    }
}

impl Holder {
    /// Holds these no more, or has changed nothing.
    fn give_up(&mut self, runs: &[Run]) -> Result<(), Nonsense> {
        let mut given = 0;
        for bucket in runs.iter().flat_map(|run| run.buckets()) {
            let Some(times) = self.buckets.get_mut(&bucket) else {
                let back = runs.iter().flat_map(|run| run.buckets()).take(given);
                back.for_each(|bucket| *self.buckets.entry(bucket).or_default() += 1);
                return Err(Nonsense);
            };
            *times -= 1;
            if *times == 0 {
                self.buckets.remove(&bucket);
            }
            given += 1;
        }
        self.holds -= given as u64;
        Ok(())
    }

    fn take(&mut self, runs: &[Run]) {
        for bucket in runs.iter().flat_map(|run| run.buckets()) {
            *self.buckets.entry(bucket).or_default() += 1;
            self.holds += 1;
        }
    }
}

fn each(runs: &[Run], what: impl FnMut(u64)) {
    runs.iter().flat_map(|run| run.buckets()).for_each(what);
}
