//! Copies from files to files: layouts, rings that wrap, commits, and what goes wrong.

use isometry::model::ChannelErrorKind;
use isometry::planner::Options;
use isometry::{
    ArgumentError, Array, CopyOptions, Error, ErrorKind, FileOptions, Instance, Machine,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

fn machine() -> Machine {
    Machine::builder().assume(true).lanes(1).staging(1 << 20).open().unwrap()
}

fn noise(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A `.npy` file of `shape` with bytes of type `u1`, as NumPy would write it.
fn npy(path: &Path, shape: &[u64]) -> Vec<u8> {
    use npyz::WriterBuilder;
    let data = noise(shape.iter().product::<u64>() as usize);
    let file = fs::File::create(path).unwrap();
    let options = npyz::WriteOptions::new().default_dtype().shape(shape);
    let mut writer = options.writer(std::io::BufWriter::new(file)).begin_nd().unwrap();
    writer.extend(data.iter().copied()).unwrap();
    writer.finish().unwrap();
    data
}

fn read_npy(path: &Path) -> (Vec<u64>, Vec<u8>) {
    let file = npyz::NpyFile::new(std::io::BufReader::new(fs::File::open(path).unwrap())).unwrap();
    (file.shape().to_vec(), file.into_vec().unwrap())
}

fn named(dims: &str) -> FileOptions {
    FileOptions { dims: Some(dims.chars().map(String::from).collect()), ..FileOptions::default() }
}

struct Scene {
    dir: TempDir,
    machine: Machine,
}

impl Scene {
    fn new() -> Self {
        Scene { dir: tempfile::tempdir().unwrap(), machine: machine() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `in.npy` of shape (n, h, w, c), open, and its bytes.
    fn images(&self, shape: [u64; 4]) -> (Instance, Vec<u8>) {
        let data = npy(&self.path("in.npy"), &shape);
        (self.machine.open_file(self.path("in.npy"), &named("nhwc")).unwrap(), data)
    }

    fn create(&self, name: &str, like: &Instance, layout: &str) -> Result<Instance, Error> {
        let array = like.array().laid_out(layout)?;
        self.machine.create_file(self.path(name), array, &FileOptions::default())
    }

    fn left(&self) -> Vec<String> {
        let names = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> =
            names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn planes(data: &[u8], [n, h, w, c]: [usize; 4]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    for image in 0..n {
        for channel in 0..c {
            out.extend((0..h * w).map(|p| data[(image * h * w + p) * c + channel]));
        }
    }
    out
}

#[test]
fn nhwc_becomes_nchw_through_rings_that_wrap() {
    let scene = Scene::new();
    let shape = [40, 64, 96, 3];
    let (src, data) = scene.images(shape);
    let dst = scene.create("out.npy", &src, "nchw").unwrap();
    let planning = Options { th_bytes: Some(96 << 10), ..Options::default() };
    let options = CopyOptions { planning, sync: true, ..CopyOptions::default() };
    let planned = scene.machine.plan(&src, &dst, &planning).unwrap();
    let largest = planned.plan.buffers.iter().map(|b| b.bytes).max().unwrap();
    assert!(largest * 4 <= data.len() as u64, "the rings wrap: {}", planned.explain());
    let event = scene.machine.copy(&src, &dst, &options).unwrap();
    event.wait(Some(Duration::from_secs(60))).unwrap();
    let (shape_out, out) = read_npy(&scene.path("out.npy"));
    assert_eq!(shape_out, [40, 3, 64, 96]);
    assert_eq!(out, planes(&data, shape.map(|n| n as usize)));
    assert_eq!(scene.left(), ["in.npy", "out.npy"]);
    assert!(dst.commit(false).is_err(), "it was committed by the copy");
    assert!(matches!(src.commit(false), Err(Error::Argument(ArgumentError::NothingToCommit))));
}

#[test]
fn files_and_memory_exchange_any_layout() {
    let scene = Scene::new();
    let (src, data) = scene.images([3, 17, 13, 5]);
    let host = scene
        .machine
        .empty(src.array().laid_out("<w_in=4, F, c, w_out, h, n>").unwrap(), "sys")
        .unwrap();
    scene.machine.copy(&src, &host, &CopyOptions::default()).unwrap().wait(None).unwrap();
    for (name, layout) in [("a.npy", "nhwc"), ("b.safetensors", "nhwc"), ("c.raw", "nhwc")] {
        let dst = scene.create(name, &src, layout).unwrap();
        scene.machine.copy(&host, &dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
        let raw = name.ends_with(".raw").then(|| src.array());
        let options = FileOptions { raw, ..named("nhwc") };
        let again = scene.machine.open_file(scene.path(name), &options).unwrap();
        let back = scene.machine.empty(src.array(), "sys").unwrap();
        scene.machine.copy(&again, &back, &CopyOptions::default()).unwrap().wait(None).unwrap();
        assert_eq!(back.to_vec().unwrap(), data, "{name}");
    }
    assert_eq!(scene.machine.tensors(scene.path("b.safetensors")).unwrap(), ["data"]);
}

#[test]
fn a_file_appears_when_it_is_whole() {
    let scene = Scene::new();
    let (src, data) = scene.images([4, 8, 8, 3]);
    let dst = scene.create("out.npy", &src, "nhwc").unwrap();
    for half in [0..2, 2..4] {
        let (a, b) =
            (src.select(&[("n", half.clone())]).unwrap(), dst.select(&[("n", half)]).unwrap());
        scene.machine.copy(&a, &b, &CopyOptions::default()).unwrap().wait(None).unwrap();
        assert!(!scene.path("out.npy").exists());
    }
    dst.commit(true).unwrap();
    assert_eq!(read_npy(&scene.path("out.npy")).1, data);
    assert!(dst.commit(true).is_err());
    let forgotten = scene.create("never.npy", &src, "nhwc").unwrap();
    assert_eq!(scene.left().len(), 3);
    drop(forgotten);
    assert_eq!(scene.left(), ["in.npy", "out.npy"]);
    let kept = scene.create("kept.npy", &src, "nhwc").unwrap();
    scene.machine.close();
    assert_eq!(scene.left(), ["in.npy", "out.npy"], "closing deletes what was not committed");
    assert!(matches!(kept.commit(false), Err(Error::Closed)));
}

#[test]
fn a_list_of_all_indices_covers_a_file() {
    let scene = Scene::new();
    let (src, data) = scene.images([2, 4, 4, 3]);
    for (name, list, expected) in [
        ("as.npy", [0, 1], data.clone()),
        ("turned.npy", [1, 0], [&data[48..], &data[..48]].concat()),
    ] {
        let dst = scene.create(name, &src, "nhwc").unwrap();
        let pages = dst.take("n", &list).unwrap();
        scene.machine.copy(&src, &pages, &CopyOptions::default()).unwrap().wait(None).unwrap();
        assert_eq!(read_npy(&scene.path(name)).1, expected);
    }
}

#[test]
fn a_cancelled_copy_leaves_nothing() {
    let scene = Scene::new();
    let (src, _) = scene.images([64, 128, 128, 3]);
    let dst = scene.create("out.npy", &src, "nchw").unwrap();
    let event = scene.machine.copy(&src, &dst, &CopyOptions::default()).unwrap();
    event.cancel();
    assert!(event.is_done());
    let outcome = event.wait(None);
    assert!(matches!(outcome, Err(Error::Cancelled) | Ok(())), "{outcome:?}");
    drop(dst);
    assert_eq!(scene.path("out.npy").exists(), outcome.is_ok());
    assert!(!scene.left().iter().any(|n| n.ends_with(".tmp")));
}

#[test]
fn what_a_format_lacks_is_a_layout_error() {
    let scene = Scene::new();
    let (src, _) = scene.images([2, 4, 4, 3]);
    let error = scene.create("out.npy", &src, "<w_in=2, F, w_out, h, c, n>").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Layout, "{error}");
    assert_eq!(scene.left(), ["in.npy"]);
}

#[test]
fn wrong_files_are_clear_errors() {
    let scene = Scene::new();
    let (src, _) = scene.images([2, 4, 4, 3]);
    let open = |name: &str, options: &FileOptions| {
        scene.machine.open_file(scene.path(name), options).map(drop)
    };
    let kind = |result: Result<(), Error>| result.unwrap_err().kind();
    fs::write(scene.path("bad.npy"), b"\x93NUMPY\x01\x00\xff\xff{").unwrap();
    assert_eq!(kind(open("bad.npy", &FileOptions::default())), ErrorKind::FileFormat);
    let whole = fs::read(scene.path("in.npy")).unwrap();
    fs::write(scene.path("short.npy"), &whole[..whole.len() - 1]).unwrap();
    assert_eq!(kind(open("short.npy", &FileOptions::default())), ErrorKind::FileFormat);
    assert_eq!(kind(open("in.npy", &named("nhw"))), ErrorKind::Argument);
    assert_eq!(kind(open("none.npy", &FileOptions::default())), ErrorKind::Io);
    assert_eq!(kind(open(".", &FileOptions::default())), ErrorKind::Io);
    fs::write(scene.path("x.raw"), [0; 10]).unwrap();
    assert_eq!(kind(open("x.raw", &FileOptions::default())), ErrorKind::Argument);
    let raw = FileOptions {
        raw: Some(Array::of(&[("x", 11)], "|u1").unwrap()),
        ..FileOptions::default()
    };
    assert_eq!(kind(open("x.raw", &raw)), ErrorKind::FileFormat);
    assert_eq!(kind(open("in.npy", &raw)), ErrorKind::Argument);
    let tensor = FileOptions { tensor: Some("t".to_owned()), ..named("nhwc") };
    assert_eq!(kind(open("in.npy", &tensor)), ErrorKind::Argument);
    let created = scene.machine.create_file(scene.path("out.npy"), src.array(), &tensor);
    assert_eq!(kind(created.map(drop)), ErrorKind::Argument);
    fs::create_dir(scene.path("dir.npy")).unwrap();
    assert!(scene.create("dir.npy", &src, "nhwc").is_err());
    assert!(
        scene
            .machine
            .create_file(scene.path("no/such/dir.npy"), src.array(), &FileOptions::default())
            .is_err()
    );
    assert!(matches!(
        scene.machine.copy(&src, &src, &CopyOptions::default()),
        Err(Error::Argument(ArgumentError::ReadOnly))
    ));
}

#[test]
fn a_nul_in_a_path_is_a_wrong_argument() {
    let scene = Scene::new();
    let (src, _) = scene.images([2, 4, 4, 3]);
    let path = scene.path("a\0b.npy");
    let options = FileOptions::default();
    let disk = Machine::builder().assume(true).lanes(1).disk(&path).open();
    for refused in [
        scene.machine.open_file(&path, &options).map(drop),
        scene.machine.create_file(&path, src.array(), &options).map(drop),
        scene.machine.create_file(path.join("c.npy"), src.array(), &options).map(drop),
        scene.machine.tensors(&path).map(drop),
        disk.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
        assert!(error.to_string().contains("a\\0b.npy"), "{error}");
    }
}

#[test]
fn a_file_that_shrinks_fails_its_copy_alone() {
    let scene = Scene::new();
    let (src, _) = scene.images([8, 64, 64, 3]);
    let dst = scene.create("out.npy", &src, "nchw").unwrap();
    fs::OpenOptions::new().write(true).open(scene.path("in.npy")).unwrap().set_len(5000).unwrap();
    let event = scene.machine.copy(&src, &dst, &CopyOptions::default()).unwrap();
    match event.wait(None).unwrap_err() {
        Error::Transfer { memory, error } => {
            assert_eq!((&*memory, error.hop), ("dsk", 0), "{error}");
        }
        error => panic!("{error}"),
    }
    drop(dst);
    assert_eq!(scene.left(), ["in.npy"]);
    let (src, data) = scene.images([2, 4, 4, 3]);
    let dst = scene.machine.empty(src.array(), "sys").unwrap();
    scene.machine.copy(&src, &dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
    assert_eq!(dst.to_vec().unwrap(), data);
}

#[test]
fn two_machines_work_beside_each_other() {
    let (one, two) = (Scene::new(), Scene::new());
    let events: Vec<_> = [&one, &two]
        .into_iter()
        .map(|scene| {
            let (src, data) = scene.images([8, 32, 32, 3]);
            let dst = scene.create("out.npy", &src, "nchw").unwrap();
            (scene.machine.copy(&src, &dst, &CopyOptions::default()).unwrap(), data, scene)
        })
        .collect();
    for (event, data, scene) in events {
        event.wait(None).unwrap();
        assert_eq!(read_npy(&scene.path("out.npy")).1, planes(&data, [8, 32, 32, 3]));
    }
}

#[test]
fn two_writers_of_one_name_each_write_a_whole_file() {
    let (scene, other) = (Scene::new(), machine());
    let array = Array::of(&[("y", 512), ("x", 512)], "|u1").unwrap();
    let path = scene.path("out.npy");
    let writer = |machine: &Machine, byte: u8| {
        let src = machine.empty(array.clone(), "sys").unwrap();
        src.fill(&vec![byte; 512 * 512]).unwrap();
        let dst = machine.create_file(&path, array.clone(), &FileOptions::default()).unwrap();
        let top = |inst: &Instance| inst.select(&[("y", 0..511)]).unwrap();
        let options = CopyOptions::default();
        let event = machine.copy(&top(&src), &top(&dst), &options).unwrap();
        (src, dst, event)
    };
    let (one, two) = (writer(&scene.machine, 1), writer(&other, 2));
    for (byte, machine, (src, dst, event)) in [(1, &scene.machine, one), (2, &other, two)] {
        event.wait(None).unwrap();
        let bottom = |inst: &Instance| inst.select(&[("y", 511..512)]).unwrap();
        let options = CopyOptions::default();
        machine.copy(&bottom(&src), &bottom(&dst), &options).unwrap().wait(None).unwrap();
        dst.commit(false).unwrap();
        assert!(read_npy(&path).1 == vec![byte; 512 * 512], "the last commit is what is there");
    }
    assert_eq!(scene.left(), ["out.npy"]);
}

/// A disk without room for what was reserved: somebody has punched it out, and filled the disk.
#[test]
fn a_disk_that_fills_up_in_the_middle_fails_the_copy_and_keeps_nothing() {
    let (scene, full) = (Scene::new(), tempfile::tempdir().unwrap());
    let small = mount("none", full.path(), "tmpfs", MountFlags::empty(), Some(c"size=1m"));
    if let Err(errno) = small {
        println!("skipped: a_disk_that_fills_up_in_the_middle: no mount: {errno}");
        return;
    }
    let (src, _) = scene.images([8, 128, 128, 3]);
    let names = || -> Vec<_> {
        fs::read_dir(full.path()).unwrap().map(|e| e.unwrap().file_name()).collect()
    };
    let path = full.path().join("out.npy");
    let array = src.array().laid_out("nchw").unwrap();
    let dst = scene.machine.create_file(path, array, &FileOptions::default()).unwrap();
    let hidden = full.path().join(&names()[0]);
    fs::OpenOptions::new().write(true).open(hidden).unwrap().set_len(0).unwrap();
    let _ = fs::write(full.path().join("other"), vec![1; 2 << 20]);
    let ended = scene.machine.copy(&src, &dst, &CopyOptions::default()).unwrap().wait(None);
    drop(dst);
    let left = names();
    unmount(full.path(), UnmountFlags::DETACH).unwrap();
    let Err(Error::Transfer { memory, error }) = ended else { panic!("{ended:?}") };
    assert_eq!((&*memory, error.cause.kind), ("dsk1", ChannelErrorKind::NoSpace), "{error}");
    assert_eq!(left, ["other"]);
}

#[test]
fn stale_temporaries_go_at_the_first_use_of_their_directory() {
    let scene = Scene::new();
    let stale = scene.path(".out.npy.isometry-2147483646-0123456789abcdef.tmp");
    fs::write(&stale, "half").unwrap();
    let (src, _) = scene.images([1, 2, 2, 3]);
    assert!(!stale.exists());
    drop(src);
}

#[test]
fn a_trace_counts_what_stands_in_each_buffer() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Machine::builder().assume(true).lanes(1).staging(1 << 20);
    let machine = builder.trace(true).open().unwrap();
    let data = npy(&dir.path().join("in.npy"), &[1024, 1024]);
    let src = machine.open_file(dir.path().join("in.npy"), &named("yx")).unwrap();
    let turned = src.array().laid_out("xy").unwrap();
    let options = FileOptions::default();
    let dst = machine.create_file(dir.path().join("out.npy"), turned, &options).unwrap();
    let buffers = machine.plan(&src, &dst, &Options::default()).unwrap().plan.buffers.clone();
    machine.copy(&src, &dst, &CopyOptions::default()).unwrap().wait(None).unwrap();
    let json = machine.trace_json().unwrap();
    assert!(buffers.len() > 1, "{buffers:?}");
    for (i, buffer) in buffers.iter().enumerate() {
        let name = format!("copy 0 buffer {i}");
        let counted = json["traceEvents"].as_array().unwrap().iter().filter(|e| e["name"] == *name);
        let bytes: Vec<u64> = counted.map(|e| e["args"]["bytes"].as_u64().unwrap()).collect();
        assert!(bytes.iter().all(|&b| b <= buffer.bytes), "{name}: {bytes:?} of {buffer:?}");
        let moved = bytes.iter().max().unwrap();
        assert!(*moved > 0 && bytes.last() == Some(&0), "{name}: {bytes:?}");
        let filled = bytes.windows(2).map(|w| w[1].saturating_sub(w[0])).sum::<u64>() + bytes[0];
        assert_eq!(filled, data.len() as u64, "everything went through {name}");
    }
}
