//! Every case runs, small and briefly: on the emulated driver, and by PoCL where that is.

use super::*;
use crate::settings::{Output, Stop};
use fake_cuda::Fake;
use isometry::{Accelerators, Cuda, Machine, MachineBuilder};
use std::time::Duration;
use tempfile::TempDir;

/// The same cases as the real ones, for devices with next to no memory.
const SMALL: &str = "
    rows = { bytes = 65536, rows = [64, 4096, 65536], runs = 2 }
    small = { sizes_bytes = [64, 1024], batch = 3, runs = 2 }

    [[inside]]
    name = 'transpose, inside the device'
    dims = 'y=96, x=130'
    dtype = '<f4'
    from = 'yx'
    to = 'xy'
    runs = 2

    [[path]]
    name = 'AOS to SOA, disk to device'
    dims = 'i=65536'
    dtype = \"[('a', '<f4'), ('b', '<f4')]\"
    from = 'i'
    to = '<i, F>'
    runs = 2
";

/// Three lengths by five routes, two sizes by as many, a run across, a conversion and a path.
const CASES: usize = 3 * 5 + 2 * 5 + 1 + 1 + 1;

fn settings(folder: &TempDir) -> Settings {
    Settings {
        filter: None,
        runs: None,
        budget: Duration::ZERO,
        out: folder.path().to_owned(),
        files: folder.path().to_owned(),
        output: Output::Error,
        stop: Stop::default(),
    }
}

fn builder() -> MachineBuilder {
    Machine::builder().lanes(1).staging(2 << 20).assume(true)
}

/// Runs what `text` says on `api`.
fn report(api: &Api, text: &str) -> Result<Report, Error> {
    // Where temporary files go there may be no disk.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let mut bench = Bench::new("accel", &settings(&folder))?;
    run_api(&mut bench, api, &problems::read("accel", text)?)?;
    bench.finish()
}

/// The names of cases that ran, all of which were right and timed beside the API alone.
fn right(report: &Report) -> Vec<String> {
    assert_eq!(report.wrong, [""; 0]);
    let cases = report.json["cases"].as_array().unwrap();
    for case in cases {
        assert!(case["seconds"].as_object().unwrap().len() >= 2, "{case}");
        assert!(case["ratio"].as_object().unwrap().values().all(|r| r[1].as_f64() > Some(0.0)));
        let path = case["notes"]["path"].as_str().unwrap_or_default();
        assert!(!path.contains("for themselves"), "{path}");
    }
    cases.iter().map(|case| case["case"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_case_runs_on_the_emulated_driver_and_says_so() {
    let Some(fake) = Fake::load() else { return };
    let api = api::cuda(builder(), Cuda::Driver(fake.path().to_owned())).unwrap();
    let report = report(&api, SMALL).unwrap();
    let names = right(&report);
    assert_eq!(names.len(), CASES);
    assert!(names.iter().all(|name| name.starts_with("emulated CUDA: ")), "{names:?}");
    let machine = report.json["machine"].as_str().unwrap();
    assert!(machine.contains("emulated CUDA: Emulated 0 by CUDA 12.8, Emulated 1"), "{machine}");
    for call in ["cuMemcpy2DAsync_v2", "cuMemcpyPeerAsync", "cuLaunchKernel"] {
        assert!(fake.count(call) > 0, "{call}");
    }
}

#[test]
fn every_case_runs_by_pocl_and_says_so() {
    let api = match api::opencl(builder(), (Accelerators::All, true)) {
        Ok(api) => api,
        Err(why) => return println!("skipped: every_case_runs_by_pocl_and_says_so: {why}"),
    };
    let report = report(&api, SMALL).unwrap();
    let names = right(&report);
    let left_out = report.json["left_out"].as_array().map_or(0, Vec::len);
    assert_eq!(names.len() + left_out, CASES);
    assert_eq!(left_out, usize::from(!api.has_two()), "a run across takes two devices");
    let is_named = |name: &String| name.starts_with(&format!("{}: ", api.label));
    assert!(names.iter().all(is_named), "{names:?}");
}

#[test]
fn what_a_device_has_no_room_for_is_left_out_by_name() {
    let Some(fake) = Fake::load() else { return };
    let api = api::cuda(builder(), Cuda::Driver(fake.path().to_owned())).unwrap();
    // 64 MiB are what an emulated device has.
    let large = SMALL.replace("bytes = 65536, rows = [64,", "bytes = 33554432, rows = [1048576,");
    let report = report(&api, &large.replace("65536], runs", "33554432], runs")).unwrap();
    let left_out = report.json["left_out"].as_array().unwrap();
    assert!(left_out.contains(&"emulated CUDA: host to device, one run of 32 MiB".into()));
    assert_eq!(right(&report).len() + left_out.len(), CASES);
}

#[test]
fn a_device_that_fails_ends_the_group() {
    let Some(fake) = Fake::load() else { return };
    let api = api::cuda(builder(), Cuda::Driver(fake.path().to_owned())).unwrap();
    fake.refuse("cuMemcpyHtoDAsync_v2", 801);
    let error = report(&api, SMALL).unwrap_err().to_string();
    assert!(error.contains("801"), "{error}");
}

#[test]
fn what_is_not_there_or_not_asked_for_says_so() {
    let driver = Cuda::Driver("/nowhere/libcuda.so.1".into());
    let absent = api::cuda(builder(), driver).unwrap_err().to_string();
    assert!(absent.contains("/nowhere/libcuda.so.1"), "{absent}");
    let refused = api::cuda(builder(), Cuda::None).unwrap_err().to_string();
    assert!(refused.contains("ISOMETRY_CUDA is none"), "{refused}");
    let refused = api::opencl(builder(), (Accelerators::None, true)).unwrap_err().to_string();
    assert!(refused.contains("ISOMETRY_OPENCL is none"), "{refused}");
}

#[test]
fn the_problems_are_well_formed() {
    let problems: Problems = problems::read("accel", PROBLEMS).unwrap();
    let RowProblems { bytes, rows, .. } = &problems.rows;
    assert!(rows.iter().all(|row| bytes.is_multiple_of(*row)));
    assert!(rows.contains(bytes), "a whole run, which the aim is about");
    let conversions = problems.inside.iter().chain(&problems.path);
    conversions.for_each(|conversion| _ = conversion.arrays().unwrap());
    let sizes = [64, 3 << 10, 5 << 20, 1500].map(size);
    assert_eq!(sizes, ["64 B", "3 KiB", "5 MiB", "1500 B"]);
}
