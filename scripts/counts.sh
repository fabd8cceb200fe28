#!/usr/bin/env bash
# usage: counts.sh [--write]   compares what the kernels execute with bench/problems/kernels/counts.toml,
# or writes that file anew. Says `skipped: WHY` and ends with 77 where nothing can be counted.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() { echo "skipped: $1"; exit 77; }

[ "$(uname -m)" = x86_64 ] || skip "callgrind's counts are those of x86-64"
grep -qw avx2 /proc/cpuinfo || skip "the limits are those of AVX2, which this processor lacks"
if ! command -v valgrind >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy valgrind; } >/dev/null 2>&1 || true
fi
command -v valgrind >/dev/null || skip "valgrind is not installed"
cargo iso -q
target/release/iso bench --counts bench/problems/kernels/counts.toml "$@"
