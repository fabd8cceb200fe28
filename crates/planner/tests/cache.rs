//! The cache: what it keeps, what it forgets, and that a hit allocates nothing.

use isometry_planner::{Options, PlanCache, Query};
use model::{Component, Layout, NodeId, Topology};

const SAPLING: &str = include_str!("../../../clusters/sapling.toml");

struct Setup {
    topology: Topology,
    from: Layout,
    to: Layout,
    extents: [u64; 2],
}

impl Setup {
    fn new() -> Setup {
        use Component::{Fields, Whole};
        Setup {
            topology: cluster::parse(SAPLING).unwrap(),
            from: Layout::new(vec![Fields, Whole(0), Whole(1)], 2).unwrap(),
            to: Layout::new(vec![Fields, Whole(1), Whole(0)], 2).unwrap(),
            extents: [4096, 4096],
        }
    }

    fn query(&self, src: &str, dst: &str) -> Query<'_> {
        let memory = |name| self.topology.memory_named(name).unwrap();
        let ends = ((memory(src), &self.from), (memory(dst), &self.to));
        Query::whole(ends.0, ends.1, &self.extents, &[4])
    }
}

#[test]
fn a_hit_is_the_same_plan_and_allocates_nothing() {
    let setup = Setup::new();
    let mut cache = PlanCache::new(8);
    let (query, options) = (setup.query("n0.sys", "n1.fbm"), Options::default());
    let first = cache.plan(&setup.topology, &query, &options).unwrap();
    let mut second = None;
    let counted = allocation_counter::measure(|| {
        second = cache.plan(&setup.topology, &query, &options).ok();
    });
    let second = second.unwrap();
    assert_eq!(counted.count_total, 0);
    assert_eq!((first.hit, second.hit), (false, true));
    assert_eq!(first.plan, second.plan);
}

#[test]
fn one_plan_serves_nodes_that_look_alike() {
    let setup = Setup::new();
    let mut cache = PlanCache::new(8);
    let options = Options::default();
    cache.plan(&setup.topology, &setup.query("n0.sys", "n1.fbm"), &options).unwrap();
    let query = setup.query("n3.sys", "n0.fbm");
    let other = cache.plan(&setup.topology, &query, &options).unwrap();
    assert!(other.hit);
    assert_eq!(*other.plan, isometry_planner::plan(&setup.topology, &query, &options).unwrap());
    assert_eq!(other.plan.memories[0].node, NodeId(3));
}

#[test]
fn it_is_bounded_and_forgets_the_oldest() {
    let setup = Setup::new();
    let mut cache = PlanCache::new(2);
    let options = Options::default();
    let mut hit = |dst| {
        let query = setup.query("n0.sys", dst);
        cache.plan(&setup.topology, &query, &options).unwrap().hit
    };
    let hits = ["n0.zcm", "n0.reg", "n0.zcm", "n0.fbm", "n0.zcm", "n0.reg"].map(&mut hit);
    assert_eq!(hits, [false, false, true, false, true, false]);
    assert_eq!(cache.len(), 2);
}

#[test]
fn another_generation_empties_it() {
    let mut setup = Setup::new();
    let mut cache = PlanCache::new(8);
    let options = Options::default();
    cache.plan(&setup.topology, &setup.query("n0.sys", "n0.reg"), &options).unwrap();
    setup.topology.generation += 1;
    let query = setup.query("n0.sys", "n0.reg");
    assert!(!cache.plan(&setup.topology, &query, &options).unwrap().hit);
}

#[test]
fn what_a_plan_depends_on_is_in_the_key() {
    let setup = Setup::new();
    let mut cache = PlanCache::new(32);
    let options = Options::default();
    let query = setup.query("n0.sys", "n0.reg");
    cache.plan(&setup.topology, &query, &options).unwrap();
    let mut variants = [query; 6];
    variants[0].extents = &[4096, 2048];
    variants[1].field_bytes = &[8];
    variants[2].src.phase = &[0, 1];
    variants[3].dst.listed = 1;
    variants[4].src.layout = &setup.to;
    variants[5].dst.memory.index += 1;
    for variant in variants {
        assert!(!cache.plan(&setup.topology, &variant, &options).unwrap().hit);
    }
    let other = Options { th_bytes: Some(1 << 20), ..options };
    assert!(!cache.plan(&setup.topology, &query, &other).unwrap().hit);
    assert!(cache.plan(&setup.topology, &query, &options).unwrap().hit);
}
