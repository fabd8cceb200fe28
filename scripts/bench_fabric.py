"""Two ranks beside MPI, NIXL, UCX and Mooncake, each two processes that sleep while others are timed.

`make bench GROUP=fabric` installs what this needs and runs it. Writes bench/out/fabric.json, with the
cases that `iso bench fabric` has just timed; fails where a peer is missing without which the table is
void.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "ranks"))

from contenders import (  # noqa: E402
    ROOT,
    WAYS,
    Join,
    Perftest,
    Way,
    isometry,
    joined,
    mooncake,
    mpich,
    nixl,
    openmpi,
    plain_tcp,
    probe_of,
    truth_of,
    way_of,
)
from pairs import end_on_sigterm  # noqa: E402
from timing import Bench, Case  # noqa: E402

PROBLEMS = tomllib.loads((ROOT / "bench/problems/ranks.toml").read_text())
REQUIRED = {"openmpi", "mpich", "nixl"}

CONTENDERS: dict[str, Join] = {
    "isometry": isometry,
    "openmpi": openmpi,
    "mpich": mpich,
    "nixl": nixl,
    "mooncake": mooncake,
    "ucx_perftest": lambda folder, size, way: Perftest(way),
    "raw TCP": plain_tcp,
}


def tables(folder: Path) -> dict[int, list[str]]:
    """For each length of a block, files of the places that blocks have on either side."""
    rng = np.random.default_rng(PROBLEMS["seed"])
    made: dict[int, list[str]] = {}
    for block in PROBLEMS["block_bytes"]:
        count = PROBLEMS["strided_bytes"] // block
        made[block] = [str(folder / f"{side}-{block}") for side in ("src", "dst")]
        for path in made[block]:
            rng.permutation(2 * count)[:count].astype(np.uint64).tofile(path)
    return made


def cases(over: str, table: dict[int, list[str]]) -> Iterator[Case]:
    times = PROBLEMS["small_times"]
    small, bulk = PROBLEMS["small_bytes"], PROBLEMS["bulk_bytes"]
    for size in small + bulk:
        for kind in ("put", "get"):
            count = times if size in small else few(size)
            yield Case(f"{kind} {size} B, {over}, x{count}", kind, size, size, times=count)
    for size in small:
        name = f"puts of {size} B waited for together, {over}, x{times}"
        yield Case(name, "puts", size, size, times=times)
    for size in PROBLEMS["trip_bytes"]:
        name = f"message of {size} B and back, {over}, x{times}"
        yield Case(name, "trip", size, size, times=times)
    for size in PROBLEMS["trip_bytes"]:
        yield Case(f"messages of {size} B one way, {over}, x{times}", "flood", size, size, times=times)
    for size in bulk:
        count = few(size)
        yield Case(f"send of {size} B, {over}, x{count}", "send", size, size, times=count)
    size = PROBLEMS["strided_bytes"]
    for block in PROBLEMS["block_bytes"]:
        listed = table[block]
        for how, src, dst in [
            ("contiguous to strided", "plain", "every"),
            ("strided to strided", "every", "every"),
            ("contiguous to indexed", "plain", listed[1]),
            ("indexed to indexed", listed[0], listed[1]),
        ]:
            for kind in ("put", "send"):
                count = few(size)
                name = f"{kind} of {size} B in blocks of {block} B, {how}, {over}, x{count}"
                yield Case(name, kind, size, block, src, dst, count)


def few(size: int) -> int:
    """How often what is not small is done for one time: more often what one time may have to bring
    back into the caches first."""
    return PROBLEMS["bulk_times"] if size <= PROBLEMS["cached_bytes"] else 1


def time_over(bench: Bench, over: tuple[str, Way], pattern: re.Pattern[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        wanted = [case for case in cases(over[0], tables(folder)) if pattern.search(case.name)]
        if not wanted:
            return
        way = over[1]
        size = max(2 * PROBLEMS["strided_bytes"], *(case.bytes for case in wanted))
        contenders = joined(bench, CONTENDERS, folder, size, way)
        bench.lacks("gasnet", "no registry of packages has it")
        probe = probe_of(contenders, PROBLEMS["probe_turns"], way)
        try:
            for case in wanted:
                bench.time(case, truth_of(case, folder), contenders, probe)
        finally:
            for contender in contenders:
                contender.close()


def main() -> None:
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="", help="a regular expression that names of cases match")
    parser.add_argument("--runs", type=int, default=PROBLEMS["runs"])
    parser.add_argument("--budget", type=float, default=20, help="seconds of timing for a case")
    parser.add_argument("--over", choices=[*WAYS, "link", "all"], default="shm")
    parser.add_argument("--before", type=Path, help="a report of the same run to add to")
    arguments = parser.parse_args()
    bench = Bench("fabric", arguments.runs, arguments.budget)
    for name in WAYS if arguments.over == "all" else [arguments.over]:
        with way_of(name, PROBLEMS["link_gigabits"]) as over:
            time_over(bench, over, re.compile(arguments.filter))
    bench.finish(ROOT / "bench/out", arguments.before)
    if wrong := bench.wrong():
        sys.exit(f"wrong results: {'; '.join(wrong)}")
    if missing := REQUIRED & set(bench.absent):
        sys.exit(f"the table is void without {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
