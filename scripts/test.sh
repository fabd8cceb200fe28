#!/usr/bin/env bash
# usage: test.sh   runs every check, each whatever became of the others, and closes with a count.
#
# A case that this machine can't run (no root, no network, a kernel that forbids something) is
# skipped by name: a Rust test prints `skipped: NAME: why`, pytest skips with its reason.
#
# Properties are tried on the same cases every time, so that a red run is red again: PROPTEST_RNG_SEED
# chooses others, and `make properties` tries many.
set -uo pipefail
cd "$(dirname "$0")/.."
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-0}
# Nothing is built again, nor debugged: what cargo would keep for that takes its time.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none
# Several times what a machine of two cores takes for them.
RUST_SECONDS=2700
logs=target/test-logs
mkdir -p $logs
: >$logs/skipped
passed=0 failed=0

say() { printf '\n== %s\n' "$*"; }
count() { passed=$((passed + $1)) failed=$((failed + $2)); }
skip() { echo "skipped: $1: $2" >>$logs/skipped; }

# step NAME COMMAND…: one check that passes or fails as a whole.
step() {
    say "$1"
    if "${@:2}"; then count 1 0; else count 0 1; echo "FAILED: $1"; fi
}

lint() {
    if ! cargo clippy --version >/dev/null 2>&1 || ! cargo fmt --version >/dev/null 2>&1; then
        skip lints "clippy or rustfmt is not installed"
        return
    fi
    step "formatting, clippy, documentation" scripts/lint.sh
}

# Sums what stands before word $2 in the lines of $1 that say `test result:`.
sum() {
    local terms
    terms=$(sed -n "s/^test result: .* \([0-9]*\) $2.*/\1/p" "$1" | paste -sd+)
    echo $((${terms:-0}))
}

# What tests need besides: networks of their own, UCX, and OpenCL with a device that is this processor.
packages() {
    local names="iproute2 libucx0 ocl-icd-libopencl1 pocl-opencl-icd"
    has_packages >/dev/null && return
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        echo "installing what tests need: $names"
        { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy $names; } \
            >/dev/null 2>&1 || true
    fi
}

has_packages() {
    local libraries; libraries=$(/sbin/ldconfig -p)
    command -v ip && command -v tc && grep libucp.so.0 <<<"$libraries" &&
        grep libOpenCL.so.1 <<<"$libraries" && [ -f /etc/OpenCL/vendors/pocl.icd ]
}

# tests LOG WHERE COMMAND…: Rust's tests, of which those that are skipped are said to be so WHERE. Ends with
# 77 where the command does: it has said why nothing runs.
tests() {
    local log=$1 status=0
    # What hangs is to be in the log, and not to hold up the rest.
    timeout --kill-after=10 $RUST_SECONDS "${@:3}" >$log 2>&1 || status=$?
    [ $status != 77 ] || return 77
    [ $status != 124 ] || echo "FAILED: after $RUST_SECONDS s a Rust test still runs, or is built" >>$log
    count "$(sum $log passed)" "$(sum $log failed)"
    sed -n "s/^skipped: /&$2/p" $log >>$logs/skipped
    if [ $status != 0 ]; then
        cat $log
        [ "$(sum $log failed)" != 0 ] || count 0 1
    else
        grep '^test result:\|^lines of a function' $log
    fi
}

rust() {
    say "Rust: units, properties, conformance, simulation, documentation examples, house rules"
    tests $logs/rust.log "" cargo test --workspace --no-fail-fast -- --show-output
}

# After the others, for which what builds Rust's macros is built.
arm() {
    say "Rust on AArch64, emulated: the kernels"
    local log=$logs/arm.log
    tests $log "on AArch64, " scripts/arm.sh
    [ $? != 77 ] || skip "kernels on AArch64" "$(sed -n 's/^skipped: //p' $log)"
}

python() {
    if ! make --no-print-directory .venv/.stamps/tools; then
        # Where CI runs there is a network, and silence would hide a broken pin.
        if [ "${CI:-}" = true ]; then count 0 1; else skip python "its tools can't be installed"; fi
        return
    fi
    step "Python package" make --no-print-directory package
    say "Python"
    local log=$logs/python.log
    .venv/bin/python -m pytest 2>&1 | tee $log
    local ended=${PIPESTATUS[0]}
    local tail; tail=$(tail -1 $log)
    number() { grep -o "[0-9]* $1" <<<"$tail" | grep -o '[0-9]*' || echo 0; }
    count "$(number passed)" "$(number failed)"
    [ "$ended" = 0 ] || [ "$(number failed)" != 0 ] || count 0 1
    sed -n 's/^SKIPPED \[[0-9]*\] \(.*\)/skipped: \1/p' $log >>$logs/skipped
    step "typed stubs" .venv/bin/python -m mypy
}

# After the package, which builds what plays them. The tests of `sim` play the seeds before these.
simulations() {
    step "simulation: seeds 2000 to 9999, optimized" \
        make --no-print-directory fuzz-sim FIRST_SEED=2000 SEEDS=8000
}

# After the package, which builds what is counted.
counts() {
    say "Counts of the kernels: instructions and bytes from memory"
    local log=$logs/counts.log
    scripts/counts.sh 2>&1 | tee $log
    case ${PIPESTATUS[0]} in
        0) count 1 0 ;;
        77) skip "counts of the kernels" "$(sed -n 's/^skipped: //p' $log)" ;;
        *) count 0 1; echo "FAILED: counts of the kernels" ;;
    esac
}

lint
packages
rust
arm
python
simulations
counts

skipped=$(wc -l <$logs/skipped)
say "$skipped cases skipped"
cat $logs/skipped
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
