#!/usr/bin/env bash
# usage: fabric_peers.sh DIR   installs what python/requirements-fabric.txt lists: NumPy into an
# environment in DIR, each other into DIR/NAME. What can't be installed is absent from the tables.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(realpath -m "$1")
scripts/venv.sh "$dir"

# Mooncake's libraries link to this one, also where it goes by TCP.
if ! ldconfig -p | grep -q libibverbs.so.1 && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy libibverbs1; } >/dev/null 2>&1 || true
fi

grep -v '^#' python/requirements-fabric.txt | while read -r pinned; do
    name=${pinned%%=*}
    to=(--no-deps --prefix "$dir/$name")
    [ "$name" != numpy ] || to=()
    "$dir/bin/python" -m pip install -q --disable-pip-version-check "${to[@]}" "$pinned" </dev/null ||
        echo "$pinned can't be installed, and is left out" >&2
done
