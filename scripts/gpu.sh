#!/usr/bin/env bash
# usage: gpu.sh             runs the tests of CUDA's and OpenCL's channels, and of machines, on this machine's
#                           GPU, and then the bench of accelerators
#        gpu.sh carry DIR   puts their programs and this script into DIR: DIR/gpu.sh runs them on a
#                           machine that has the same C library or a newer one, and nothing else of ours
#
# It needs NVIDIA's driver and no network; PyTorch and CuPy are beside ours where python3 has them. What
# it prints goes to bench/record/gpu.txt too, or beside the script where that was carried, and what the bench
# writes beside that. Without a GPU it says so, and ends with 77. FILTER, RUNS and BUDGET are the bench's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# The packages of the tests, and their names.
tests="isometry-channel-cuda/conformance isometry-channel-cuda/devices isometry-channel-opencl/conformance
isometry-channel-opencl/devices isometry/accelerators isometry/interop isometry/ipc isometry/idle"

# program TEST: what its program is called, since names are those of several packages.
program() { echo "${1//\//-}"; }

# build DIR: the programs of the tests and the bench, as DIR/NAME, and what Python needs.
build() {
    local test built
    cd "$here/.."
    mkdir -p "$1"
    for test in $tests; do
        built=$(cargo test --no-run -p "${test%/*}" --test "${test#*/}" 2>&1 |
            tee /dev/stderr | sed -n 's/.*Executable.*(\(.*\))$/\1/p')
        install -s -m 755 "$built" "$1/$(program "$test")"
    done
    make --no-print-directory package
    install -s -m 755 .venv/bin/iso "$1/iso"
    cargo build -q --release -p isometry-bench --example queues
    install -s -m 755 target/release/examples/queues "$1/queues"
    mkdir -p "$1/python/scripts/ranks" "$1/python/bench/problems"
    rm -rf "$1/python/isometry"
    cp -r .venv/lib/python3*/site-packages/isometry "$1/python/"
    install -m 644 scripts/bench_accel.py "$1/python/scripts/"
    install -m 644 scripts/ranks/{timing,pairs}.py "$1/python/scripts/ranks/"
    install -m 644 bench/problems/accel.toml "$1/python/bench/problems/"
}

# run PROGRAM ARGUMENT…: one program, on the system's driver, one test after the other.
run() { ISOMETRY_CUDA_TESTS=system ISOMETRY_OPENCL_TESTS=gpu "$@" --test-threads=1 --show-output; }

# run_all DIR RECORD: all programs in DIR, if there is a GPU.
run_all() {
    local said
    # Where it fails it fails again among all, which says why.
    said=$(run "$1/$(program isometry-channel-cuda/devices)" --exact devices_say_what_they_are) || true
    if grep -q '^skipped: ' <<<"$said"; then
        sed -n 's/^skipped: [^:]*: /no GPU here: /p' <<<"$said"
        return 77
    fi
    mkdir -p "$(dirname "$2")"
    { grep '^on ' <<<"$said" || true; all "$1" "$(dirname "$2")"; } 2>&1 | tee "$2"
}

# all DIR OUT: the tests and the bench, each whatever became of the others.
all() {
    local test failed=0
    for test in $tests; do
        run "$1/$(program "$test")" || failed=1
    done
    time_all "$1" "$2" || failed=1
    return $failed
}

# time_all DIR OUT: by the system's driver, and by OpenCL where it shows a GPU.
time_all() {
    local failed=0 budget=(--budget "${BUDGET:-5}")
    export ISOMETRY_CUDA=all ISOMETRY_OPENCL=gpu
    "$1/iso" bench accel --filter "${FILTER:-}" ${RUNS:+--runs "$RUNS"} "${budget[@]}" \
        --out "$2" --files "$2" || failed=1
    "$1/queues" || failed=1
    if PYTHONPATH=$1/python python3 -c 'import isometry, numpy'; then
        PYTHONPATH=$1/python python3 "$1/python/scripts/bench_accel.py" "${FILTER:-}" \
            "${budget[@]}" --out "$2" || failed=1
    else
        echo "pytorch, cupy are absent: python3 is not 3.11 or later, or has no NumPy"
    fi
    return $failed
}

if [ "${1:-}" = carry ]; then
    mkdir -p "${2:?carry: into which folder?}"
    folder=$(cd "$2" && pwd)
    install -m 755 "$here/gpu.sh" "$folder/gpu.sh"
    build "$folder/programs"
elif [ -d "$here/programs" ]; then
    run_all "$here/programs" "$here/gpu.txt"
else
    build "$here/../target/gpu"
    run_all "$here/../target/gpu" "$here/../bench/record/gpu.txt"
fi
