//! The cache: what it keeps, what it forgets, and that a hit allocates nothing.

use isometry_planner::{Choice, Options, PlanCache, Query};
use model::{Algorithm, Component, CostModel, Layout, NodeId, Topology};

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
    use Component::{Fields, Outer, Whole};
    let setup = Setup::new();
    let inner = |dim, level, size| Component::Inner { dim, level, size };
    let layouts = [
        vec![inner(0, 1, 4), Fields, Outer(0), Whole(1)],
        vec![inner(0, 1, 8), Fields, Outer(0), Whole(1)],
        vec![inner(1, 1, 4), Fields, Outer(1), Whole(0)],
        vec![inner(0, 1, 4), inner(0, 2, 4), Fields, Outer(0), Whole(1)],
        vec![inner(0, 2, 4), inner(0, 1, 4), Fields, Outer(0), Whole(1)],
        vec![inner(0, 1, 4), inner(1, 1, 4), Fields, Outer(0), Outer(1)],
        vec![inner(0, 1, 4), inner(1, 1, 4), Fields, Outer(1), Outer(0)],
        vec![inner(1, 1, 4), inner(0, 1, 4), Fields, Outer(0), Outer(1)],
    ];
    let layouts = layouts.map(|components| Layout::new(components, 2).unwrap());
    let query = setup.query("n0.sys", "n0.reg");
    let mut variants = vec![query; 17];
    variants[0].extents = &[4096, 2048];
    variants[1].field_bytes = &[8];
    variants[2].src.phase = &[0, 1];
    variants[3].src.phase = &[1, 0];
    variants[4].dst.listed = 1;
    variants[5].dst.gaps = 1;
    variants[6].src.layout = &setup.to;
    variants[7].dst.memory.index += 1;
    variants[8].dst.memory.node = NodeId(1);
    for (variant, layout) in variants[9..].iter_mut().zip(&layouts) {
        variant.src.layout = layout;
    }
    let mut cache = PlanCache::new(64);
    let mut hit = |query, options| cache.plan(&setup.topology, query, options).unwrap().hit;
    let options = Options::default();
    for query in std::iter::once(&query).chain(&variants) {
        assert!(!hit(query, &options), "{query:?}");
    }
    let only = |algorithm| Options { choice: Choice::Only(algorithm), ..options };
    let others = [
        only(Algorithm::Full),
        only(Algorithm::Simple),
        Options { model: CostModel::Paper, ..options },
        Options { alternatives: 1, ..options },
        Options { th_bytes: Some(1 << 20), ..options },
        Options { budget: Some(1 << 20), ..options },
        Options { threshold_bytes: 1 << 20, ..options },
    ];
    for options in &others {
        assert!(!hit(&query, options), "{options:?}");
    }
    assert!(variants.iter().all(|variant| hit(variant, &options)));
    assert!(others.iter().all(|options| hit(&query, options)));
}

#[test]
fn a_key_may_be_long() {
    let setup = Setup::new();
    let mut cache = PlanCache::new(8);
    for count in 60..70 {
        let mut fields = vec![4; count];
        let mut hit = |fields: &[u64]| {
            let query = Query { field_bytes: fields, ..setup.query("n0.sys", "n0.reg") };
            cache.plan(&setup.topology, &query, &Options::default()).unwrap().hit
        };
        assert_eq!([hit(&fields), hit(&fields)], [false, true], "{count}");
        fields[count - 1] = 8;
        assert_eq!([hit(&fields), hit(&fields)], [false, true], "{count}");
    }
}

#[test]
fn every_pair_of_nodes_has_the_plan_that_it_would_have_without_a_cache() {
    let setup = Setup::new();
    let mut cache = PlanCache::new(100);
    assert!(cache.is_empty());
    let options = Options::default();
    let mut made = 0;
    for (src, dst) in [(0, 0), (1, 1), (0, 1), (1, 0), (2, 3), (3, 3), (3, 1)] {
        let query = setup.query(&format!("n{src}.sys"), &format!("n{dst}.fbm"));
        let cached = cache.plan(&setup.topology, &query, &options).unwrap();
        made += u64::from(!cached.hit);
        let plan = isometry_planner::plan(&setup.topology, &query, &options).unwrap();
        assert_eq!(*cached.plan, plan, "{src} {dst}");
    }
    assert_eq!(made, 2, "one plan inside a node and one between two");
    assert!(!cache.is_empty() && cache.len() == 7);
}
