//! What a workload file may say, and what is refused.

use super::*;

const SMALL: &str = r#"
name = "small"
[[copy]]
name = "first"
from = "n0.sys"
to = "n1.fbm"
dims = "y=64, x=32"
fields = [4, 8]
from_layout = "<F, x, y>"
to_layout = "yx"
count = 3
priority = -2
at_ns = 77
[[copy]]
from = "n0.sys"
to = "n0.sys"
dims = "x=5"
fields = [1]
from_layout = "x"
to_layout = "x"
after = ["first", "first"]
compute_ns = 9
"#;

fn parse(text: &str) -> Result<Workload, WorkloadError> {
    Workload::parse(text, &cluster::ready_made("sapling").unwrap())
}

#[test]
fn a_file_says_what_is_copied_and_when() {
    let workload = parse(SMALL).unwrap();
    let [first, second] = &workload.cases[0].copies[..] else { panic!("two copies") };
    assert_eq!((workload.name.as_str(), first.name.as_str()), ("small", "first"));
    assert_eq!((first.count, first.priority, first.at), (3, Priority(-2), Time(77)));
    assert_eq!((first.instance_bytes(), first.bytes()), (64 * 32 * 12, 3 * 64 * 32 * 12));
    assert_eq!((second.name.as_str(), second.count, &second.after[..]), ("copy1", 1, &[0][..]));
    assert_eq!((first.compute, second.compute), (Duration::ZERO, Duration::from_nanos(9)));
}

#[test]
fn a_box_has_bounds_and_instances_around_it() {
    let text =
        SMALL.replace("\"y=64, x=32\"", "{ box = \"y=-8..56,x=32\", to = \"y=-16..64,x=32\" }");
    let copy = &parse(&text).unwrap().cases[0].copies[0];
    assert_eq!((copy.space.dims()[0].lo, copy.space.dims()[0].hi), (-8, 56));
    assert_eq!(
        (copy.instances[0].extents(), copy.instances[1].extents()),
        ([64, 32].into(), [80, 32].into())
    );
}

#[track_caller]
fn refused(from: &str, to: &str, key: &str, words: &str) {
    assert!(SMALL.contains(from), "{from}");
    let error = parse(&SMALL.replacen(from, to, 1)).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.key(), key, "{text}");
    assert!(text.contains(words) && text.contains(key), "{text}");
}

#[test]
fn every_mistake_names_its_key() {
    refused("name = \"small\"", "name = ", "", "line 2");
    refused("name = \"small\"", "nam = \"small\"", "", "line 2");
    refused("from = \"n0.sys\"\n", "", "", "from");
    refused("count = 3", "counts = 3", "", "counts");
    refused("count = 3", "count = -3", "", "line 11");
    refused("count = 3", "count = 0", "copy[0].count", "at least one");
    refused("count = 3", "count = 4294967295", "copy", "transfers");
    refused("from = \"n0.sys\"", "from = \"n9.sys\"", "copy[0].from", "`n9.sys`");
    refused("to = \"n1.fbm\"", "to = \"fbm\"", "copy[0].to", "`fbm`");
    refused("y=64", "y=", "copy[0].dims", "x=64,y=32");
    refused("y=64", "x=64", "copy[0].dims", "x");
    refused("y=64", "y=64..32", "copy[0].dims", "y");
    refused("y=64", "y=-1", "copy[0].dims", "bounds");
    let boxed = |rest| format!("{{ box = \"y=64,x=32\", {rest} }}");
    let whole = "\"y=64, x=32\"";
    refused(whole, &boxed("from = \"y=8,x=32\""), "copy[0].dims.from", "y");
    refused(whole, &boxed("to = \"y\""), "copy[0].dims.to", "bounds");
    refused(whole, &boxed("to = \"y=64\""), "copy[0].to_layout", "");
    refused(whole, &boxed("from = \"x=64,y=64\""), "copy[0].dims.from", "in its order");
    refused(whole, &boxed("too = \"y=64\""), "", "a table of `box`");
    refused("y=64", "y=9223372036854775807", "copy[0].dims", "");
    refused("y=64", "y=72057594037927936", "copy[0].dims", "63 bits");
    refused("fields = [4, 8]", "fields = [4, 0]", "copy[0].fields", "size 0");
    refused("fields = [4, 8]", "fields = []", "copy[0].fields", "needs a field");
    refused("<F, x, y>", "<F, x, z>", "copy[0].from_layout", "");
    refused("\"yx\"", "\"<F, y, x_in=2>\"", "copy[0].to_layout", "");
    refused("[\"first\", \"first\"]", "[\"copy1\"]", "copy[1].after[0]", "`copy1`");
    refused("[\"first\", \"first\"]", "[]\nname = \"first\"", "copy[1].name", "twice");
    let many = format!("fields = [{}]", "1, ".repeat(1025));
    refused("fields = [4, 8]", &many, "copy[0].fields", "1024");
    let none = parse("copy = []").unwrap_err();
    assert_eq!(none.key(), "copy");
}

#[test]
fn sums_beyond_63_bits_are_refused() {
    let large = SMALL.replace("y=64", "y=12000000000000000");
    let error = parse(&large).unwrap_err();
    assert_eq!(error.key(), "copy", "{error}");
}

proptest::proptest! {
    #[test]
    fn damaged_files_never_panic(at in 0usize..400, with in ".{0,6}", cut in 0usize..20) {
        let from = SMALL.floor_char_boundary(at.min(SMALL.len()));
        let to = SMALL.floor_char_boundary((from + cut).min(SMALL.len()));
        let _ = parse(&format!("{}{with}{}", &SMALL[..from], &SMALL[to..]));
    }
}
