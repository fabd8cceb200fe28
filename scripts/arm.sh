#!/usr/bin/env bash
# usage: arm.sh   runs the kernels' tests on an AArch64 that qemu emulates. Says `skipped: WHY` and ends with
# 77 where that can't be.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() { echo "skipped: $1"; exit 77; }

# Linked statically and by Rust's own linker, tests take nothing else of that processor's.
target=aarch64-unknown-linux-musl
has_target() { [ -d "$(rustc --print target-libdir --target $target)" ]; }

[ "$(uname -m)" != aarch64 ] || skip "this is one, and runs them itself"
if ! command -v qemu-aarch64 >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    install='apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy qemu-user'
    timeout 200 bash -c "$install" >/dev/null 2>&1 || true
fi
command -v qemu-aarch64 >/dev/null || skip "qemu-aarch64 is not installed"
has_target || timeout 200 rustup target add $target >/dev/null 2>&1 || true
has_target || skip "Rust's library for $target is not installed"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER=qemu-aarch64
cargo test -p isometry-kernels --target $target --no-fail-fast -- --show-output
