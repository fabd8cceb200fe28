"""Small copies from Python, beside numpy.copyto: what a call to a completed event costs.

Writes bench/out/small_python.json, in the form of the other groups.
"""

from __future__ import annotations

import json
import platform
import re
import statistics
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import isometry as iso

PROBLEMS = tomllib.loads(Path("bench/problems/small_python.toml").read_text())
CALLS: int = PROBLEMS["batch"]
RUNS: int = PROBLEMS["runs"]
AIM_US = 5.0


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(CALLS):
        call()
    return time.perf_counter() - started


def name(size: int) -> str:
    return f"copy {size} B from Python, x{CALLS}"


def case(m: iso.Machine, size: int) -> dict[str, Any]:
    a = np.random.default_rng(0).integers(0, 255, size, "u1")
    b, c = np.zeros_like(a), np.zeros_like(a)
    src, dst = m.wrap(a, dims="x"), m.wrap(b, dims="x")
    runs = [
        (seconds(lambda: m.copy(src, dst).wait()), seconds(lambda: np.copyto(c, a)))
        for _ in range(RUNS)
    ]
    ours, numpys = (statistics.median(column) for column in zip(*runs))
    ratios = statistics.quantiles([theirs / mine for mine, theirs in runs], n=4)
    over_us = statistics.median((mine - theirs) / CALLS * 1e6 for mine, theirs in runs)
    return {
        "case": name(size),
        "verified": bool((a == b).all() and (a == c).all()),
        "bytes": size * CALLS,
        "threads": 1,
        "runs": RUNS,
        "seconds": {"isometry": ours, "numpy": numpys},
        "ratio": {"numpy": ratios},
        "over_us": over_us,
    }


def main() -> None:
    pattern = re.compile(sys.argv[1] if len(sys.argv) > 1 else "")
    with iso.Machine() as m:
        sizes = [size for size in PROBLEMS["sizes_bytes"] if pattern.search(name(size))]
        cases = [case(m, size) for size in sizes]
    cases = [one for one in cases if pattern.search(one["case"])]
    for one in cases:
        print(f"{one['case']:40} {one['over_us']:6.2f} µs over numpy.copyto (aim: {AIM_US:.0f})")
    report = {"group": "small_python", "machine": platform.node(), "absent": [], "cases": cases}
    out = Path("bench/out")
    out.mkdir(parents=True, exist_ok=True)
    (out / "small_python.json").write_text(json.dumps(report, indent=1) + "\n")
    if not all(one["verified"] for one in cases):
        sys.exit("a case gave a wrong result")


if __name__ == "__main__":
    main()
