#!/usr/bin/env bash
# Applies each of mutants/*.patch to a scratch copy of the last commit. A mutant counts if the
# engine's unit tests pass with it; it must then die in the simulator within 1,000 seeds.
# usage: scripts/mutants.sh [PATTERN]   (mutants whose name contains PATTERN; all without)
set -euo pipefail
root=$(git rev-parse --show-toplevel)
pattern=${1:-}
seeds=1000
scratch=$(mktemp -d)
trap 'git -C "$root" worktree remove --force "$scratch/copy" 2>/dev/null; rm -rf "$scratch"' EXIT
git -C "$root" worktree add --quiet --detach "$scratch/copy" HEAD
export CARGO_TARGET_DIR=${MUTANTS_TARGET_DIR:-$root/target/mutants}
cd "$scratch/copy"

fuzz() { timeout 900 cargo run --quiet -p isometry-sim --example fuzz -- 0 "$seeds"; }

fuzz >"$scratch/sound.txt" 2>&1 || { cat "$scratch/sound.txt"; echo "the engine fails unmutated"; exit 1; }

survivors=0
printf '%-34s %-10s %s\n' mutant 'unit tests' simulator
for patch in "$root"/mutants/*"$pattern"*.patch; do
    name=$(basename "$patch" .patch)
    git checkout --quiet -- . && git apply "$patch" || { echo "$name does not apply"; exit 1; }
    unit=pass
    timeout 900 cargo test --quiet -p isometry-engine --lib >"$scratch/unit.txt" 2>&1 || unit=FAIL
    if fuzz >"$scratch/fuzz.txt" 2>/dev/null; then verdict=SURVIVES; else
        verdict=$(grep -m1 '^seed ' "$scratch/fuzz.txt" || echo 'FAIL (does not build)')
    fi
    printf '%-34s %-10s %s\n' "$name" "$unit" "$verdict"
    case "$unit $verdict" in "pass seed "*) ;; *) survivors=$((survivors + 1)) ;; esac
done
[ "$survivors" = 0 ] || { echo "$survivors mutants are invalid or survive"; exit 1; }
