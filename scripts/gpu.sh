#!/usr/bin/env bash
# usage: gpu.sh             runs the tests of CUDA's channels, and of machines, on this machine's GPU
#        gpu.sh carry DIR   puts their programs and this script into DIR: DIR/gpu.sh runs them on a
#                           machine that has the same C library or a newer one, and nothing else of ours
#
# It needs NVIDIA's driver and no network. What it prints goes to bench/record/gpu.txt too, or beside
# the script where that was carried. Without a GPU it says so, and ends with 77.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# The packages of the tests, and their names.
tests="isometry-channel-cuda/conformance isometry-channel-cuda/devices isometry/accelerators"

# build DIR: the programs of the tests, as DIR/NAME.
build() {
    local test program
    mkdir -p "$1"
    for test in $tests; do
        program=$(cd "$here/.." && cargo test --no-run -p "${test%/*}" --test "${test#*/}" 2>&1 |
            tee /dev/stderr | sed -n 's/.*Executable.*(\(.*\))$/\1/p')
        install -m 755 "$here/../$program" "$1/${test#*/}"
    done
}

# run PROGRAM ARGUMENT…: one program, on the system's driver, one test after the other.
run() { ISOMETRY_CUDA_TESTS=system "$@" --test-threads=1 --show-output; }

# run_all DIR RECORD: all programs in DIR, if there is a GPU.
run_all() {
    local said
    said=$(run "$1/devices" --exact devices_say_what_they_are)
    if grep -q '^skipped: ' <<<"$said"; then
        sed -n 's/^skipped: [^:]*: /no GPU here: /p' <<<"$said"
        return 77
    fi
    mkdir -p "$(dirname "$2")"
    { grep '^on ' <<<"$said"; all "$1"; } | tee "$2"
}

all() {
    local test failed=0
    for test in $tests; do
        run "$1/${test#*/}" || failed=1
    done
    return $failed
}

if [ "${1:-}" = carry ]; then
    build "${2:?carry: into which folder?}/programs"
    install -m 755 "$0" "$2/gpu.sh"
elif [ -d "$here/programs" ]; then
    run_all "$here/programs" "$here/gpu.txt"
else
    build "$here/../target/gpu"
    run_all "$here/../target/gpu" "$here/../bench/record/gpu.txt"
fi
