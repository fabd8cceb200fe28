//! The cache: alone in its process, since it counts allocations.

use isometry_planner::{Options, PlanCache, Query};
use model::{Component, Layout, NodeId, Topology};
use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, at: *mut u8, block: Block) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, block) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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

/// One test, so that no other thread allocates meanwhile.
#[test]
fn the_cache_keeps_its_promises() {
    a_hit_is_the_same_plan_and_allocates_nothing();
    one_plan_serves_nodes_that_look_alike();
    it_is_bounded_and_forgets_the_oldest();
    another_generation_empties_it();
    what_a_plan_depends_on_is_in_the_key();
}

fn a_hit_is_the_same_plan_and_allocates_nothing() {
    let setup = Setup::new();
    let mut cache = PlanCache::new(8);
    let (query, options) = (setup.query("n0.sys", "n1.fbm"), Options::default());
    let first = cache.plan(&setup.topology, &query, &options).unwrap();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let second = cache.plan(&setup.topology, &query, &options).unwrap();
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before);
    assert_eq!((first.hit, second.hit), (false, true));
    assert_eq!(first.plan, second.plan);
}

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

fn another_generation_empties_it() {
    let mut setup = Setup::new();
    let mut cache = PlanCache::new(8);
    let options = Options::default();
    cache.plan(&setup.topology, &setup.query("n0.sys", "n0.reg"), &options).unwrap();
    setup.topology.generation += 1;
    let query = setup.query("n0.sys", "n0.reg");
    assert!(!cache.plan(&setup.topology, &query, &options).unwrap().hit);
}

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
