#!/usr/bin/env bash
# usage: lint.sh   formatting, clippy and documentation of the whole workspace, warnings denied.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fmt --check
cargo clippy -q --workspace --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc -q --workspace --no-deps
