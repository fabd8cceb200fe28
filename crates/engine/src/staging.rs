//! Who gets staging, and when (paper, section 3.6; DESIGN.md, decision 8).
//!
//! **Hazard.** Transfers that hold one ring and wait for another deadlock; urgent ones that wait
//! for what idle ones hold take many times their solo time. **Guarantee.** A transfer gets all of
//! its rings at once or none, so that nobody holds and waits; those that wait are served by
//! priority, then age; whoever waits claims its pools against all behind it, so that it is not
//! starved; and in each pool a reserve is kept for transfers more urgent than one that holds
//! staging there. **Structure.** An arena for each pool, tried in the global order of memories,
//! and one queue.

use crate::arena::{Arena, Block, Fit};
use crate::config::PoolConfig;
use model::{MemoryId, Priority, RegionId, TransferId};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The place in the queue: the most urgent first, then the oldest.
pub(crate) type Turn = (Reverse<Priority>, u64);

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
    holders: BTreeMap<Priority, u32>,
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
        let pool = |config: PoolConfig| Pool {
            config,
            arena: Arena::new(config.capacity_bytes),
            holders: BTreeMap::new(),
        };
        Staging { pools: pools.into_iter().map(pool).collect(), queue: BTreeMap::new() }
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
        let arena = &self.pools[self.pool_of(memory)?].arena;
        Some((arena.capacity_bytes() - arena.free_bytes(), arena.capacity_bytes()))
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
        self.queue.insert(turn, Waiter { transfer, needs });
    }

    /// Takes a transfer out of the queue.
    pub(crate) fn withdraw(&mut self, turn: Turn) {
        self.queue.remove(&turn);
    }

    /// The next transfer whose turn it is and whose needs can be met, with its rings in the order
    /// of its needs.
    pub(crate) fn admit(&mut self) -> Option<(TransferId, Vec<Grant>)> {
        let mut claimed = vec![false; self.pools.len()];
        let mut found = None;
        for (&turn, waiter) in &self.queue {
            if claimed.iter().all(|c| *c) {
                break;
            }
            let free = waiter.needs.iter().all(|need| !claimed[need.pool]);
            let grants = free.then(|| grant(&mut self.pools, turn.0.0, &waiter.needs)).flatten();
            if let Some(grants) = grants {
                found = Some((turn, grants));
                break;
            }
            waiter.needs.iter().for_each(|need| claimed[need.pool] = true);
        }
        let (turn, grants) = found?;
        Some((self.queue.remove(&turn)?.transfer, grants))
    }

    /// Takes back rings that a transfer of `priority` was granted. Nothing touches them any more.
    pub(crate) fn release(&mut self, priority: Priority, grants: &[Grant]) {
        release(&mut self.pools, priority, grants);
    }
}

fn grant(pools: &mut [Pool], priority: Priority, needs: &[Need]) -> Option<Vec<Grant>> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|&i| needs[i].pool);
    // Asked before anything is taken: a transfer's own first ring must not bar its second.
    let opens = |need: &Need| pools[need.pool].opens_reserve(priority);
    let opens: Vec<bool> = needs.iter().map(opens).collect();
    let mut grants = vec![None; needs.len()];
    for i in order {
        let Need { pool, fit } = needs[i];
        match pools[pool].allocate(priority, fit, opens[i]) {
            Some(block) => grants[i] = Some(Grant { pool, block }),
            None => {
                let got: Vec<Grant> = grants.into_iter().flatten().collect();
                release(pools, priority, &got);
                return None;
            }
        }
    }
    Some(grants.into_iter().flatten().collect())
}

fn release(pools: &mut [Pool], priority: Priority, grants: &[Grant]) {
    for grant in grants {
        pools[grant.pool].release(priority, grant.block);
    }
}

impl Pool {
    fn allocate(&mut self, priority: Priority, fit: Fit, opens_reserve: bool) -> Option<Block> {
        let left = self.arena.free_bytes().checked_sub(fit.bytes)?;
        if left < self.config.reserve_bytes && !opens_reserve {
            return None;
        }
        let block = self.arena.allocate(fit)?;
        *self.holders.entry(priority).or_default() += 1;
        Some(block)
    }

    /// The reserve is for transfers more urgent than one that holds something here, and for a
    /// lone one.
    fn opens_reserve(&self, priority: Priority) -> bool {
        self.holders.first_key_value().is_none_or(|(least, _)| *least < priority)
    }

    fn release(&mut self, priority: Priority, block: Block) {
        self.arena.release(block);
        let count = self.holders.get_mut(&priority).expect("who releases holds");
        *count -= 1;
        if *count == 0 {
            self.holders.remove(&priority);
        }
    }
}

#[cfg(test)]
mod tests;
