//! Curves are measured once and kept.

use isometry::model::{Channel, ChannelKind};
use isometry::{Array, FileOptions, Machine, MachineBuilder};
use std::fs;
use std::path::Path;

fn with_cache(dir: &Path) -> MachineBuilder {
    Machine::builder().lanes(1).staging(1 << 20).cache_dir(dir)
}

fn curves(machine: &Machine) -> Vec<Channel> {
    machine.topology().classes[0].channels.clone()
}

/// How many files have curves.
fn kept(cache: &Path) -> usize {
    let names = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().starts_with("curves-")).count()
}

#[test]
fn what_was_measured_is_kept_until_asked_again() {
    let (cache, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = with_cache(cache.path()).disk(disk.path()).open().unwrap();
    let kinds: Vec<_> = curves(&first).iter().map(|c| c.kind).collect();
    assert_eq!(kinds, [ChannelKind::Memcpy, ChannelKind::DiskRead, ChannelKind::DiskWrite]);
    for channel in curves(&first) {
        assert!(!channel.assumed && channel.curves.run.peak() > 1e6, "{channel:?}");
    }
    assert!(curves(&first)[0].curves.transpose.is_some());
    let crossover = curves(&first)[0].stream_from_bytes.unwrap();
    for from in [crossover.in_order, crossover.turned] {
        assert!((512 << 10..=32 << 20).contains(&from), "{crossover:?}");
    }
    assert_eq!(kept(cache.path()), 2);
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0, "the probe's file is gone");
    let second = with_cache(cache.path()).disk(disk.path()).open().unwrap();
    assert_eq!(curves(&first), curves(&second));
    with_cache(cache.path()).lanes(2).open().unwrap();
    assert_eq!(kept(cache.path()), 3, "two lanes have rates of their own");
    let third = with_cache(cache.path()).remeasure(true).open().unwrap();
    assert_ne!(curves(&first)[0], curves(&third)[0], "two measurements never agree in every bit");
}

#[test]
fn a_disk_joins_when_it_is_first_used() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::builder().assume(true).lanes(1).staging(1 << 20).open().unwrap();
    let before = machine.topology();
    assert_eq!(before.classes[0].memories.len(), 1);
    assert_eq!(before.classes[0].channels[0].stream_from_bytes, None, "nothing was measured");
    let array = Array::of(&[("x", 4)], "|u1").unwrap();
    machine.create_file(dir.path().join("x.npy"), array.clone(), &FileOptions::default()).unwrap();
    let after = machine.topology();
    assert!(after.generation > before.generation);
    assert_eq!(after.classes[0].memories[1].name, "dsk");
    machine.create_file(dir.path().join("y.npy"), array, &FileOptions::default()).unwrap();
    assert_eq!(machine.topology().generation, after.generation);
}
