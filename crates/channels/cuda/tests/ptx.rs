//! Whether what was lowered is what it is lowered from.

use channel::accelerator::{GROUP_ITEMS, KERNELS};
use sha2::{Digest, Sha256};
use std::fmt::Write;

const PRELUDE: &str = include_str!("../src/prelude.cu");
const PTX: &str = include_str!("../src/kernels.ptx");

#[test]
fn the_lowered_kernels_are_those_of_the_text() {
    let text = format!("#define GROUP_ITEMS {GROUP_ITEMS}\n{PRELUDE}{KERNELS}");
    let mut hash = String::new();
    for byte in Sha256::digest(text) {
        write!(hash, "{byte:02x}").unwrap();
    }
    let expected = format!("// By scripts/ptx.sh, of a text whose SHA-256 is {hash}.");
    assert_eq!(PTX.lines().next(), Some(&*expected), "run scripts/ptx.sh");
}

#[test]
fn the_lowered_kernels_keep_nothing_in_memory_of_their_own() {
    // A work item's copy of what it is told would be read from there by each.
    assert!(!PTX.contains(".local"));
    assert_eq!(PTX.matches(".maxntid 256, 1, 1").count(), PTX.matches(".entry").count());
    assert_eq!(GROUP_ITEMS, 256);
}
