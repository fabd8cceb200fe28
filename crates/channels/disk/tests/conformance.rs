//! Both channels against the contract, on both interfaces, around the page cache and through it.

mod common;

use channel::conformance;
use common::Suite;
use isometry_channel_disk::{Cache, Direction, Interface};

fn check(direction: Direction, interface: Interface, cache: Cache) {
    conformance::run(&Suite::new(direction, interface, cache));
}

#[test]
fn reads_by_io_uring_around_the_cache() {
    check(Direction::Read, Interface::Best, Cache::Bypass);
}

#[test]
fn reads_by_io_uring_through_the_cache() {
    check(Direction::Read, Interface::Best, Cache::Use);
}

#[test]
fn reads_by_threads_around_the_cache() {
    check(Direction::Read, Interface::Threads, Cache::Bypass);
}

#[test]
fn reads_by_threads_through_the_cache() {
    check(Direction::Read, Interface::Threads, Cache::Use);
}

#[test]
fn writes_by_io_uring_around_the_cache() {
    check(Direction::Write, Interface::Best, Cache::Bypass);
}

#[test]
fn writes_by_io_uring_through_the_cache() {
    check(Direction::Write, Interface::Best, Cache::Use);
}

#[test]
fn writes_by_threads_around_the_cache() {
    check(Direction::Write, Interface::Threads, Cache::Bypass);
}

#[test]
fn writes_by_threads_through_the_cache() {
    check(Direction::Write, Interface::Threads, Cache::Use);
}
