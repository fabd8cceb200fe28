//! What no case leads to: something that never ends, and something that is left.

use super::*;
use crate::simulate::workload::Workload;
use std::time::Duration;

fn sapling() -> Topology {
    cluster::ready_made("sapling").unwrap()
}

/// A copy from one node to another.
fn case(topology: &Topology) -> Case {
    let text = "[[copy]]\nfrom = \"n0.fbm\"\nto = \"n1.fbm\"\ndims = \"x=65536\"\nfields = [4]\n\
                from_layout = \"x\"\nto_layout = \"x\"\n";
    Workload::parse(text, topology).unwrap().cases.remove(0)
}

#[test]
fn a_run_in_which_nothing_more_happens_ends() {
    let (topology, setup) = (sapling(), Setup::default());
    let case = case(&topology);
    let mut world = World::new(&topology, &case, &setup, &mut || true).unwrap();
    world.progress.left += 1;
    let ended = world.run(&topology, &mut || true);
    assert_eq!(ended, Err(SimulateError::Stuck { left: 1 }));
}

#[test]
fn engines_that_only_talk_are_stuck_after_a_lease() {
    let (topology, setup) = (sapling(), Setup::default());
    let case = case(&topology);
    let mut world = World::new(&topology, &case, &setup, &mut || true).unwrap();
    let mut lost = 0;
    let day = Duration::from_secs(24 * 3600);
    while !world.fleet.is_stuck(&world.clock, world.progress.moved) {
        let tick = world.clock.next().unwrap();
        assert!(world.clock.now() < Time(0) + 2 * day, "they talk for ever");
        // A channel that never ends what it began.
        if matches!(tick, Tick::Road(_)) {
            lost += 1;
            continue;
        }
        world.tick(tick).unwrap();
        world.drain(&mut || true).unwrap();
    }
    assert!(lost > 0 && world.progress.left == 1, "{lost} lost");
    let talked = world.clock.now().since(world.progress.moved);
    assert!(talked >= day, "{talked:?}");
}

#[test]
#[should_panic(expected = "nothing is left of any transfer")]
fn a_report_of_engines_that_still_have_transfers_is_none() {
    let (topology, setup) = (sapling(), Setup::default());
    let case = case(&topology);
    let mut world = World::new(&topology, &case, &setup, &mut || true).unwrap();
    while world.tally.transfers == 0 {
        let tick = world.clock.next().unwrap();
        world.tick(tick).unwrap();
        world.drain(&mut || true).unwrap();
    }
    let _ = world.report(&topology);
}

/// A quarter of each is kept for who is more urgent; none lies on a disk.
#[test]
fn pools_have_a_reserve_and_lie_where_staging_may() {
    let topology = sapling();
    let setup = Setup { load: true, ..Setup::default() };
    let case = case(&topology);
    let mut router = Router::new(&topology, &setup);
    let routes = vec![router.route(0, &case.copies[0]).unwrap()];
    let site = Site::of(&topology, &setup, &routes);
    let pools: Vec<_> = site.configs(&case).into_iter().flat_map(|(_, c)| c.pools).collect();
    assert!(!pools.is_empty());
    for pool in pools {
        assert_eq!(pool.reserve_bytes, pool.capacity_bytes / 4, "{pool:?}");
        assert!(topology.th_bytes(pool.memory) > 0, "{pool:?}");
    }
}
