"""A cache's pages from a process to another that has tokens and heads the other way round.

`make bench GROUP=kv` installs what this needs and runs it. Ours is one put, whose index tables say where
pages lie; or, as nodes, copies that are planned. NIXL moves equal runs of bytes only: by a descriptor for
each that stays whole, or by pages that our own kernels turn first. Over TCP a bare connection is there too:
with the bytes as they lie it is the limit, and with pages that are turned first it stores and forwards.
Writes bench/out/kv.json; fails where NIXL is missing, without which the table is void.
"""

from __future__ import annotations

import argparse
import copy
import re
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "ranks"))

from contenders import (  # noqa: E402
    ROOT,
    Join,
    Ranks,
    Way,
    isometry,
    joined,
    nixl,
    nodes,
    package,
    probe_of,
    tcp,
    way_of,
)
from pairs import end_on_sigterm  # noqa: E402
from timing import Bench, Case, Contender, Truth  # noqa: E402

PROBLEMS = tomllib.loads((ROOT / "bench/problems/kv.toml").read_text())


@dataclass(frozen=True)
class Shape:
    """So many pages of a cache, of which `taken` follow each other at the source, and `joined` are one page
    of the destination; the heads are in so many shares."""

    layers: int
    pages: int
    tokens: int
    heads: int
    run_bytes: int
    taken: int = 1
    joined: int = 1
    shares: int = 1

    @property
    def bytes(self) -> int:
        return self.layers * self.pages * self.tokens * self.heads * self.run_bytes

    def tables(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Places of pages, and of those of the destination."""
        together = rng.permutation(self.pages // self.taken)[:, None] * self.taken
        src = (together + np.arange(self.taken)).ravel()
        dst = rng.permutation(self.pages // self.joined)
        return src.astype(np.uint64), dst.astype(np.uint64)


@dataclass(frozen=True)
class HandOver(Case):
    """All pages, from where one table says to where another does."""

    shape: Shape = field(kw_only=True)

    def line(self) -> str:
        shape = self.shape
        extents = (shape.layers, shape.pages, shape.tokens, shape.heads, shape.run_bytes)
        words = (*extents, self.src, self.dst, shape.joined, shape.shares)
        return f"kv {' '.join(map(str, words))}"


class AsItLies(Ranks):
    """Moves as many bytes, and turns nothing."""

    def is_right(self, truth: Truth) -> bool | None:
        moved = copy.copy(truth)
        moved.right = truth.src
        return super().is_right(moved)


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
        size = self._case.bytes
        self._ranks.pair.tell(f"case put {size} {size} plain plain")
        answer = self._ranks.run(times)
        self._ranks.pair.tell(self._case.line())
        return answer

    def close(self) -> None:
        """The ranks are another's."""


def truth_of(case: HandOver, folder: Path) -> Truth:
    """Random pages, and the same turned at their new places."""
    shape = case.shape
    truth = Truth(folder, shape.bytes, shape.bytes)
    src, dst = (np.fromfile(table, np.uint64).astype(np.int64) for table in (case.src, case.dst))
    each = shape.heads // shape.shares

    def pool(share: int, layer: int) -> np.ndarray:
        rng = np.random.default_rng([PROBLEMS["seed"], share, layer])
        return rng.integers(0, 256, (shape.pages, shape.tokens, each, shape.run_bytes), np.uint8)

    with truth.src.open("wb") as there:
        for share, layer in np.ndindex(shape.shares, shape.layers):
            pool(share, layer).tofile(there)
    extents = (shape.pages // shape.joined, shape.heads, shape.joined * shape.tokens, shape.run_bytes)
    with truth.right.open("wb") as right:
        for layer in range(shape.layers):
            turned = np.empty(extents, np.uint8)
            for share, part in np.ndindex(shape.shares, shape.joined):
                pages = pool(share, layer)[src[part :: shape.joined]].transpose(0, 2, 1, 3)
                heads = slice(share * each, (share + 1) * each)
                tokens = slice(part * shape.tokens, (part + 1) * shape.tokens)
                turned[dst, heads, tokens] = pages
            turned.tofile(right)
    with truth.dst.open("wb") as before:
        before.truncate(shape.bytes)
    return truth


def permuted(folder: Path, size: int, way: Way) -> Permuting:
    plain = nixl(folder, size, way, package())
    return Permuting("permute, then nixl", plain.pair, "kv", {})


def as_it_lies(folder: Path, size: int, way: Way) -> AsItLies:
    return AsItLies("raw TCP", tcp(folder, size, way).pair, "kv", {})


def stored(folder: Path, size: int, way: Way) -> Permuting:
    return Permuting("permute, then TCP", tcp(folder, size, way, package()).pair, "kv", {})


CONTENDERS: dict[str, Join] = {
    "isometry": isometry,
    "isometry nodes": nodes,
    "nixl": nixl,
    "permute, then nixl": permuted,
    "raw TCP": as_it_lies,
    "permute, then TCP": stored,
}


def shapes(pages: int) -> dict[str, Shape]:
    layers, tokens, heads, run = (
        PROBLEMS[name] for name in ("layers", "tokens", "heads", "head_bytes")
    )
    joined, shares = PROBLEMS["joined"], PROBLEMS["shares"]
    plain = (layers, pages, tokens, heads, run)
    return {
        f"{pages} pages of {layers} layers": Shape(*plain),
        f"{pages} pages of {tokens} tokens to pages of {joined * tokens}": Shape(
            *plain, joined=joined
        ),
        f"{pages // joined} pages of {joined * tokens} tokens to pages of {tokens}": Shape(
            *plain, taken=joined
        ),
        f"{pages} pages of {shares} ranks to one": Shape(*plain, shares=shares),
    }


def main() -> None:
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="", help="a regular expression that names of cases match")
    parser.add_argument("--runs", type=int, default=PROBLEMS["runs"])
    parser.add_argument("--budget", type=float, default=300, help="seconds of timing for a case")
    parser.add_argument("--over", choices=["shm", "tcp", "link"], default="shm")
    arguments = parser.parse_args()
    bench = Bench("kv", arguments.runs, arguments.budget)
    with way_of(arguments.over, PROBLEMS["link_gigabits"]) as over:
        time_over(bench, over, re.compile(arguments.filter))
    bench.finish(ROOT / "bench/out")
    if wrong := bench.wrong():
        sys.exit(f"wrong results: {'; '.join(wrong)}")
    if "nixl" in bench.absent:
        sys.exit("the table is void without nixl")


def time_over(bench: Bench, over: tuple[str, Way], pattern: re.Pattern[str]) -> None:
    name, way = over
    for what, shape in shapes(PROBLEMS["pages"][way.name]).items():
        case = f"{what}, NHD to HND, {name}"
        if pattern.search(case):
            with tempfile.TemporaryDirectory() as scratch:
                hand_over(bench, (case, shape), way, Path(scratch))


def hand_over(bench: Bench, named: tuple[str, Shape], way: Way, folder: Path) -> None:
    name, shape = named
    tables = [folder / "src-pages", folder / "dst-pages"]
    for path, table in zip(tables, shape.tables(np.random.default_rng(PROBLEMS["seed"]))):
        table.tofile(path)
    src, dst = map(str, tables)
    case = HandOver(name, "kv", shape.bytes, shape.run_bytes, src, dst, shape=shape)
    contenders: list[Contender] = joined(bench, CONTENDERS, folder, shape.bytes, way)
    for ranks in contenders:
        if isinstance(ranks, Ranks):
            ranks.verb = "time"
    contenders += [Whole(c) for c in contenders if isinstance(c, Ranks) and c.name == "isometry"]
    probe = probe_of(contenders, PROBLEMS["probe_turns"], way)
    try:
        bench.time(case, truth_of(case, folder), contenders, probe)
    finally:
        for contender in contenders:
            contender.close()


if __name__ == "__main__":
    main()
