//! `iso copy` as a process, on files.

mod process;

use process::{Ran, command, iso};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A directory with `in.npy`: `shape` entries of two bytes that count up.
struct Files {
    dir: tempfile::TempDir,
    data: Vec<u8>,
}

impl Files {
    fn new(shape: &[usize]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let entries: usize = shape.iter().product();
        let data: Vec<u8> = (0..entries).flat_map(|i| (i as u16).to_le_bytes()).collect();
        let shape: String = shape.iter().map(|n| format!("{n}, ")).collect();
        let head = format!("{{'descr': '<u2', 'fortran_order': False, 'shape': ({shape}), }}");
        let padding = (64 - (10 + head.len() + 1) % 64) % 64;
        let head = format!("{head}{}\n", " ".repeat(padding));
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((head.len() as u16).to_le_bytes());
        bytes.extend(head.as_bytes());
        bytes.extend(&data);
        fs::write(dir.path().join("in.npy"), bytes).unwrap();
        Files { dir, data }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn copy(&self, dst: &str, more: &[&str]) -> Ran {
        let (src, dst) = (self.path("in.npy"), self.path(dst));
        iso(&[&["copy", &src, &dst], more].concat())
    }

    /// A copy to `out.npy` under a limit of the shell's `ulimit`.
    fn copy_within(&self, limit: &str, most: u32) -> Ran {
        let script = format!("ulimit {limit} {most} && exec \"$0\" copy \"$1\" \"$2\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_iso")]);
        shell.args([self.path("in.npy"), self.path("out.npy")]).output().unwrap().into()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The data of a `.npy` file, whatever its header.
    fn data_of(&self, name: &str) -> Vec<u8> {
        let bytes = fs::read(self.dir.path().join(name)).unwrap();
        bytes[bytes.len() - self.data.len()..].to_vec()
    }
}

fn transposed(data: &[u8], rows: usize, columns: usize) -> Vec<u8> {
    let entry = |i: usize| data[2 * i..2 * i + 2].to_vec();
    (0..columns).flat_map(|x| (0..rows).flat_map(move |y| entry(y * columns + x))).collect()
}

#[test]
fn a_layout_changes_on_the_way() {
    let files = Files::new(&[300, 500]);
    let ran = files.copy("out.npy", &["--dims", "yx", "--layout", "xy", "--verify"]);
    ran.succeeds();
    assert!(ran.stdout.contains("verified") && ran.stderr.contains("→"), "{}", ran.stderr);
    assert_eq!(files.data_of("out.npy"), transposed(&files.data, 300, 500));
    assert_eq!(files.names(), ["in.npy", "out.npy"]);
}

#[test]
fn json_goes_to_standard_output_alone() {
    let files = Files::new(&[64, 64]);
    let trace = files.path("trace.json");
    fs::write(&trace, " ".repeat(1 << 20) + "of an earlier copy").unwrap();
    let more = ["--dims", "y,x", "--layout", "x,y", "--json", "--trace", &trace, "--sync"];
    let ran = files.copy("out.npy", &more);
    ran.succeeds();
    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(value["bytes"], 64 * 64 * 2);
    assert_eq!(value["verified"], false);
    assert!(value["throughput"].as_f64().unwrap() > 0.0);
    assert_eq!(value["report"][0]["outcome"], "done");
    let trace: Value = serde_json::from_str(&fs::read_to_string(trace).unwrap()).unwrap();
    assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
}

#[test]
fn a_trace_is_replayed() {
    let files = Files::new(&[64, 64]);
    let trace = files.path("trace.json");
    files.copy("out.npy", &["--dims", "y,x", "--layout", "x,y", "--trace", &trace]).succeeds();
    let here = files.path("here.json");
    let topo = process::command(&["topo", "--json"]).current_dir(files.path(".")).output().unwrap();
    fs::write(&here, topo.stdout).unwrap();
    let ran = iso(&["sim", "run", &here, &trace, "--json"]);
    ran.succeeds();
    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(value["workload"], "trace");
    let copy = &value["cases"][0]["copies"][0];
    assert_eq!(copy["bytes"], 64 * 64 * 2);
    assert!(copy["ended_ns"].as_u64() > copy["launched_ns"].as_u64(), "{copy}");
    fs::write(&trace, "{\n\"traceEvents\": []}").unwrap();
    let ran = iso(&["sim", "run", &here, &trace]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("line 2") && ran.stderr.contains("`copy`"), "{}", ran.stderr);
}

#[test]
fn a_trace_that_cannot_be_written_is_told_before_the_copy() {
    let files = Files::new(&[4, 6]);
    let ran = files.copy("out.npy", &["--trace", &files.path("no/trace.json")]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("no/trace.json: No such file"), "{}", ran.stderr);
    assert_eq!(files.names(), ["in.npy"]);
}

#[test]
fn a_trace_is_not_written_over_what_is_copied() {
    let files = Files::new(&[4, 6]);
    let whole = fs::read(files.path("in.npy")).unwrap();
    std::os::unix::fs::symlink("in.npy", files.path("link.json")).unwrap();
    for trace in ["in.npy", "link.json", "out.npy", "./out.npy"] {
        let ran = files.copy("out.npy", &["--trace", &files.path(trace)]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{trace}: {}", ran.stderr);
        assert!(ran.stderr.contains("--trace names"), "{trace}: {}", ran.stderr);
    }
    let tensor = files.copy("t.safetensors#t", &["--trace", &files.path("t.safetensors")]);
    assert_eq!(tensor.code, 2, "{}", tensor.stderr);
    assert_eq!(fs::read(files.path("in.npy")).unwrap(), whole);
    assert_eq!(files.names(), ["in.npy", "link.json"]);
}

#[test]
fn a_trace_hides_no_failure_of_its_copy() {
    let files = Files::new(&[4, 6]);
    let (gone, out) = (files.path("gone.npy"), files.path("out.npy"));
    let ran = iso(&["copy", &gone, &out, "--trace", "/dev/full"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("gone.npy: No such file"), "{}", ran.stderr);
    let ran = files.copy("out.npy", &["--trace", "/dev/full"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("trace: /dev/full: No space left"), "{}", ran.stderr);
}

#[test]
fn raw_and_safetensors_files_are_named_by_their_ends() {
    let files = Files::new(&[40, 30]);
    let raw = ["--dims", "yx", "--layout", "<F, x_in=8, y, x_out>", "--verify"];
    files.copy("out.bin", &raw).succeeds();
    assert_eq!(fs::metadata(files.path("out.bin")).unwrap().len(), 40 * 32 * 2);
    files.copy("one.safetensors", &["--dims", "yx", "--verify"]).succeeds();
    let (one, back) = (files.path("one.safetensors"), files.path("back.npy"));
    iso(&["copy", &format!("{one}#data"), &back, "--dims", "yx"]).succeeds();
    assert_eq!(files.data_of("back.npy"), files.data);
    assert_ne!(iso(&["copy", &format!("{one}#none"), &back]).code, 0);
    let plain = files.path("plain.bin");
    fs::write(&plain, &files.data).unwrap();
    let typed = ["copy", &plain, &back, "--dims", "y=40,x=30", "--dtype", "u2", "--layout", "xy"];
    iso(&typed).succeeds();
    assert_eq!(files.data_of("back.npy"), transposed(&files.data, 40, 30));
}

#[test]
fn what_cannot_be_read_fails_and_leaves_nothing() {
    let files = Files::new(&[40, 30]);
    let gone = iso(&["copy", &files.path("gone.npy"), &files.path("out.npy")]);
    assert_eq!((gone.code, gone.stdout.as_str()), (1, ""));
    assert!(gone.stderr.contains("gone.npy"), "{}", gone.stderr);
    let whole = fs::read(files.path("in.npy")).unwrap();
    fs::write(files.path("short.npy"), &whole[..whole.len() - 1]).unwrap();
    let short = iso(&["copy", &files.path("short.npy"), &files.path("out.npy")]);
    assert_eq!(short.code, 1, "{}", short.stderr);
    assert_eq!(files.copy("no/dir/out.npy", &[]).code, 1);
    let directory = files.copy("out.npy/", &[]);
    assert_eq!(directory.code, 1, "{}", directory.stderr);
    assert!(directory.stderr.contains("out.npy/: Is a directory"), "{}", directory.stderr);
    assert_eq!(files.names(), ["in.npy", "short.npy"]);
}

#[test]
fn names_that_do_not_fit_are_wrong_usage() {
    let files = Files::new(&[40, 30]);
    for wrong in [
        &["--dims", "xyz"][..],
        &["--dims", "xx"],
        &["--dims", "yx", "--layout", "yz"],
        &["--dims", "yx", "--layout", "<F, x_in=4, x_out, y>"],
        &["--priority", "high"],
        &["--dtype", "u2"],
    ] {
        let ran = files.copy("out.npy", wrong);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{wrong:?}: {}", ran.stderr);
    }
    let layout = files.copy("out.npy", &["--dims", "yx", "--layout", "yz"]);
    assert!(layout.stderr.contains("`yz`: expected"), "{}", layout.stderr);
    let reserved = files.copy("out.safetensors#__metadata__", &[]);
    assert_eq!(reserved.code, 2, "{}", reserved.stderr);
    assert_eq!(files.names(), ["in.npy"]);
}

/// Starts a copy that takes a while, and sends it `signal` while it writes.
fn interrupted(files: &Files, signal: Signal) -> Ran {
    let (src, dst) = (files.path("in.npy"), files.path("out.npy"));
    let args = ["copy", &src, &dst, "--dims", "yx", "--layout", "xy", "--sync"];
    let mut command = command(&args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_temporary(files.dir.path());
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn ctrl_c_leaves_nothing_half_written() {
    let files = Files::new(&[8192, 8192]);
    let ran = interrupted(&files, Signal::INT);
    assert_eq!((ran.code, ran.stdout.as_str()), (130, ""), "{}", ran.stderr);
    assert_eq!(files.names(), ["in.npy"]);
}

#[test]
fn a_signal_leaves_nothing_half_written_and_is_told_by_the_exit_code() {
    for (signal, code) in [(Signal::TERM, 128 + 15), (Signal::HUP, 128 + 1)] {
        let files = Files::new(&[8192, 8192]);
        let ran = interrupted(&files, signal);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{}", ran.stderr);
        assert_eq!(files.names(), ["in.npy"]);
    }
}

#[test]
fn no_path_is_told_with_the_names_of_memories() {
    let files = Files::new(&[40, 30]);
    let ran = files.copy("out.npy", &["--dims", "yx", "--layout", "xy", "--th", "0"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("from `dsk` to `dsk`"), "{}", ran.stderr);
    assert_eq!(files.names(), ["in.npy"]);
}

#[test]
fn the_next_run_cleans_up_after_one_that_was_killed() {
    let files = Files::new(&[8192, 8192]);
    assert_eq!(interrupted(&files, Signal::KILL).code, -1);
    assert!(!files.names().contains(&"out.npy".to_owned()));
    files.copy("other.npy", &["--dims", "yx"]).succeeds();
    assert_eq!(files.names(), ["in.npy", "other.npy"]);
}

/// Until the file that is being written is there, under whatever name.
fn wait_for_temporary(dir: &Path) {
    let late = Instant::now() + Duration::from_secs(60);
    let others = |dir: &Path| -> Vec<PathBuf> {
        let paths = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
        paths.filter(|p| !p.ends_with("in.npy")).collect()
    };
    while others(dir).is_empty() {
        assert!(Instant::now() < late, "the copy never started");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_destination_names_its_tensor() {
    let files = Files::new(&[4, 6]);
    files.copy("t.safetensors#weight", &["--verify"]).succeeds();
    assert_eq!(files.names(), ["in.npy", "t.safetensors"]);
    iso(&["copy", &files.path("t.safetensors#weight"), &files.path("a#b.npy")]).succeeds();
    let unknown = iso(&["copy", &files.path("t.safetensors#bias"), &files.path("c.npy")]);
    assert_eq!(unknown.code, 2, "{}", unknown.stderr);
    iso(&["copy", &files.path("a#b.npy"), &files.path("c.npy"), "--verify"]).succeeds();
    assert_eq!(files.data_of("c.npy"), files.data);
}

#[test]
fn paths_need_no_encoding() {
    let files = Files::new(&[4, 6]);
    let odd = |name: &[u8]| files.dir.path().join(OsStr::from_bytes(name));
    fs::rename(files.path("in.npy"), odd(b"in\xff.npy")).unwrap();
    let ran = command(&["copy"]).arg(odd(b"in\xff.npy")).arg(odd(b"out\xff.npy")).status();
    assert!(ran.unwrap().success());
    assert!(odd(b"out\xff.npy").exists());
}

#[test]
fn pipes_and_devices_are_refused() {
    let files = Files::new(&[4, 6]);
    let pipe = files.path("pipe");
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
    let (from, to) = (
        iso(&["copy", &pipe, &files.path("out.npy"), "--dims", "x=4", "--dtype", "u1"]),
        files.copy("pipe", &[]),
    );
    assert_eq!((from.code, to.code), (1, 1));
    assert!(from.stderr.contains("not a regular file"), "{}", from.stderr);
    assert!(to.stderr.contains("not a regular file"), "{}", to.stderr);
    assert_eq!(files.names(), ["in.npy", "pipe"]);
}

#[test]
fn a_process_without_descriptors_left_is_told_so() {
    let files = Files::new(&[4, 6]);
    for most in 8.. {
        let ran = files.copy_within("-n", most);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
        assert!(!ran.stderr.contains("io_uring"), "{}", ran.stderr);
        assert_eq!(files.names(), ["in.npy"]);
        if ran.stderr.contains("starting the channels of a disk: Too many open files") {
            return;
        }
    }
}

#[test]
fn a_file_past_the_limit_on_sizes_leaves_nothing() {
    let files = Files::new(&[300, 500]);
    let ran = files.copy_within("-f", 16);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("out.npy: File too large"), "{}", ran.stderr);
    assert_eq!(files.names(), ["in.npy"]);
}

/// What `env` exits with where it may not start a program.
const CANNOT_EXECUTE: i32 = 126;

/// Whom Linux systems call `nobody`.
const NOBODY: u32 = 65534;

#[test]
fn a_directory_for_reading_only_is_read_and_not_written() {
    let (files, out) = (Files::new(&[40, 30]), tempfile::tempdir().unwrap());
    let chmod = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    chmod(files.dir.path(), 0o555).unwrap();
    chmod(out.path(), 0o777).unwrap();
    let copy = |dst: &str| -> Ran {
        let mut command = command(&["copy", &files.path("in.npy"), dst]);
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().unwrap().into()
    };
    let written = out.path().join("out.npy");
    let read = copy(written.to_str().unwrap());
    if read.code == CANNOT_EXECUTE {
        println!("skipped: a_directory_for_reading_only: {}", read.stderr.trim_end());
        return;
    }
    read.succeeds();
    assert!(written.exists());
    let refused = copy(&files.path("out.npy"));
    chmod(files.dir.path(), 0o755).unwrap();
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("out.npy: Permission denied"), "{}", refused.stderr);
    assert_eq!(files.names(), ["in.npy"]);
}
