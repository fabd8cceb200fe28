//! `iso sim` as a process.

mod process;

use process::iso;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::time::{Duration, Instant};

#[test]
fn equal_arguments_give_equal_output() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace.txt");
    let args = ["sim", "fuzz", "--seeds", "20", "--first-seed", "7", "--json", "--trace"];
    let run = || iso(&[&args[..], &[trace.to_str().unwrap()]].concat());
    let first = run();
    first.succeeds();
    let events = std::fs::read_to_string(&trace).unwrap();
    let second = run();
    assert_eq!(first.stdout, second.stdout);
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), events);
    assert!(events.contains("submitted t0") && events.contains("ended t"));
    let value: Value = serde_json::from_str(&first.stdout).unwrap();
    assert_eq!(value["passed"], 20);
    assert!(value["bytes"].as_u64().unwrap() > 0 && value["failure"].is_null());
}

#[test]
fn other_seeds_give_other_runs() {
    let digest = |seed| {
        let ran = iso(&["sim", "fuzz", "--seeds", "3", "--first-seed", seed]);
        ran.succeeds();
        ran.stdout
    };
    assert_ne!(digest("1"), digest("50"));
    assert!(digest("1").starts_with("3 seeds passed"));
}

#[test]
fn seeds_past_64_bits_are_wrong_usage() {
    let last = u64::MAX.to_string();
    assert_eq!(iso(&["sim", "fuzz", "--seeds", "2", "--first-seed", &last]).code, 2);
    assert_eq!(iso(&["sim"]).code, 2);
}

#[test]
fn a_trace_that_cannot_be_written_hides_no_report() {
    let ran = iso(&["sim", "fuzz", "--seeds", "2", "--trace", "/dev/full"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.starts_with("2 seeds passed"), "{}", ran.stdout);
    assert!(ran.stderr.contains("/dev/full: No space left"), "{}", ran.stderr);
}

/// `iso sim run` with `args`.
fn sim_run(args: &[&str]) -> process::Ran {
    iso(&[&["sim", "run"][..], args].concat())
}

/// A workload file in `dir` with this text.
fn workload(dir: &tempfile::TempDir, text: &str) -> String {
    let path = dir.path().join("workload.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const COPY: &str = "name = \"one\"\n[[copy]]\nfrom = \"n0.fbm\"\nto = \"n1.fbm\"\ndims = \"x=65536\"\n\
                    fields = [4, 4]\nfrom_layout = \"<F, x>\"\nto_layout = \"<x, F>\"\ncount = 4\n";

#[test]
fn a_workload_gives_a_table() {
    let ran = sim_run(&["sapling", "micro", "--filter", r"^SYS to SYS\*$"]);
    ran.succeeds();
    let mut lines = ran.stdout.lines();
    assert!(lines.next().unwrap().starts_with("copy"), "{}", ran.stdout);
    let line = lines.next().unwrap();
    assert!(line.contains("n0.sys → n0.reg → n1.sys") && line.contains("3.18 GB/s"), "{line}");
    assert!(lines.next().is_none() && ran.stderr.contains("events in"), "{}", ran.stderr);
}

#[test]
fn a_run_is_one_object_and_always_the_same() {
    let args = ["sapling", "micro", "--filter", "^FBM to FBM", "--json", "--baseline"];
    let run = || sim_run(&[&args[..], &["store-and-forward", "--dma-threads", "2"]].concat());
    let (first, second) = (run(), run());
    first.succeeds();
    assert_eq!(first.stdout, second.stdout);
    let value: Value = serde_json::from_str(&first.stdout).unwrap();
    assert_eq!((&value["cluster"], &value["nodes"]), (&"Sapling".into(), &4.into()));
    assert_eq!((&value["workload"], &value["dma_threads"]), (&"micro".into(), &2.into()));
    let cases = value["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 4);
    let (ours, theirs) = (&cases[1]["copies"][0], &cases[1]["baseline"]["copies"][0]);
    assert_eq!((&cases[1]["case"], &ours["bytes"]), (&"FBM to FBM*".into(), &(8u64 << 30).into()));
    assert_eq!(ours["plans"][0]["hops"][0]["channel"], "GPURead");
    assert_eq!(theirs["plans"].as_array().unwrap().len(), 3);
    assert!(ours["speedup"].as_f64().unwrap() > 1.0 && ours["ratio"].as_f64().unwrap() > 0.95);
    assert!(cases[1]["staging"][0]["bytes"].as_u64().unwrap() > 0);
}

#[test]
fn copies_are_split_and_go_around_each_other_where_asked() {
    let dir = tempfile::tempdir().unwrap();
    let copy = "[[copy]]\nfrom = \"n0.gpu0\"\nto = \"n1.gpu0\"\ndims = \"x=4194304\"\nfields = [8]\n\
                from_layout = \"<F, x>\"\nto_layout = \"<F, x>\"\n";
    let file = workload(&dir, &[copy, copy].concat());
    let path = |args: &[&str], line: usize| {
        let ran = sim_run(&[&["modern", &file], args].concat());
        ran.succeeds();
        ran.stdout.lines().nth(line).unwrap().to_owned()
    };
    assert!(path(&[], 2).contains("n0.gpu0 → n1.gpu0 "), "{}", path(&[], 2));
    let around = path(&["--present-load"], 2);
    assert!(around.contains("n0.gpu0 → n0.gpu1 → n1.gpu1 → n1.gpu0 "), "{around}");
    let split = path(&["--paths", "2"], 1);
    assert!(
        split.contains("n0.gpu0 → n1.gpu0 + n0.gpu0 → n0.gpu1 → n1.gpu1 → n1.gpu0 "),
        "{split}"
    );
    let ran = sim_run(&["modern", &file, "--present-load", "--paths", "2", "--json"]);
    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&value["present_load"], &value["paths"]), (&true.into(), &2.into()));
    let copy = &value["cases"][0]["copies"][0];
    assert_eq!((&copy["split"], copy["plans"].as_array().unwrap().len()), (&true.into(), 2));
    assert_eq!(sim_run(&["modern", &file, "--paths", "0"]).code, 2);
}

#[test]
fn a_summary_says_what_communication_adds() {
    let args = ["xstream", "pagerank", "--nodes", "2", "--summary", "--baseline", "no-path"];
    let ran = sim_run(&args);
    ran.succeeds();
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ran.stdout);
    assert!(lines[0].contains("communication") && lines[1].starts_with("pagerank"), "{}", lines[1]);
    let ran = sim_run(&[&args[..], &["--json"]].concat());
    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
    let case = &value["cases"][0];
    let seconds = |key: &str| case[key].as_f64().unwrap();
    let sum = seconds("computing_seconds") + seconds("communication_seconds");
    assert!((seconds("seconds") - sum).abs() < 1e-9, "{case}");
    assert!(case["copies"].is_null() && case["baseline"]["copies"].is_null(), "{case}");
    assert_eq!(case["planned"][1]["node"], "n1");
    assert_eq!(case["planned"][1]["by_papers_key"]["full"], 2);
}

/// As a machine's of some hours, of which a run takes the copies only.
#[test]
fn a_trace_may_be_long() {
    let dir = tempfile::tempdir().unwrap();
    let event = format!("[{}0]", "0,".repeat(10 << 20));
    let copy = r#"{"from": "n0.sys", "to": "n1.sys", "dims": "x=8", "fields": [4],
        "from_layout": "x", "to_layout": "x"}"#;
    let text = format!(r#"{{"traceEvents": {event}, "copy": [{copy}]}}"#);
    let ran = sim_run(&["sapling", &workload(&dir, &text), "--json"]);
    ran.succeeds();
    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(value["cases"][0]["transfers"], 1);
}

#[test]
fn a_file_names_copies() {
    let dir = tempfile::tempdir().unwrap();
    let file = workload(&dir, COPY);
    let ran = sim_run(&["sapling", &file, "--nodes", "2", "--algorithm", "simple", "--json"]);
    ran.succeeds();
    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&value["nodes"], &value["workload"]), (&2.into(), &"one".into()));
    assert_eq!(value["cases"][0]["copies"][0]["plans"][0]["algorithm"], "simple");
    for baseline in
        ["store-and-forward", "no-pipeline", "no-path", "device-converts", "one-in-flight"]
    {
        sim_run(&["sapling", &file, "--baseline", baseline]).succeeds();
    }
}

#[test]
fn an_exchange_has_as_many_transfers_as_are_asked_for() {
    let run = |more: &[&str]| {
        let ran = sim_run(&[&["pod", "exchange", "--nodes", "8", "--json"], more].concat());
        ran.succeeds();
        let value: Value = serde_json::from_str(&ran.stdout).unwrap();
        (value["cases"][0]["transfers"].as_u64().unwrap(), ran)
    };
    assert_eq!(run(&[]).0, 1000);
    let (few, ran) = run(&["--transfers", "20"]);
    assert_eq!(few, 20);
    assert_eq!(ran.stdout, run(&["--transfers", "20"]).1.stdout);
    assert!(ran.stderr.trim_end().ends_with("iB of memory"), "{}", ran.stderr);
}

#[test]
fn many_copies_are_summed_up_after_the_slowest() {
    let dir = tempfile::tempdir().unwrap();
    let copies = |count: usize| -> String {
        let copy = |nth| {
            let copy = COPY.split_once('\n').unwrap().1;
            copy.replace("65536", &format!("{}", 65536 + 1024 * ((nth * 7) % count)))
        };
        (0..count).map(copy).collect()
    };
    let run = |count: usize, more: &[&str]| {
        let file = workload(&dir, &copies(count));
        let ran = sim_run(&[&["sapling", &file, "--present-load"], more].concat());
        ran.succeeds();
        ran.stdout
    };
    assert_eq!(run(64, &[]).lines().count(), 65);
    assert_eq!(run(65, &["--baseline", "no-path"]).lines().count(), 1 + 10 + 1 + 2 + 1);
    let text = run(65, &[]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[12].starts_with("case") && lines[13].contains("195.0 MiB"), "{text}");
    let told = "65 copies, ";
    assert!(lines[14].starts_with(told) && lines[14].contains("the 10 slowest above"), "{text}");
    let value: Value = serde_json::from_str(&run(65, &["--json"])).unwrap();
    let mut all = value["cases"][0]["copies"].as_array().unwrap().clone();
    all.sort_by(|a, b| b["seconds"].as_f64().unwrap().total_cmp(&a["seconds"].as_f64().unwrap()));
    for (line, copy) in lines[1..11].iter().zip(&all) {
        assert_eq!(line.split_once(' ').unwrap().0, copy["copy"].as_str().unwrap(), "{text}");
    }
}

#[test]
fn a_trace_of_a_run_is_always_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let file = workload(&dir, COPY);
    let path = dir.path().join("trace.json");
    let args = ["sapling", &file, "--baseline", "no-path"];
    let run = || {
        let ran = sim_run(&[&args[..], &["--trace", path.to_str().unwrap()]].concat());
        ran.succeeds();
        (std::fs::read(&path).unwrap(), ran.stdout)
    };
    let (first, stdout) = run();
    assert_eq!(run().0, first);
    assert_eq!(sim_run(&args).stdout, stdout);
    let value: Value = serde_json::from_slice(&first).unwrap();
    let of = |process: &str| {
        let events = value["traceEvents"].as_array().unwrap();
        let pid = &events.iter().find(|event| event["args"]["name"] == process).unwrap()["pid"];
        events.iter().filter(|e| e["pid"] == *pid && e["ph"] == "b").count()
    };
    assert_eq!((of("n0: one"), of("n0 (no-path): one")), (4, 4));
    assert_eq!(names(&dir), ["trace.json", "workload.toml"]);
}

/// The files in `dir`.
fn names(dir: &tempfile::TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(dir.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_trace_of_a_run_that_cannot_be_written_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = workload(&dir, COPY);
    let run = |trace: &str, code| {
        let ran = sim_run(&["sapling", &file, "--trace", trace]);
        assert_eq!(ran.code, code, "{}", ran.stderr);
        ran
    };
    let early = |trace: &str, words: &str| {
        let ran = run(trace, 1);
        assert!(ran.stdout.is_empty() && ran.stderr.contains(words), "{}", ran.stderr);
        assert!(!ran.stderr.contains("events in"), "{}", ran.stderr);
    };
    let gone = dir.path().join("no/trace.json");
    early(gone.to_str().unwrap(), "no/trace.json: No such file");
    early(dir.path().to_str().unwrap(), "Is a directory");
    let full = run("/dev/full", 1);
    assert!(full.stdout.starts_with("copy"), "{}", full.stdout);
    assert!(full.stderr.contains("trace: /dev/full: No space left"), "{}", full.stderr);
    assert!(run(&file, 2).stderr.contains("--trace names"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), COPY);
    assert_eq!(names(&dir), ["workload.toml"]);
}

#[test]
fn a_run_that_fails_leaves_the_trace_of_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = workload(&dir, &COPY.replace("65536", "1073741824"));
    let path = dir.path().join("trace.json");
    std::fs::write(&path, "of an earlier run").unwrap();
    let ran = sim_run(&["sapling", &file, "--trace", path.to_str().unwrap()]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "of an earlier run");
    assert_eq!(names(&dir), ["trace.json", "workload.toml"]);
}

#[test]
fn mistakes_of_a_run_have_their_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    let code = |args: &[&str], code, words: &str| {
        let ran = sim_run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?} {}", ran.stderr);
        assert!(ran.stderr.contains(words), "{args:?} {}", ran.stderr);
    };
    code(&["saplings", "micro"], 2, "two-nodes, sapling");
    code(&["sapling", "macro"], 2, "micro, priority");
    code(&["sapling", "micro", "--filter", "^tape"], 2, "no case");
    code(&["modern", "kv", "--nodes", "1"], 2, "memories");
    code(&["sapling", "no/such.toml"], 1, "no/such.toml");
    code(&["sapling", "micro", "--nodes", "0"], 2, "--nodes");
    code(&["sapling", "micro", "--transfers", "5"], 2, "exchange");
    code(&["sapling", &workload(&dir, COPY), "--transfers", "5"], 2, "exchange");
    code(&["sapling", "exchange", "--transfers", "0"], 2, "--transfers");
    code(&["sapling", "exchange", "--transfers", "4194305"], 2, "--transfers");
    code(&["sapling", "micro", "--dma-threads", "2"], 2, "--baseline");
    code(&["sapling", "micro", "--baseline", "no-path", "--dma-threads", "2"], 2, "dma-threads");
    code(&["sapling", &workload(&dir, &COPY.replace("x=", "x"))], 1, "copy[0].dims");
    code(&["sapling", &workload(&dir, &COPY.replace("n1.fbm", "n7.fbm"))], 1, "`n7.fbm`");
    let large = workload(&dir, &COPY.replace("65536", "1073741824"));
    code(
        &["sapling", &large],
        1,
        "one: copy `copy0`: its instances need 8589934592 bytes of n0.fbm",
    );
    let text = std::fs::read_to_string(process::cluster("two-nodes.toml")).unwrap();
    let path = dir.path().join("two-classes.toml");
    let class = "[[node]]\nname = \"m\"\nmemory = []\n";
    std::fs::write(&path, format!("{text}\n{class}")).unwrap();
    code(&[path.to_str().unwrap(), "micro", "--nodes", "3"], 2, "several classes");
    assert!(sim_run(&["--help"]).stdout.contains("store-and-forward"));
}

#[test]
fn ctrl_c_stops_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let endless = COPY.replace("n0.fbm", "n0.zcm").replace("n1.fbm", "n1.reg");
    let file = workload(&dir, &endless.replace("65536", "1125899906842624"));
    let trace = dir.path().join("trace.json");
    let trace = ["--trace", trace.to_str().unwrap()];
    let args = [&["sim", "run", "two-nodes", &file], &trace[..]].concat();
    let mut command = process::command(&args);
    let command = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 0b10 != 0
    };
    let late = Instant::now() + Duration::from_secs(60);
    while !listens() {
        assert!(Instant::now() < late, "it does not listen");
        std::thread::sleep(Duration::from_millis(2));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran: process::Ran = child.wait_with_output().unwrap().into();
    assert_eq!((ran.code, ran.stdout.as_str()), (130, ""), "{}", ran.stderr);
    assert_eq!(names(&dir), ["workload.toml"]);
}
