//! A machine without OpenCL, or without a device of it: each in a process of its own, since a
//! library is loaded once.

use isometry_channel_opencl::find;
use std::path::Path;
use std::process::Command;

/// In the processes that look for devices, this says so.
const CHILD: &str = "ISOMETRY_OPENCL_CHILD";

/// Not a test by itself: what the processes run.
#[test]
fn looks_for_devices() {
    if std::env::var_os(CHILD).is_some() {
        let first = find().map(|found| found.len());
        assert_eq!(find().map(|found| found.len()), first, "it says the same again");
        match first {
            Ok(count) => println!("found {count}"),
            Err(why) => println!("absent: {why}"),
        }
    }
}

/// What a process says that runs `test` alone, with these variables.
fn said(test: &str, variables: &[(&str, &Path)]) -> String {
    let this = std::env::current_exe().unwrap();
    let mut child = Command::new(this);
    child.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
    let output = child.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_missing_library_is_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    // What the linker finds first is no library, and it looks no further.
    std::fs::write(dir.path().join("libOpenCL.so.1"), "").unwrap();
    let said = said("looks_for_devices", &[("LD_LIBRARY_PATH", dir.path())]);
    assert!(said.contains("absent: no OpenCL: libOpenCL.so.1 can't be loaded"), "{said}");
}

#[test]
fn a_library_without_devices_is_one_sentence() {
    if find().is_err() {
        println!("skipped: a_library_without_devices_is_one_sentence: there is no OpenCL at all");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let said = said("looks_for_devices", &[("OCL_ICD_VENDORS", dir.path())]);
    assert!(said.contains("absent: no OpenCL device: install the driver"), "{said}");
}

/// In a process of its own, where nobody has asked before.
#[test]
fn threads_that_look_at_once_find_the_same() {
    if std::env::var_os(CHILD).is_some() {
        let looks: Vec<_> = (0..8).map(|_| std::thread::spawn(find)).collect();
        let found = looks.into_iter().map(|look| look.join().unwrap());
        let infos = found.map(|found| {
            found.map(|found| found.iter().map(|f| f.info().clone()).collect::<Vec<_>>())
        });
        let infos: Vec<_> = infos.collect();
        assert!(infos.windows(2).all(|pair| pair[0] == pair[1]), "{infos:?}");
    } else {
        said("threads_that_look_at_once_find_the_same", &[]);
    }
}
