//! Both formats, both shipped files, and what is refused.

use crate::{ErrorKind, parse, parse_json, parse_toml, to_json};
use model::{ChannelKind, MemoryKind, NodeId, Topology};
use proptest::prelude::*;

const TWO_NODES: &str = include_str!("../../../clusters/two-nodes.toml");
const SAPLING: &str = include_str!("../../../clusters/sapling.toml");
const XSTREAM: &str = include_str!("../../../clusters/xstream.toml");
const MOONLIGHT: &str = include_str!("../../../clusters/moonlight.toml");
const MODERN: &str = include_str!("../../../clusters/modern.toml");

const SMALL: &str = r#"
th_bytes = 1024
[[node]]
name = "n"
count = 2
memory = [ { name = "sys", kind = "SYS" }, { name = "dsk", kind = "DSK", th_bytes = 0 } ]
channel = [
  { kind = "Memcpy", from = ["sys"], to = ["sys"], throughput = 5, throughput_transpose = [[4, 1], [64, 2.5]], stream_from_bytes = { in_order = 8388608, turned = 1048576 } },
  { kind = "DiskRead", from = ["dsk"], to = ["sys"], throughput = [[512, 1e6], [4096, 2e6]], in_flight = 8 },
]
[[link]]
kind = "RemoteMemcpy"
from = ["n.sys"]
to = ["n.sys"]
throughput = 3
"#;

#[test]
fn two_nodes_is_what_the_contract_says() {
    let topology = parse(TWO_NODES).unwrap();
    assert_eq!((topology.node_count(), topology.th_bytes), (2, 33_554_432));
    let class = &topology.classes[0];
    assert_eq!(class.memories.iter().map(|m| m.kind).next(), Some(MemoryKind::Fbm));
    assert_eq!(class.memories[4].th_bytes, Some(0));
    assert_eq!(class.channels[0].latency_ns, 9000);
    assert_eq!(class.channels[0].curves.run.at(32768), 3.0e9);
    assert!(class.channels[1].assumed && !class.channels[0].assumed);
    assert_eq!(class.wires[usize::from(class.channels[2].wire.unwrap())].rate, 6.5e9);
    assert!(class.channels[3].curves.run.is_constant());
    assert_eq!(topology.links[0].kind, ChannelKind::RemoteMemcpy);
}

#[test]
fn sapling_has_the_bandwidths_of_table_5() {
    let topology = parse(SAPLING).unwrap();
    assert_eq!(topology.node_count(), 4);
    let mut peaks: Vec<f64> =
        topology.classes[0].channels.iter().map(|c| c.curves.run.peak()).collect();
    peaks.extend(topology.links.iter().map(|l| l.curves.run.peak()));
    for megabytes in [7740., 5941., 5139., 6418., 4502., 55366., 270., 280., 3180., 2701.] {
        assert!(peaks.iter().any(|p| (p / 1e6 - megabytes).abs() < 0.5), "{megabytes}");
    }
}

/// Neither paper nor vendor gives a rate of these.
#[test]
fn clusters_without_a_source_say_that_they_are_assumed() {
    for (text, nodes) in [(XSTREAM, 16), (MOONLIGHT, 64), (MODERN, 2)] {
        let topology = parse(text).unwrap();
        assert_eq!(topology.node_count(), nodes, "{}", topology.name);
        let mut channels = topology.classes.iter().flat_map(|class| &class.channels);
        assert!(channels.all(|c| c.assumed), "{}", topology.name);
        assert!(topology.links.iter().all(|l| l.assumed), "{}", topology.name);
    }
}

fn round_trip(topology: &Topology) {
    let text = to_json(topology).to_string();
    assert_eq!(&parse(&text).unwrap(), topology);
}

#[test]
fn json_reads_back_what_was_written() {
    for text in [TWO_NODES, SAPLING, XSTREAM, MOONLIGHT, MODERN, SMALL] {
        round_trip(&parse(text).unwrap());
    }
}

#[test]
fn a_wire_is_full_duplex_unless_it_says_otherwise() {
    let wire = "wire = [ { name = \"ssd\", throughput = 1e9, half_duplex = true } ]\n[[link]]";
    let half = parse(&SMALL.replace("[[link]]", wire)).unwrap();
    assert!(half.classes[0].wires[0].half_duplex);
    round_trip(&half);
    let full = parse(&SMALL.replace("[[link]]", &wire.replace(", half_duplex = true", "")));
    assert!(!full.unwrap().classes[0].wires[0].half_duplex);
    assert!(!parse(TWO_NODES).unwrap().classes[0].wires[0].half_duplex);
}

#[test]
fn a_port_is_a_wire_of_the_memorys_node() {
    let wire = "wire = [ { name = \"nic\", throughput = 1e9 } ]\n[[link]]";
    let text = SMALL.replace("[[link]]", wire);
    let sys = "{ name = \"sys\", kind = \"SYS\"";
    let topology = parse(&text.replace(sys, &format!("{sys}, port = \"nic\""))).unwrap();
    let [sys0, sys1, disk] =
        ["n0.sys", "n1.sys", "n1.dsk"].map(|m| topology.memory_named(m).unwrap());
    let (id, port) = topology.port(sys1).unwrap();
    assert_eq!((id.node, id.index, port.rate), (sys1.node, 0, 1e9));
    assert_eq!((topology.port(sys0).unwrap().0.node, topology.port(disk)), (sys0.node, None));
    round_trip(&topology);
    let half = text.replace("throughput = 1e9 }", "throughput = 1e9, half_duplex = true }");
    let half = parse(&half.replace(sys, &format!("{sys}, port = \"nic\""))).unwrap();
    assert!(half.port(sys1).unwrap().1.half_duplex);
    round_trip(&half);
    let refused = parse(&text.replace(sys, &format!("{sys}, port = \"none\""))).unwrap_err();
    assert!(refused.to_string().contains("node[0].memory[0].port"), "{refused}");
}

#[test]
fn the_flat_lists_spell_out_every_node() {
    let json = to_json(&parse(SMALL).unwrap());
    let names: Vec<_> = json["memories"].as_array().unwrap().iter().map(|m| &m["name"]).collect();
    assert_eq!(names, ["n0.sys", "n0.dsk", "n1.sys", "n1.dsk"]);
    assert_eq!(json["channels"].as_array().unwrap().len(), 6);
    let link = &json["channels"][4];
    assert_eq!((&link["from"][0], &link["to"][0]), (&"n0.sys".into(), &"n1.sys".into()));
    assert_eq!(link["to"].as_array().unwrap().len(), 1);
    let alone = SMALL.replace("count = 2", "count = 1");
    assert_eq!(to_json(&parse(&alone).unwrap())["memories"][0]["name"], "sys");
}

#[track_caller]
fn refused(from: &str, to: &str, kind: ErrorKind, names: &str, line: usize) {
    assert!(SMALL.contains(from));
    let error = parse_toml(&SMALL.replacen(from, to, 1)).unwrap_err();
    let text = error.to_string();
    assert_eq!((error.kind(), error.line()), (kind, Some(line)), "{text}");
    assert!(text.contains(names), "{text}");
}

#[test]
fn mistakes_name_their_key_and_line() {
    refused("th_bytes = 1024", "th_byte = 1024", ErrorKind::Shape, "th_byte", 2);
    refused("name = \"n\"", "name = ", ErrorKind::Syntax, "", 4);
    refused("name = \"n\"", "name = \"n.x\"", ErrorKind::Name, "node[0].name", 4);
    refused("count = 2", "count = 0", ErrorKind::Value, "node[0].count", 5);
    refused("kind = \"SYS\"", "kind = \"RAM\"", ErrorKind::Name, "memory[0].kind", 6);
    refused("\"dsk\", kind", "\"sys\", kind", ErrorKind::Name, "memory[1].name", 6);
    refused("throughput = 5", "throughput = -5", ErrorKind::Value, "channel[0].throughput", 8);
    refused("throughput = 5", "throughput = nan", ErrorKind::Value, "channel[0].throughput", 8);
    refused("throughput = 5", "throughput = \"5\"", ErrorKind::Shape, "a rate", 8);
    refused("[64, 2.5]", "[64, 0.5]", ErrorKind::Value, "throughput_transpose", 8);
    refused("[4096, 2e6]", "[512, 2e6]", ErrorKind::Value, "channel[1].throughput", 9);
    refused("from = [\"dsk\"]", "from = [\"disk\"]", ErrorKind::Name, "channel[1].from", 9);
    refused("from = [\"dsk\"]", "from = []", ErrorKind::Value, "channel[1].from", 9);
    refused("in_flight = 8", "wire = \"pcie\"", ErrorKind::Name, "channel[1].wire", 9);
    refused("\"SYS\"", "\"SYS\", port = \"nic\"", ErrorKind::Name, "memory[0].port", 6);
    refused("in_flight = 8", "in_flight = 0", ErrorKind::Value, "channel[1].in_flight", 9);
    let (stream, was) =
        ("channel[1].stream_from_bytes", "{ in_order = 8388608, turned = 1048576 }");
    refused(was, "1048576", ErrorKind::Shape, "`stream_from_bytes` as { in_order, turned }", 8);
    refused(
        "in_flight = 8",
        "stream_from_bytes = { in_order = 8, turned = 8 }",
        ErrorKind::Name,
        stream,
        9,
    );
    refused("[\"n.sys\"]", "[\"m.sys\"]", ErrorKind::Name, "link[0].from", 13);
    refused("kind = \"RemoteMemcpy\"", "kind = \"Mail\"", ErrorKind::Name, "link[0].kind", 12);
}

#[test]
fn classes_that_share_a_nodes_name_are_refused() {
    let two = format!("{SMALL}\n[[node]]\nname = \"n1\"\nmemory = []\n");
    assert_eq!(parse_toml(&two).unwrap_err().kind(), ErrorKind::Name);
    assert!(parse_toml(&two.replace("n1", "m")).is_ok());
    let same = two.replace("n1", "n");
    assert_eq!(parse_toml(&same).unwrap_err().kind(), ErrorKind::Name);
    assert!(parse_toml(&format!("{same}first = 1\n")).is_err(), "the first class has two nodes");
}

#[test]
fn classes_of_one_name_have_other_numbers_and_share_links() {
    let more = "[[node]]\nname = \"n\"\nfirst = 2\nmemory = [{ name = \"sys\", kind = \"SYS\" }]\n";
    let topology = parse(&format!("{SMALL}\n{more}")).unwrap();
    let sys = topology.memory_named("n2.sys").unwrap();
    assert_eq!((sys.node, topology.memory_name(sys).unwrap().as_str()), (NodeId(2), "n2.sys"));
    assert_eq!((topology.links[0].from.len(), topology.links[0].to.len()), (2, 2));
    assert_eq!(to_json(&topology)["memories"][4]["name"], "n2.sys");
    round_trip(&topology);
}

#[test]
fn more_nodes_than_fit_are_refused() {
    let many = "[[node]]\nname = \"a\"\ncount = 4294967295\nmemory = []\n";
    let two = format!("{many}{}", many.replace("\"a\"", "\"b\""));
    assert!(parse(many).is_ok());
    assert_eq!(parse(&two).unwrap_err().kind(), ErrorKind::Value);
    assert_eq!(to_json(&parse(many).unwrap())["memories"], serde_json::json!([]));
}

#[test]
fn json_mistakes_are_errors() {
    assert_eq!(parse_json("{").unwrap_err().kind(), ErrorKind::Syntax);
    assert_eq!(parse_json("{}").unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(parse_json(r#"{"node": []}"#).unwrap_err().kind(), ErrorKind::Value);
    let deep = "{\"node\": ".to_owned() + &"[".repeat(100_000);
    assert!(parse_json(&deep).is_err());
    let deep = "node = ".to_owned() + &"[".repeat(100_000);
    assert!(parse_toml(&deep).is_err());
}

proptest! {
    #[test]
    fn damaged_files_never_panic(at in 0usize..4000, with in ".{0,6}", cut in 0usize..40) {
        for text in [TWO_NODES, SAPLING] {
            let from = text.floor_char_boundary(at.min(text.len()));
            let to = text.floor_char_boundary((from + cut).min(text.len()));
            let damaged = format!("{}{with}{}", &text[..from], &text[to..]);
            let _ = parse(&damaged);
            let _ = parse_json(&damaged);
        }
    }
}
