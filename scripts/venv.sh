#!/usr/bin/env bash
# usage: venv.sh DIR   makes a Python environment in DIR, installing Debian's venv module if it is
# missing and this user may.
set -euo pipefail
dir=$1

usable() { python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if ! usable && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -qy python3 python3-venv >/dev/null
fi
usable || { echo "python3 (3.11 or newer) with its venv module is missing" >&2; exit 1; }
python3 -m venv "$dir"
