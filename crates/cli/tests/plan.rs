//! `iso plan` as a process.

mod process;

use process::{Ran, cluster, iso};
use serde_json::{Value, json};

const EXAMPLE: [&str; 13] = [
    "plan",
    "n0.fbm",
    "n1.fbm",
    "--dims",
    "x=65536,y=65536",
    "--fields",
    "4,4,8",
    "--from-layout",
    "<F, x, y>",
    "--to-layout",
    "<F, y, x>",
    "--algorithm",
    "full",
];

fn plan(more: &[&str]) -> Ran {
    let file = cluster("two-nodes.toml");
    iso(&[&EXAMPLE[..], &["--cluster", &file], more].concat())
}

fn value(ran: &Ran) -> Value {
    ran.succeeds();
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn the_example_of_section_4_3() {
    let plan = value(&plan(&["--model", "paper", "--json"]));
    assert_eq!(plan["algorithm"], "full");
    assert_eq!(plan["model"], "paper");
    assert_eq!(plan["memories"], json!(["n0.fbm", "n0.zcm", "n0.reg", "n1.reg", "n1.fbm"]));
    assert_eq!(
        plan["layouts"],
        json!([
            "<F, x_in=2048, x_out, y_in=1024, y_out>",
            "<F, x_in=2048, y_in=1024, x_out, y_out>",
            "<F, y_in=1024, x_in=2048, x_out, y_out>",
            "<F, y_in=1024, x_in=2048, x_out, y_out>",
            "<F, y_in=1024, y_out, x_in=2048, x_out>"
        ])
    );
    let hops: Vec<_> = plan["hops"].as_array().unwrap().iter().map(hop).collect();
    assert_eq!(
        hops,
        [
            ("GPURead", 32768, 1 << 30, 3.0),
            ("Memcpy", 16, 32 << 20, 7.74),
            ("RemoteMemcpy", 1 << 36, 1, 3.0),
            ("GPUWrite", 16384, 1 << 36, 3.0)
        ]
    );
    assert_eq!(
        plan["buffers"],
        json!([
            { "memory": "n0.zcm", "bytes": 33554432 },
            { "memory": "n0.reg", "bytes": 33554432 },
            { "memory": "n1.reg", "bytes": 1048576 }
        ])
    );
    assert_eq!(plan["bound_by"], json!({ "hop": 2, "why": "channel" }));
    assert!((plan["throughput"].as_f64().unwrap() - 3.0e9).abs() < 1.0);
    assert!(plan["plan_ns"].as_u64().unwrap() > 0 && plan["cached"] == false);
    assert!(plan.get("seconds").is_none());
}

fn hop(hop: &Value) -> (&str, u64, u64, f64) {
    let bytes = |key: &str| hop[key].as_u64().unwrap();
    let gigabytes = (hop["throughput"].as_f64().unwrap() / 1e7).round() / 100.0;
    let channel = hop["channel"].as_str().unwrap();
    (channel, bytes("prefix_bytes"), bytes("shuffle_bytes"), gigabytes)
}

#[test]
fn the_default_model_predicts_seconds() {
    let plan = value(&plan(&["--json"]));
    assert_eq!(plan["model"], "default");
    assert!(plan["seconds"].as_f64().unwrap() > 20.0);
}

#[test]
fn people_read_an_explanation() {
    let plan = plan(&["--model", "paper"]);
    plan.succeeds();
    for word in ["n0.zcm", "RemoteMemcpy", "x_in=2048"] {
        assert!(plan.stdout.contains(word), "{word} is not in\n{}", plan.stdout);
    }
}

#[test]
fn unknown_names_are_wrong_usage() {
    let file = cluster("two-nodes.toml");
    let with = |src: &str, dims: &str, layout: &str, th: &str| {
        let args = ["plan", "--cluster", &file, src, "n1.fbm", "--dims", dims, "--fields", "4"];
        let layouts = ["--from-layout", layout, "--to-layout", "<F, y, x>", "--th", th];
        iso(&[&args[..], &layouts].concat())
    };
    with("n0.fbm", "x=64,y=64", "<F, x, y>", "1MiB").succeeds();
    for wrong in [
        with("n7.fbm", "x=64,y=64", "<F, x, y>", "1MiB"),
        with("n0.fbm", "x=64,y", "<F, x, y>", "1MiB"),
        with("n0.fbm", "x=64,y=64", "<F, x, z>", "1MiB"),
        with("n0.fbm", "x=64,y=64", "<F, x, y>", "1 parsec"),
        with("n0.fbm", "x=64,x=64", "<F, x, y>", "1MiB"),
    ] {
        assert_eq!((wrong.code, wrong.stdout.as_str()), (2, ""), "{}", wrong.stderr);
        assert!(!wrong.stderr.is_empty());
    }
}

#[test]
fn no_path_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("apart.toml");
    let text = "name = \"apart\"\nth_bytes = 1048576\n[[node]]\nname = \"n\"\ncount = 1\n\
                memory = [{ name = \"a\", kind = \"SYS\" }, { name = \"b\", kind = \"REG\" }]\n";
    std::fs::write(&file, text).unwrap();
    let args = ["plan", "--cluster", file.to_str().unwrap(), "a", "b", "--dims", "x=8"];
    let rest = ["--fields", "4", "--from-layout", "<F, x>", "--to-layout", "<F, x>", "--json"];
    let ran = iso(&[&args[..], &rest].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
}
