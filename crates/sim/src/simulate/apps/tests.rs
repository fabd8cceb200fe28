//! What applications copy, and when.

use super::*;
use std::collections::BTreeSet;

fn copies(name: &str, cluster: &str, nodes: u32) -> Vec<CopySpec> {
    let topology = cluster::with_nodes(cluster::ready_made(cluster).unwrap(), nodes).unwrap();
    let case = case(name, &topology).unwrap().unwrap();
    assert_eq!(case.check(), Ok(()), "{name}");
    case.copies
}

/// The dimensions at the source and at the destination, the fastest first, behind the field.
fn orders(copy: &CopySpec) -> [Vec<usize>; 2] {
    copy.layouts.each_ref().map(|layout| {
        assert_eq!(layout.components()[0], Component::Fields);
        layout.components().iter().filter_map(|component| component.dim()).collect()
    })
}

#[test]
fn every_rank_goes_everywhere() {
    let all = copies("pagerank", "xstream", 4);
    assert_eq!(all.len(), ITERATIONS * 4 * 4);
    let pairs: BTreeSet<_> = all[16..32].iter().map(|c| (c.from.node, c.to.node)).collect();
    assert_eq!(pairs.len(), 16);
    // What a node sends in an iteration waits for all that came to it in the one before.
    for copy in &all[16..32] {
        let before: Vec<_> = copy.after.iter().map(|&at| all[at].to.node).collect();
        assert_eq!(before, [copy.from.node; 4]);
        assert!(copy.compute > Duration::ZERO);
    }
}

#[test]
fn the_master_talks_to_all() {
    let all = copies("circuit", "moonlight", 8);
    assert_eq!(all.len(), ITERATIONS * 8 * 6);
    assert!(all.iter().all(|c| c.from.node == NodeId(0) || c.to.node == NodeId(0)));
    // No part gets voltages before all have sent their charges, nor goes on before it has them.
    for (at, copy) in all.iter().enumerate() {
        let is_charge = at % 48 < 24;
        assert_eq!(copy.after.len(), if !is_charge { 24 } else { 3 * usize::from(at >= 48) });
        assert!(copy.after.iter().all(|before| before / 24 + 1 == at / 24));
    }
    let (small, large): (Vec<_>, Vec<_>) = all.iter().partition(|c| c.bytes() == 64);
    assert_eq!((small.len(), large.len()), (ITERATIONS * 16, ITERATIONS * 32));
}

#[test]
fn all_weights_go_to_their_owners_and_back() {
    for nodes in [1, 3, 16] {
        let all = copies("vgg16", "xstream", nodes);
        let bytes = |what: &str, is_local: bool| -> u64 {
            let of = all.iter().filter(|c| c.name.starts_with(what) && is_here(c) == is_local);
            of.map(CopySpec::bytes).sum()
        };
        // 138 million parameters without biases: on each node, and to each from the others' parts.
        let once = 138_344_128 * 4 * ITERATIONS as u64;
        for what in ["gradients", "weights"] {
            let [here, between] =
                [u64::from(nodes), u64::from(nodes) - 1].map(|times| times * once);
            assert_eq!((bytes(what, true), bytes(what, false)), (here, between), "{what}");
        }
        let images = all.iter().filter(|c| c.name.starts_with("images"));
        assert_eq!(images.filter(|c| is_here(c)).count(), ITERATIONS * nodes as usize);
    }
}

fn is_here(copy: &CopySpec) -> bool {
    copy.from.node == copy.to.node
}

/// NHWC and OHWI on the host, NCHW and OIHW on the accelerator; from host to host as it lies.
#[test]
fn images_and_filters_change_their_layout() {
    for copy in copies("vgg16", "xstream", 2) {
        let [from, to] = orders(&copy);
        let (host, device) = match copy.name.split_once(' ').unwrap().0 {
            "images" => (vec![3, 2, 1, 0], vec![2, 1, 3, 0]),
            _ if !is_here(&copy) => (vec![0], vec![0]),
            _ if from.len() == 2 => (vec![1, 0], vec![1, 0]),
            _ => (vec![1, 3, 2, 0], vec![3, 2, 1, 0]),
        };
        let is_back = copy.name.starts_with("gradients");
        assert_eq!([from, to], if is_back { [device, host] } else { [host, device] });
    }
}

#[test]
fn gradients_leave_from_the_last_layer_on() {
    let all = copies("vgg16", "xstream", 1);
    let times: Vec<_> =
        all.iter().filter(|c| c.name.starts_with("grad")).map(|c| c.compute).collect();
    assert!(times[..16].is_sorted());
    // Three passes' worth of 15.5 billion multiplications and additions for each of 64 images.
    let all = times[15].as_secs_f64() * FLOPS_OF_TEST;
    assert!((all / (3.0 * 2.0 * 15.47e9 * 64.0) - 1.0).abs() < 0.01, "{all}");
}

/// What `vgg` assumes.
const FLOPS_OF_TEST: f64 = 4e12;

#[test]
fn caches_change_hands_from_one_half_to_the_other() {
    let all = copies("kv", "modern", 4);
    assert_eq!(all.len(), 8 * 2 * 8);
    assert!(all.iter().all(|c| c.from.node.0 + 2 == c.to.node.0 && c.from.index == c.to.index));
    // Heads inside of tokens, and outside.
    assert!(all.iter().all(|c| orders(c) == [[4, 3, 2, 1, 0], [4, 2, 3, 1, 0]]));
    assert!(copies("kv", "modern", 1).is_empty());
}

#[test]
fn boxes_make_up_the_matrix() {
    for nodes in [2, 6] {
        let all = copies("reshard", "modern", nodes);
        let entries: u64 = all.iter().map(|c| c.space.entries()).sum();
        assert_eq!(entries, 1 << 30);
        let ends: BTreeSet<_> = all.iter().map(|c| (c.from, c.to)).collect();
        assert_eq!(ends.len(), all.len());
        let columns = &all[0].space.dims()[1];
        assert_eq!(all[0].instances[1].dims()[1], *columns);
        assert_eq!(all[0].instances[0].dims()[1].extent(), 32 << 10);
    }
}

#[test]
fn without_accelerators_there_is_nothing_to_copy() {
    let mut topology = cluster::ready_made("xstream").unwrap();
    topology.classes[0].memories.retain(|m| m.kind != MemoryKind::Fbm);
    topology.classes[0].channels.clear();
    topology.links.clear();
    for name in ["pagerank", "circuit", "vgg16", "kv", "reshard"] {
        assert!(case(name, &topology).unwrap().unwrap().copies.is_empty(), "{name}");
    }
    assert_eq!(case("micro", &topology), Ok(None));
}

/// Not when memory is gone: a pod has a thousand nodes.
#[test]
fn what_is_too_large_is_refused_before_it_is_made() {
    let pod = cluster::ready_made("pod").unwrap();
    for name in ["pagerank", "vgg16", "reshard"] {
        let error = case(name, &pod).unwrap_err();
        assert!(error.to_string().contains("on fewer nodes"), "{error}");
    }
    assert!(case("pagerank", &cluster::with_nodes(pod, 64).unwrap()).is_ok());
}
