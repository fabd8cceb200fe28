use super::*;
use model::NodeId;
use proptest::prelude::*;

const CAPACITY_BYTES: u64 = 1000;

fn staging(pools: u16, reserve_bytes: u64) -> Staging {
    let config = |index| PoolConfig {
        memory: MemoryId { node: NodeId(0), index },
        region: RegionId { index: index.into(), generation: 0 },
        capacity_bytes: CAPACITY_BYTES,
        reserve_bytes,
    };
    Staging::new((0..pools).rev().map(config).collect())
}

fn need(pool: usize, bytes: u64) -> Need {
    Need { pool, fit: Fit { bytes, align_bytes: 1, phase: 0 } }
}

fn turn(priority: i32, arrival: u64) -> Turn {
    (Reverse(Priority(priority)), arrival)
}

fn id(index: u32) -> TransferId {
    TransferId { index, generation: 0 }
}

fn admitted(staging: &mut Staging) -> Vec<u32> {
    std::iter::from_fn(|| staging.admit()).map(|(id, _)| id.index).collect()
}

#[test]
fn the_most_urgent_is_admitted_first_and_nobody_behind_it_overtakes() {
    let mut staging = staging(1, 0);
    staging.wait(turn(0, 0), id(0), vec![need(0, 900)]);
    let (_, held) = staging.admit().unwrap();
    staging.wait(turn(0, 1), id(1), vec![need(0, 50)]);
    staging.wait(turn(7, 2), id(2), vec![need(0, 500)]);
    assert_eq!(admitted(&mut staging), []);
    staging.release((turn(0, 0), id(0)), &held);
    assert_eq!(admitted(&mut staging), [2, 1]);
}

#[test]
fn the_peak_is_what_was_given_out_at_once() {
    let mut staging = staging(2, 0);
    let peaks = |staging: &Staging| {
        [0, 1].map(|index| staging.peak(MemoryId { node: NodeId(0), index }).unwrap())
    };
    staging.wait(turn(0, 0), id(0), vec![need(1, 600)]);
    let (_, held) = staging.admit().unwrap();
    // Half of what it needs is there, and not given out.
    staging.wait(turn(0, 1), id(1), vec![need(0, 700), need(1, 700)]);
    assert_eq!(staging.admit(), None);
    assert_eq!(peaks(&staging), [0, 600]);
    staging.release((turn(0, 0), id(0)), &held);
    assert_eq!(admitted(&mut staging), [1]);
    assert_eq!(peaks(&staging), [700, 700]);
}

#[test]
fn a_pool_that_comes_later_leaves_what_was_given_out_of_others() {
    let mut staging = staging(2, 0);
    staging.wait(turn(0, 0), id(0), vec![need(1, 900)]);
    let (_, held) = staging.admit().unwrap();
    let PoolConfig { memory, .. } = staging.pools[1].config;
    let memory = MemoryId { index: 7, ..memory };
    staging.add(PoolConfig { memory, ..staging.pools[1].config });
    assert_eq!((staging.pool_of(memory), staging.usage(memory)), (Some(2), Some((0, 1000))));
    staging.wait(turn(0, 1), id(1), vec![need(1, 900)]);
    staging.wait(turn(0, 2), id(2), vec![need(2, 900)]);
    assert_eq!(admitted(&mut staging), [2]);
    staging.release((turn(0, 0), id(0)), &held);
    assert_eq!(admitted(&mut staging), [1]);
}

#[test]
fn other_pools_are_not_held_up() {
    let mut staging = staging(2, 0);
    staging.wait(turn(9, 0), id(0), vec![need(0, 900)]);
    staging.admit().unwrap();
    staging.wait(turn(5, 1), id(1), vec![need(0, 900)]);
    staging.wait(turn(0, 2), id(2), vec![need(1, 900)]);
    assert_eq!(admitted(&mut staging), [2]);
}

#[test]
fn the_reserve_waits_for_the_more_urgent() {
    let mut staging = staging(1, 400);
    for i in 0..4 {
        staging.wait(turn(0, i), id(i as u32), vec![need(0, 300)]);
    }
    assert_eq!(admitted(&mut staging), [0, 1]);
    staging.wait(turn(1, 9), id(9), vec![need(0, 300)]);
    assert_eq!(admitted(&mut staging), [9]);
}

#[test]
fn a_lone_transfer_may_take_everything() {
    let mut staging = staging(1, 400);
    staging.wait(turn(0, 0), id(0), vec![need(0, 600), need(0, 400)]);
    assert_eq!(admitted(&mut staging), [0]);
}

#[test]
fn all_rings_or_none() {
    let mut staging = staging(2, 0);
    staging.wait(turn(0, 0), id(0), vec![need(1, 600)]);
    let (_, held) = staging.admit().unwrap();
    staging.wait(turn(0, 1), id(1), vec![need(0, 600), need(1, 600)]);
    assert_eq!(admitted(&mut staging), []);
    assert_eq!(staging.usage(staging.memory(0)), Some((0, CAPACITY_BYTES)));
    staging.release((turn(0, 0), id(0)), &held);
    let (_, grants) = staging.admit().unwrap();
    assert_eq!(grants.iter().map(|g| g.pool).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn what_never_fits_is_known_before() {
    let staging = staging(2, 0);
    assert_eq!(staging.fits(&[need(0, 1000), need(1, 1000)]), Ok(()));
    assert_eq!(staging.fits(&[need(1, 600), need(1, 600)]), Err(1));
}

#[test]
fn who_waits_first_is_told_of_each_pool_once() {
    let mut staging = staging(2, 0);
    staging.wait(turn(0, 0), id(0), vec![need(0, 900), need(1, 100)]);
    let (_, held) = staging.admit().unwrap();
    let first = turn(9, 0);
    assert_eq!((staging.poll_change(), staging.holders_behind(0, first)), (None, vec![id(0)]));
    staging.wait(turn(3, 1), id(1), vec![need(0, 900)]);
    staging.wait(turn(5, 2), id(2), vec![need(0, 900)]);
    assert_eq!((staging.poll_change(), staging.poll_change()), (Some((0, turn(5, 2))), None));
    assert_eq!((staging.first_turn(0), staging.first_turn(1)), (Some(turn(5, 2)), None));
    staging.withdraw(turn(5, 2));
    assert_eq!(staging.poll_change(), Some((0, turn(5, 2))));
    assert_eq!(staging.first_turn(0), Some(turn(3, 1)));
    staging.release((turn(0, 0), id(0)), &held);
    assert_eq!(admitted(&mut staging), [1]);
    assert_eq!((staging.poll_change(), staging.first_turn(0)), (Some((0, turn(3, 1))), None));
    let holders = [0, 1].map(|pool| staging.holders_behind(pool, first));
    assert_eq!(holders, [vec![id(1)], vec![]]);
}

#[test]
fn who_comes_before_those_that_wait_is_not_concerned() {
    let mut staging = staging(1, 0);
    for (i, priority) in [7, 0, 7].into_iter().enumerate() {
        staging.wait(turn(priority, i as u64), id(i as u32), vec![need(0, 300)]);
    }
    assert_eq!(admitted(&mut staging), [0, 2, 1]);
    staging.wait(turn(5, 3), id(3), vec![need(0, 300)]);
    let (pool, behind) = staging.poll_change().unwrap();
    assert_eq!(staging.holders_behind(pool, behind), [id(1)]);
}

proptest! {
    /// Whatever is asked for in whatever order, everybody is served in the end, and everything
    /// comes back.
    #[test]
    fn nobody_starves(
        asks in prop::collection::vec(
            (prop::collection::vec((0..3usize, 1..400u64), 1..3), -2..3i32), 1..40
        ),
        releases in prop::collection::vec(any::<prop::sample::Index>(), 40)
    ) {
        let mut staging = staging(3, 250);
        for (i, (needs, priority)) in asks.iter().enumerate() {
            let needs = needs.iter().map(|&(pool, bytes)| need(pool, bytes)).collect();
            staging.wait(turn(*priority, i as u64), id(i as u32), needs);
        }
        let (mut held, mut served) = (Vec::new(), 0);
        for pick in releases {
            while let Some(grant) = staging.admit() {
                held.push(grant);
                served += 1;
            }
            if held.is_empty() {
                break;
            }
            let (id, grants) = held.swap_remove(pick.index(held.len()));
            let turn = turn(asks[id.index as usize].1, id.index.into());
            staging.release((turn, id), &grants);
        }
        prop_assert_eq!((served, held.len()), (asks.len(), 0));
        for pool in 0..3 {
            prop_assert_eq!(staging.usage(staging.memory(pool)), Some((0, CAPACITY_BYTES)));
            prop_assert!(staging.pools[pool].holders.is_empty());
        }
    }
}
