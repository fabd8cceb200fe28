//! The raw program does what we do, and the check sees what went wrong.

use super::*;
use crate::settings::Output;
use std::os::unix::fs::FileExt;

const SMALL: &str = "[[case]]\nname = 'a'\ndims = 'y=700, x=900'\ndtype = '<f4'\nfrom = 'yx'\n\
                     to = 'xy'\nruns = 1\n";

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

fn scene(dir: &Path) -> Scene {
    let problems: Conversions = problems::read("disk", SMALL).unwrap();
    let [from, to] = problems.case[0].arrays().unwrap();
    let expected = Numbers::of(&from).unwrap().laid_out(&to.layout).unwrap();
    let stop = Stop::default();
    write_input(&dir.join("in.raw"), &Content::of(&from).unwrap(), &stop).unwrap();
    let machine = Machine::builder().assume(true).disk(dir).open().unwrap();
    let options = FileOptions { raw: Some(from), ..FileOptions::default() };
    let src = machine.open_file(dir.join("in.raw"), &options).unwrap();
    Scene { machine, src, to, expected, dir: dir.to_owned(), stop }
}

#[test]
fn the_problems_can_be_read() {
    let problems: Conversions = problems::read("disk", PROBLEMS).unwrap();
    let bytes = |c: &Conversion| c.arrays().unwrap()[0].bytes().unwrap();
    assert!(problems.case.iter().any(|c| bytes(c) == 2 << 30), "the issue asks for 2 GiB");
    assert!(problems.case.iter().all(|c| c.runs >= 5));
}

#[test]
fn a_wrong_byte_of_the_output_is_found() {
    let dir = directory();
    let scene = scene(dir.path());
    scene.convert().unwrap();
    assert!(scene.is_converted().unwrap());
    let file = File::options().write(true).open(dir.path().join("out.raw")).unwrap();
    file.write_all_at(&[1, 2, 3, 4], 4 * 123_456).unwrap();
    assert!(!scene.is_converted().unwrap());
}

#[test]
fn the_operations_cover_both_files_and_the_raw_program_makes_them() {
    let dir = directory();
    let scene = scene(dir.path());
    let planned = scene.plan().unwrap();
    let operations = Operations::of(&planned.plan, &scene).unwrap();
    let bytes = scene.src.payload_bytes();
    for all in [&operations.reads, &operations.writes] {
        let mut sorted: Vec<_> = all.iter().map(|o| (o.offset, o.offset + o.bytes)).collect();
        sorted.sort_unstable();
        let covered = sorted.iter().try_fold(0, |to, o| (o.0 <= to).then_some(to.max(o.1)));
        assert!(covered.is_some_and(|to| to >= bytes), "{sorted:?}");
    }
    let written: u64 = operations.writes.iter().map(|o| o.bytes).sum();
    assert_eq!(written, bytes, "nothing is written twice");
    let Ok(mut raw) = Raw::new(&scene, &operations) else {
        println!("skipped: raw: the kernel forbids io_uring");
        return;
    };
    raw.run(&operations, &scene.stop).unwrap();
    raw.run(&operations.sequential(bytes), &scene.stop).unwrap();
    scene.settle().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the input stays");
}

#[test]
fn an_interrupted_group_leaves_nothing() {
    let dir = directory();
    let stop = Stop::on(std::sync::Arc::new(true.into()));
    let settings = Settings {
        filter: None,
        runs: Some(1),
        budget: std::time::Duration::ZERO,
        out: dir.path().to_owned(),
        files: dir.path().to_owned(),
        output: Output::Error,
        stop,
    };
    assert!(matches!(run(&settings), Err(Error::Interrupted)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
