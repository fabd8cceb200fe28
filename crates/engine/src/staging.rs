//! Who gets staging, and when (paper, section 3.6; DESIGN.md, decision 8).
//!
//! **Hazard.** Transfers that hold one ring and wait for another deadlock; urgent ones that wait
//! for what idle ones hold take many times their solo time. **Guarantee.** A transfer gets all of
//! its rings at once or none, so that nobody holds and waits; those that wait are served by
//! priority, then age; whoever waits claims its pools against all behind it, so that it is not
//! starved; in each pool a reserve is kept for transfers more urgent than one that holds staging
//! there; and who holds staging is known to be waited for, so that it can be served as urgently as
//! the first that waits. **Structure.** An arena for each pool, tried in the global order of
//! memories, with the turns of those that wait for it; and what each of them needs.

use crate::arena::{Arena, Block, Fit};
use crate::config::PoolConfig;
use model::{MemoryId, Priority, RegionId, TransferId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The place in the queue: the most urgent first, then the oldest.
pub(crate) type Turn = (Reverse<Priority>, u64);

/// A transfer that holds staging, by its own turn.
pub(crate) type Holder = (Turn, TransferId);

/// One ring that a transfer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    /// The pool, by position.
    pub(crate) pool: usize,
    /// How much, and where.
    pub(crate) fit: Fit,
}

/// One ring that a transfer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The pool, by position.
    pub(crate) pool: usize,
    /// The part of its region.
    pub(crate) block: Block,
}

#[derive(Debug)]
struct Pool {
    config: PoolConfig,
    arena: Arena,
    /// How many rings each holder has here, the most urgent first.
    holders: BTreeMap<Holder, u32>,
    /// The turns of those that wait for a ring here.
    waiting: BTreeSet<Turn>,
    /// The first of them when somebody last asked.
    first: Option<Turn>,
    /// The most that was given out at once.
    peak_bytes: u64,
}

#[derive(Debug)]
struct Waiter {
    transfer: TransferId,
    needs: Vec<Need>,
}

/// The pools and those that wait for them. Pools stand in the global order of memories.
#[derive(Debug)]
pub(crate) struct Staging {
    pools: Vec<Pool>,
    queue: BTreeMap<Turn, Waiter>,
}

impl Staging {
    pub(crate) fn new(mut pools: Vec<PoolConfig>) -> Self {
        pools.sort_by_key(|pool| pool.memory);
        let mut staging =
            Staging { pools: Vec::with_capacity(pools.len()), queue: BTreeMap::new() };
        pools.into_iter().for_each(|pool| staging.add(pool));
        staging
    }

    /// Adds a pool, of a memory behind those of all others: these keep their positions.
    pub(crate) fn add(&mut self, config: PoolConfig) {
        let last = self.pools.last().map(|pool| pool.config.memory);
        assert!(last < Some(config.memory), "pools stand in the order of their memories");
        self.pools.push(Pool {
            config,
            arena: Arena::new(config.capacity_bytes),
            holders: BTreeMap::new(),
            waiting: BTreeSet::new(),
            first: None,
            peak_bytes: 0,
        });
    }

    /// The position of `memory`'s pool.
    pub(crate) fn pool_of(&self, memory: MemoryId) -> Option<usize> {
        self.pools.binary_search_by_key(&memory, |pool| pool.config.memory).ok()
    }

    /// The region of a pool.
    pub(crate) fn region(&self, pool: usize) -> RegionId {
        self.pools[pool].config.region
    }

    /// How much of a memory's staging is given out, and how much there is.
    pub(crate) fn usage(&self, memory: MemoryId) -> Option<(u64, u64)> {
        let pool = &self.pools[self.pool_of(memory)?];
        Some((pool.used_bytes(), pool.arena.capacity_bytes()))
    }

    /// The most of a memory's staging that was given out at once.
    pub(crate) fn peak(&self, memory: MemoryId) -> Option<u64> {
        Some(self.pools[self.pool_of(memory)?].peak_bytes)
    }

    /// Whether all of `needs` fit while nobody else holds anything; else the pool that is short.
    pub(crate) fn fits(&self, needs: &[Need]) -> Result<(), usize> {
        for (pool, state) in self.pools.iter().enumerate() {
            let mut empty = Arena::new(state.config.capacity_bytes);
            let mut here = needs.iter().filter(|need| need.pool == pool);
            if here.any(|need| empty.allocate(need.fit).is_none()) {
                return Err(pool);
            }
        }
        Ok(())
    }

    /// The memory of a pool.
    pub(crate) fn memory(&self, pool: usize) -> MemoryId {
        self.pools[pool].config.memory
    }

    /// Queues a transfer. [`Staging::admit`] says when it has what it needs.
    pub(crate) fn wait(&mut self, turn: Turn, transfer: TransferId, needs: Vec<Need>) {
        for need in &needs {
            self.pools[need.pool].waiting.insert(turn);
        }
        self.queue.insert(turn, Waiter { transfer, needs });
    }

    /// Takes a transfer out of the queue.
    pub(crate) fn withdraw(&mut self, turn: Turn) -> Option<TransferId> {
        let waiter = self.queue.remove(&turn)?;
        for need in &waiter.needs {
            self.pools[need.pool].waiting.remove(&turn);
        }
        Some(waiter.transfer)
    }

    /// The turn of the first that waits for a pool.
    pub(crate) fn first_turn(&self, pool: usize) -> Option<Turn> {
        self.pools[pool].waiting.first().copied()
    }

    /// The first that waits for a pool.
    pub(crate) fn first_waiter(&self, pool: usize) -> Option<TransferId> {
        Some(self.queue.get(&self.first_turn(pool)?)?.transfer)
    }

    /// A pool whose first waiter is another than when this last named it, and the turn of the more
    /// urgent of the two: it is nothing to holders that come before both.
    pub(crate) fn poll_change(&mut self) -> Option<(usize, Turn)> {
        let changed = |pool: &Pool| pool.first.as_ref() != pool.waiting.first();
        let pool = self.pools.iter().position(changed)?;
        let first = self.first_turn(pool);
        let before = std::mem::replace(&mut self.pools[pool].first, first);
        Some((pool, before.into_iter().chain(first).min()?))
    }

    /// Those that hold rings of a pool.
    pub(crate) fn holders(&self, pool: usize) -> Vec<TransferId> {
        self.pools[pool].holders.keys().map(|holder| holder.1).collect()
    }

    /// Those that hold rings of a pool, and come behind `turn`.
    pub(crate) fn holders_behind(&self, pool: usize, turn: Turn) -> Vec<TransferId> {
        let least = TransferId { index: 0, generation: 0 };
        self.pools[pool].holders.range((turn, least)..).map(|(holder, _)| holder.1).collect()
    }

    /// The next transfer whose turn it is and whose needs can be met, with its rings in the order
    /// of its needs.
    ///
    /// Only who is first in every pool that it needs may be it: whoever waits before it in one of
    /// them claims that pool.
    pub(crate) fn admit(&mut self) -> Option<(TransferId, Vec<Grant>)> {
        let firsts: BTreeSet<Turn> =
            self.pools.iter().filter_map(|pool| pool.waiting.first().copied()).collect();
        for turn in firsts {
            let waiter = &self.queue[&turn];
            let is_first = |need: &Need| self.pools[need.pool].waiting.first() == Some(&turn);
            if !waiter.needs.iter().all(is_first) {
                continue;
            }
            let holder = (turn, waiter.transfer);
            if let Some(grants) = grant(&mut self.pools, holder, &waiter.needs) {
                return Some((self.withdraw(turn)?, grants));
            }
        }
        None
    }

    /// Takes back rings that `holder` was granted. Nothing touches them any more.
    pub(crate) fn release(&mut self, holder: Holder, grants: &[Grant]) {
        release(&mut self.pools, holder, grants);
    }
}

fn grant(pools: &mut [Pool], holder: Holder, needs: &[Need]) -> Option<Vec<Grant>> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|&i| needs[i].pool);
    // Asked before anything is taken: a transfer's own first ring must not bar its second.
    let opens = |need: &Need| pools[need.pool].opens_reserve(holder.0.0.0);
    let opens: Vec<bool> = needs.iter().map(opens).collect();
    let mut grants = vec![None; needs.len()];
    for i in order {
        let Need { pool, fit } = needs[i];
        match pools[pool].allocate(holder, fit, opens[i]) {
            Some(block) => grants[i] = Some(Grant { pool, block }),
            None => {
                let got: Vec<Grant> = grants.into_iter().flatten().collect();
                release(pools, holder, &got);
                return None;
            }
        }
    }
    for need in needs {
        let pool = &mut pools[need.pool];
        pool.peak_bytes = pool.peak_bytes.max(pool.used_bytes());
    }
    Some(grants.into_iter().flatten().collect())
}

fn release(pools: &mut [Pool], holder: Holder, grants: &[Grant]) {
    for grant in grants {
        pools[grant.pool].release(holder, grant.block);
    }
}

impl Pool {
    fn used_bytes(&self) -> u64 {
        self.arena.capacity_bytes() - self.arena.free_bytes()
    }

    fn allocate(&mut self, holder: Holder, fit: Fit, opens_reserve: bool) -> Option<Block> {
        let left = self.arena.free_bytes().checked_sub(fit.bytes)?;
        if left < self.config.reserve_bytes && !opens_reserve {
            return None;
        }
        let block = self.arena.allocate(fit)?;
        *self.holders.entry(holder).or_default() += 1;
        Some(block)
    }

    /// The reserve is for transfers more urgent than one that holds something here, and for a
    /// lone one.
    fn opens_reserve(&self, priority: Priority) -> bool {
        self.holders.last_key_value().is_none_or(|(((Reverse(least), _), _), _)| *least < priority)
    }

    fn release(&mut self, holder: Holder, block: Block) {
        self.arena.release(block);
        let count = self.holders.get_mut(&holder).expect("who releases holds");
        *count -= 1;
        if *count == 0 {
            self.holders.remove(&holder);
        }
    }
}

#[cfg(test)]
mod tests;
