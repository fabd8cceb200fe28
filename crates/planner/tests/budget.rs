//! The search budget on graphs where most ways lead nowhere.

use isometry_planner::{Choice, Options, Query, plan};
use model::{Algorithm, Component, CostModel, Layout};
use std::fmt::Write;

/// A disk and devices that only `sys` joins: a path that enters the devices never comes back.
fn star(devices: u64) -> model::Topology {
    let names: Vec<_> = (0..devices).map(|i| format!("\"fbm{i}\"")).collect();
    let mut memories = String::new();
    for name in &names {
        write!(memories, "{{ name = {name}, kind = \"FBM\", th_bytes = 1073741824 }},").unwrap();
    }
    let fbm = names.join(",");
    let text = format!(
        r#"
        [[node]]
        name = "n"
        memory = [ {memories}
          {{ name = "sys", kind = "SYS", th_bytes = 65536 }},
          {{ name = "dsk", kind = "DSK", th_bytes = 0 }},
        ]
        channel = [
          {{ kind = "DiskRead", from = ["dsk"], to = ["sys"], throughput = [[65536, 1e9]] }},
          {{ kind = "DiskWrite", from = ["sys"], to = ["dsk"], throughput = [[65536, 1e9]] }},
          {{ kind = "GPUWrite", from = ["sys"], to = [{fbm}], throughput = 5e9 }},
          {{ kind = "GPURead", from = [{fbm}], to = ["sys"], throughput = 5e9 }},
          {{ kind = "GPUCopy", from = [{fbm}], to = [{fbm}], throughput = 5e10 }},
        ]
        "#
    );
    cluster::parse(&text).unwrap()
}

#[test]
fn dead_ends_use_the_budget_up() {
    let topology = star(9);
    let disk = topology.memory_named("dsk").unwrap();
    let order = |fast, slow| {
        Layout::new([Component::Fields, Component::Whole(fast), Component::Whole(slow)], 2).unwrap()
    };
    let (from, to) = (order(0, 1), order(1, 0));
    let query = Query::whole((disk, &from), (disk, &to), &[1 << 15, 1 << 15], &[4]);
    for model in [CostModel::Paper, CostModel::Default] {
        let choice = Choice::Only(Algorithm::Full);
        let options = Options { choice, model, budget: Some(64), ..Options::default() };
        let found = plan(&topology, &query, &options).unwrap();
        assert!(found.search.exhausted, "{model:?}: {:?}", found.search);
    }
}
