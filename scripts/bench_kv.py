"""A cache's pages from a process to another that has tokens and heads the other way round.

`make bench GROUP=kv` installs what this needs and runs it. Ours is one put, whose index tables say
where pages lie; or, as nodes, one copy that is planned. NIXL moves equal runs of bytes only: by a descriptor for each that stays whole, or by
pages that our own kernels turn first. Writes bench/out/kv.json; fails where NIXL is missing, without
which the table is void.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "ranks"))

from contenders import PYTHON, ROOT, Ranks, isometry, joined, nixl, nodes, probe_of  # noqa: E402
from pairs import end_on_sigterm  # noqa: E402
from timing import Bench, Case, Contender, Truth  # noqa: E402

PROBLEMS = tomllib.loads((ROOT / "bench/problems/kv.toml").read_text())
EXTENTS = [PROBLEMS[name] for name in ("layers", "pages", "tokens", "heads", "head_bytes")]
BYTES = int(np.prod(EXTENTS))


@dataclass(frozen=True)
class HandOver(Case):
    """All pages, from where one table says to where another does."""

    def line(self) -> str:
        return f"kv {' '.join(map(str, EXTENTS))} {self.src} {self.dst}"


class Permuting(Ranks):
    """Turns pages first, and moves them as they are."""

    def line(self, case: Case) -> str:
        return case.line().replace("kv", "permuted", 1)


class Whole:
    """As many bytes put in one piece, by ranks of ours that are there already."""

    name = "one piece"

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._case: Case | None = None

    def takes(self, case: Case) -> bool:
        return True

    def prepare(self, case: Case) -> dict[str, float]:
        self._case = case
        return {}

    def is_right(self, truth: Truth) -> bool | None:
        return None

    def run(self, times: int) -> dict[str, float]:
        assert self._case is not None
        self._ranks.pair.tell(f"case put {BYTES} {BYTES} plain plain")
        answer = self._ranks.run(times)
        self._ranks.pair.tell(self._case.line())
        return answer

    def close(self) -> None:
        """The ranks are another's."""


def truth_of(case: Case, folder: Path) -> Truth:
    """Random pages, and the same turned at their new places."""
    truth = Truth(folder, BYTES, BYTES)
    layers, pages, tokens, heads, run = EXTENTS
    src, dst = (np.fromfile(table, np.uint64).astype(np.int64) for table in (case.src, case.dst))
    rng = np.random.default_rng(PROBLEMS["seed"])
    with truth.src.open("wb") as there, truth.right.open("wb") as right:
        for _ in range(layers):
            layer = rng.integers(0, 256, (pages, tokens, heads, run), np.uint8)
            turned = np.empty((pages, heads, tokens, run), np.uint8)
            turned[dst] = layer[src].transpose(0, 2, 1, 3)
            layer.tofile(there)
            turned.tofile(right)
    with truth.dst.open("wb") as before:
        before.truncate(BYTES)
    return truth


def permuted(folder: Path, size: int, over: str) -> Permuting:
    plain = nixl(folder, size, over, ROOT / ".venv" / PYTHON)
    return Permuting("permute, then nixl", plain.pair, "kv", {})


def main() -> None:
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="", help="a regular expression that names of cases match")
    parser.add_argument("--runs", type=int, default=PROBLEMS["runs"])
    parser.add_argument("--budget", type=float, default=300, help="seconds of timing for a case")
    parser.add_argument("--over", choices=["shm", "tcp"], default="shm")
    arguments = parser.parse_args()
    bench = Bench("kv", arguments.runs, arguments.budget)
    over = {"shm": "shared memory", "tcp": "TCP loopback"}[arguments.over]
    name = f"{PROBLEMS['pages']} pages of {PROBLEMS['layers']} layers, NHD to HND, {over}"
    if re.search(arguments.filter, name):
        with tempfile.TemporaryDirectory() as scratch:
            hand_over(bench, Path(scratch), name, arguments.over)
    bench.finish(ROOT / "bench/out")
    if wrong := bench.wrong():
        sys.exit(f"wrong results: {'; '.join(wrong)}")
    if "nixl" in bench.absent:
        sys.exit("the table is void without nixl")


def hand_over(bench: Bench, folder: Path, name: str, over: str) -> None:
    rng = np.random.default_rng(PROBLEMS["seed"])
    tables = [folder / "src-pages", folder / "dst-pages"]
    for table in tables:
        rng.permutation(PROBLEMS["pages"]).astype(np.uint64).tofile(table)
    case = HandOver(name, "kv", BYTES, PROBLEMS["head_bytes"], str(tables[0]), str(tables[1]))
    joins = {
        "isometry": isometry,
        "isometry nodes": nodes,
        "nixl": nixl,
        "permute, then nixl": permuted,
    }
    contenders: list[Contender] = joined(bench, joins, folder, BYTES, over)
    for ranks in contenders:
        if isinstance(ranks, Ranks):
            ranks.verb = "time"
    contenders += [Whole(c) for c in contenders if isinstance(c, Ranks) and c.name == "isometry"]
    try:
        bench.time(case, truth_of(case, folder), contenders, probe_of(contenders, PROBLEMS["probe_turns"]))
    finally:
        for contender in contenders:
            contender.close()


if __name__ == "__main__":
    main()
