"""What `make bench GROUP=fabric` makes of its peers' answers."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "ranks")]

import bench_kv  # noqa: E402
import contenders  # noqa: E402
from cache import Cache  # noqa: E402
from pairs import Failed, Pair, Start  # noqa: E402
from timing import Bench, Case, Truth, interval, median, quartiles, table  # noqa: E402


def test_quartiles_are_those_of_the_other_reports() -> None:
    assert quartiles([5.0, 1.0, 4.0, 2.0, 3.0]) == [2.0, 3.0, 4.0]
    assert quartiles([1.0, 2.0]) == [1.25, 1.5, 1.75]
    assert math.isnan(median([]))


def test_intervals_are_drawn_alike_everywhere() -> None:
    """As crates/bench/src/stats.rs draws them, which has the same test."""
    assert interval([float(i * i) for i in range(1, 13)]) == [12.5, 90.5]


CSV = """+----------+
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
1000,0.020,0.030,0.070,258.06,258.06,33825032,33825032
2000,0.020,0.030,0.031,258.06,258.06,33825032,33825032
"""


def test_perftest_says_its_latency_last() -> None:
    assert contenders.overall_us(CSV) == 0.031
    for said in ("", "[1699] UCX ERROR no, such device", CSV.replace("0.031", "?")):
        with pytest.raises(Failed):
            contenders.overall_us(said)


@pytest.mark.parametrize("src", ["plain", "every", "table"])
@pytest.mark.parametrize("dst", ["plain", "every", "table"])
def test_blocks_are_moved_to_the_places_of_the_other_side(
    src: str, dst: str, tmp_path: Path
) -> None:
    tables = {"table": str(tmp_path / "table")}
    np.array([5, 0, 3, 2], np.uint64).tofile(tables["table"])
    case = Case("a case", "put", 32, 8, tables.get(src, src), tables.get(dst, dst))
    truth = contenders.truth_of(case, tmp_path)
    before, right = truth.dst.read_bytes(), truth.right.read_bytes()
    at: Callable[[str], list[int]] = lambda how: {
        "plain": [0, 1, 2, 3], "every": [0, 2, 4, 6], "table": [5, 0, 3, 2]
    }[how]
    expected = bytearray(before)
    for there, here in zip(at(dst), at(src)):
        expected[8 * there : 8 * there + 8] = truth.src.read_bytes()[8 * here : 8 * here + 8]
    assert (right, len(before)) == (bytes(expected), truth.dst_bytes)


@pytest.mark.parametrize(
    "shape",
    [
        bench_kv.Shape(2, 3, 4, 2, 6),
        bench_kv.Shape(2, 6, 4, 2, 6, joined=3),
        bench_kv.Shape(2, 6, 4, 2, 6, taken=3),
        bench_kv.Shape(2, 4, 3, 6, 2, joined=2, shares=3),
    ],
)
def test_pages_are_turned_head_by_head(shape: bench_kv.Shape, tmp_path: Path) -> None:
    src, dst = shape.tables(np.random.default_rng(1))
    assert sorted(src) == list(range(shape.pages))
    assert sorted(dst) == list(range(shape.pages // shape.joined))
    follows = src.reshape(-1, shape.taken)
    assert (follows == follows[:, :1] + np.arange(shape.taken, dtype=np.uint64)).all()
    paths = (str(tmp_path / "from"), str(tmp_path / "to"))
    src.tofile(paths[0])
    dst.tofile(paths[1])
    case = bench_kv.HandOver("a case", "kv", shape.bytes, 1, paths[0], paths[1], shape=shape)
    truth = bench_kv.truth_of(case, tmp_path)
    before, right = truth.src.read_bytes(), bytearray(truth.dst.read_bytes())
    layers, pages, tokens, run = shape.layers, shape.pages, shape.tokens, shape.run_bytes
    each, whole = shape.heads // shape.shares, tokens * shape.joined
    for layer, page, token, head in np.ndindex(layers, pages, tokens, shape.heads):
        share = (head // each * layers + layer) * pages + int(src[page])
        here = ((share * tokens + token) * each + head % each) * run
        there = layer * pages // shape.joined + int(dst[page // shape.joined])
        there = (there * shape.heads + head) * whole + page % shape.joined * tokens + token
        right[there * run : (there + 1) * run] = before[here : here + run]
    assert truth.right.read_bytes() == bytes(right)
    # What NIXL is told.
    cache = Cache.told(case.line().split()[1:])
    moved = bytearray(len(before))
    for own, there_at in cache.runs():
        for here, at in zip(own.tolist(), there_at.tolist()):
            moved[at : at + run] = before[here : here + run]
    assert moved == right


def test_a_single_byte_makes_a_result_wrong(tmp_path: Path) -> None:
    truth = Truth(tmp_path, 4, 4)
    truth.right.write_bytes(b"abcd")
    for found, right in [(b"abcd", True), (b"abce", False), (b"abc", False), (b"abcde", False)]:
        truth.found.write_bytes(found)
        assert truth.is_found() == right


class Fake:
    """Takes so many seconds, run by run."""

    def __init__(self, name: str, seconds: list[float], right: bool | None = True) -> None:
        self.name, self.seconds, self.right = name, iter(seconds), right
        self.closed = False

    def takes(self, case: Case) -> bool:
        return True

    def prepare(self, case: Case) -> dict[str, float]:
        if self.name == "broken":
            raise Failed("it has ended")
        return {}

    def is_right(self, truth: Truth) -> bool | None:
        return self.right

    def run(self, times: int) -> dict[str, float]:
        for seconds in self.seconds:
            return {"seconds": seconds, "post": 0.5}
        raise Failed("it has ended")

    def close(self) -> None:
        self.closed = True


def timed(tmp_path: Path, *fakes: Fake) -> tuple[Bench, dict[str, Any]]:
    bench = Bench("ranks", 3, 1000)
    bench.time(Case("a case", "put", 8, 8, times=2), Truth(tmp_path, 8, 8), [*fakes], lambda: 1e-7)
    return bench, bench.cases[0]


def test_ratios_are_paired_run_by_run(tmp_path: Path) -> None:
    ours, theirs = Fake("isometry", [1.0, 10.0, 3.0]), Fake("mpich", [2.0, 20.0, 6.0])
    bench, case = timed(tmp_path, ours, theirs)
    assert case["ratio"] == {"mpich": [2.0, 2.0, 2.0]}
    assert (case["seconds"]["mpich"], case["bytes"], case["runs"]) == (6.0, 16, 3)
    assert case["figures"]["core-to-core us"] == pytest.approx(0.1)
    assert case["figures"]["mpich post us"] == 5e5
    assert "x2.000 [2.000 .. 2.000]" in table(case)
    (tmp_path / "first.json").write_text('{"absent": ["mkl"], "cases": [{"case": "before"}]}')
    bench.lacks("nixl", "it is not installed")
    bench.finish(tmp_path / "out", tmp_path / "first.json")
    report = json.loads((tmp_path / "out" / "ranks.json").read_text())
    assert [case["case"] for case in report["cases"]] == ["before", "a case"]
    assert report["absent"] == ["mkl", "nixl"]


def test_who_is_wrong_is_not_timed_and_who_fails_is_left_out(tmp_path: Path) -> None:
    right = [1.0, 1.0, 1.0]
    fakes = [Fake("isometry", right), Fake("mpich", right, False), Fake("broken", right)]
    contending: list[Any] = [*fakes, Fake("mute", right, None)]
    bench = Bench("ranks", 3, 1000)
    bench.time(Case("a case", "put", 8, 8), Truth(tmp_path, 8, 8), contending, None)
    case = bench.cases[0]
    assert set(case["seconds"]) == {"isometry", "mute"}
    assert case["notes"]["mpich"] == "WRONG RESULT" and "broken" in case["notes"]
    assert fakes[2].closed and fakes[2] not in contending
    bench, _ = timed(tmp_path, Fake("isometry", right, False))
    assert bench.wrong() == ["a case"]


def test_who_ends_while_it_is_timed_has_no_time(tmp_path: Path) -> None:
    ours, ends, last = Fake("isometry", [1.0] * 3), Fake("mpich", [1.0]), Fake("nixl", [2.0] * 3)
    _, case = timed(tmp_path, ours, ends, last)
    assert (case["seconds"], case["runs"]) == ({"isometry": 1.0, "nixl": 2.0}, 3)
    assert case["notes"] == {"mpich": "failed: it has ended"} and ends.closed
    bench, case = timed(tmp_path, Fake("isometry", [1.0]), Fake("nixl", [2.0] * 3))
    assert bench.wrong() == ["a case"] and case["ratio"] == {}
    assert len(case["figures"]) and case["seconds"] == {"nixl": 2.0}


ECHO = """
import sys
folder, rank = sys.argv[1], sys.argv[2]
with open(f"{folder}/{rank}.in") as lines, open(f"{folder}/{rank}.out", "w") as answers:
    print("{}", file=answers, flush=True)
    for line in iter(lines.readline, ""):
        if line == "quit\\n":
            break
        if line == "die\\n":
            sys.exit("a last word")
        says = '{"error": "no"}' if line == "fail\\n" else '{"seconds": %s}' % line.strip()
        print(says, file=answers, flush=True)
"""


def echoes(folder: Path) -> Pair:
    return Pair(
        folder, [Start([sys.executable, "-c", ECHO, str(folder), str(rank)]) for rank in (0, 1)]
    )


def test_ranks_are_told_lines_and_answer(tmp_path: Path) -> None:
    pair = echoes(tmp_path / "pair")
    try:
        assert pair.tell("1") == [{"seconds": 1}, {"seconds": 1}]
        assert pair.tell("1", "2") == [{"seconds": 1}, {"seconds": 2}]
        assert pair.tell_one(1, "3") == {"seconds": 3}
        with pytest.raises(Failed, match="no"):
            pair.tell_one(0, "fail")
        with pytest.raises(Failed, match="a last word"):
            pair.tell_one(1, "die")
    finally:
        pair.close()


def test_a_program_that_is_no_rank_is_no_pair(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="has ended"):
        Pair(tmp_path / "pair", [Start([sys.executable, "-c", "pass"])])
