"""Contenders in turns, run by run, and what comes of it: the table and the report of `iso bench`."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pairs import Failed

OURS = "isometry"
# As in crates/bench: the fewest runs that a budget leaves, and how often a bootstrap draws.
LEAST_RUNS = 5
DRAWS = 1000
WORD = (1 << 64) - 1

# The seconds that two cores take to hear of each other once.
Probe = Callable[[], float] | None


@dataclass(frozen=True)
class Case:
    """What is done, and how often it is done for one time."""

    name: str
    kind: str
    bytes: int
    block: int
    src: str = "plain"
    dst: str = "plain"
    times: int = 1

    def is_plain(self) -> bool:
        return (self.src, self.dst) == ("plain", "plain")

    def line(self) -> str:
        """How ranks are told."""
        return f"case {self.kind} {self.bytes} {self.block} {self.src} {self.dst}"


class Truth:
    """Files of what is there before a case, and of what has to be there after it."""

    # Of a piece that is compared at once.
    PIECE = 1 << 26

    def __init__(self, folder: Path, src_bytes: int, dst_bytes: int) -> None:
        self.src, self.dst, self.right, self.found = (
            folder / name for name in ("src", "dst", "right", "found")
        )
        self.src_bytes, self.dst_bytes = src_bytes, dst_bytes

    def is_found(self) -> bool:
        with self.right.open("rb") as right, self.found.open("rb") as found:
            while (piece := right.read(self.PIECE)) == found.read(self.PIECE):
                if not piece:
                    return True
            return False


class Contender(Protocol):
    """One that does cases, by name."""

    name: str

    def takes(self, case: Case) -> bool:
        """Whether it has a way to do that."""

    def prepare(self, case: Case) -> dict[str, float]:
        """Makes ready for it; figures of its own, in seconds."""

    def is_right(self, truth: Truth) -> bool | None:
        """Does it once, and looks at every byte; `None` where it shows none."""

    def run(self, times: int) -> dict[str, float]:
        """Does it so often: `seconds`, and figures of its own."""

    def close(self) -> None:
        """Ends what it started."""


def quantile(ascending: Sequence[float], q: float) -> float:
    if not ascending:
        return math.nan
    position = q * (len(ascending) - 1)
    low, part = int(position), position % 1
    return ascending[low] + part * (
        ascending[min(low + 1, len(ascending) - 1)] - ascending[low]
    )


def median(values: Sequence[float]) -> float:
    return quantile(sorted(values), 0.5)


def quartiles(values: Sequence[float]) -> list[float]:
    return [quantile(sorted(values), q) for q in (0.25, 0.5, 0.75)]


def interval(values: Sequence[float]) -> list[float]:
    """The 95% bootstrap interval of the median, drawn as `iso bench` draws it."""
    state = 0x9E3779B97F4A7C15

    def drawn() -> float:
        nonlocal state
        state ^= state << 13 & WORD
        state ^= state >> 7
        state ^= state << 17 & WORD
        return values[state % len(values)]

    medians = sorted(median([drawn() for _ in values]) for _ in range(DRAWS))
    return [quantile(medians, 0.025), quantile(medians, 0.975)]


def machine() -> str:
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        info = ""
    models = [line.split(": ")[1] for line in info.splitlines() if line.startswith("model name")]
    return f"{models[0] if models else platform.machine()}, {len(os.sched_getaffinity(0))} cores"


class Found:
    """What comes of a case: times by contender, figures beside them in microseconds, and words."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.figures: dict[str, list[float]] = {}
        self.notes: dict[str, str] = {}

    def add(self, figure: str, seconds: float) -> None:
        self.figures.setdefault(figure, []).append(seconds * 1e6)

    def verifies(self, contender: Contender, case: Case, truth: Truth) -> bool:
        """Whether it may be timed."""
        for part, seconds in contender.prepare(case).items():
            self.add(f"{contender.name} {part} us", seconds)
        right = contender.is_right(truth)
        if not right:
            unseen = right is None
            self.notes[contender.name] = "shows nobody what it moved" if unseen else "WRONG RESULT"
        return right is not False

    def times(self, contender: Contender, times: int) -> bool:
        parts = dict(contender.run(times))
        self.seconds.setdefault(contender.name, []).append(parts.pop("seconds"))
        for part, seconds in parts.items():
            self.add(f"{contender.name} {part} us", seconds)
        return True

    def fail(self, name: str, why: Failed) -> None:
        self.notes[name] = f"failed: {why}"
        self.seconds.pop(name, None)


class Bench:
    """A group at work."""

    def __init__(self, group: str, runs: int, budget: float) -> None:
        self.group, self.runs, self.budget = group, runs, budget
        self.absent: dict[str, str] = {}
        self.cases: list[dict[str, Any]] = []
        print(f"# {group} on {machine()}", flush=True)

    def say(self, what: str) -> None:
        print(f"{self.group}: {what}", file=sys.stderr, flush=True)

    def lacks(self, name: str, why: str) -> None:
        if name not in self.absent:
            self.say(f"{name} is absent: {why}")
        self.absent.setdefault(name, why)

    def time(self, case: Case, truth: Truth, contenders: list[Contender], probe: Probe) -> None:
        """Verifies all that take the case, and times them in turns. Who fails is left out from then
        on."""
        found = Found()

        def works(contender: Contender, does: Callable[[], bool]) -> bool:
            try:
                return does()
            except Failed as why:
                found.fail(contender.name, why)
                contenders.remove(contender)
                contender.close()
                return False

        taking = [c for c in contenders if c.takes(case)]
        ready = [c for c in taking if works(c, lambda: found.verifies(c, case, truth))]
        started = time.monotonic()
        for run in range(self.runs):
            if run >= LEAST_RUNS and time.monotonic() - started > self.budget:
                break
            # Ours are the ranks that know how.
            if probe is not None and any(c.name == OURS for c in contenders):
                found.add("core-to-core us", probe())
            # Each goes first in turn, and so after the one that leaves the caches in the worst state.
            first = run % max(1, len(ready))
            for contender in ready[first:] + ready[:first]:
                works(contender, lambda: found.times(contender, case.times))
            ready = [c for c in ready if c in contenders]
        self.record(case, found)

    def record(self, case: Case, found: Found) -> None:
        seconds, figures, notes = found.seconds, found.figures, found.notes
        ours = seconds.get(OURS, [])
        ratios = {
            name: [theirs / mine for theirs, mine in zip(times, ours)]
            for name, times in seconds.items()
            if name != OURS and ours
        }
        measured: dict[str, Any] = {
            "case": case.name,
            "verified": OURS not in notes,
            "bytes": case.bytes * case.times,
            "threads": 2,
            "runs": len(next(iter(seconds.values()), [])),
            "seconds": {name: median(times) for name, times in sorted(seconds.items())},
            "ratio": {name: quartiles(values) for name, values in sorted(ratios.items())},
            "interval": {name: interval(values) for name, values in sorted(ratios.items())},
            "figures": {name: median(values) for name, values in figures.items()},
        }
        probes = figures.get("core-to-core us", [])
        if probes:
            low, _, high = quartiles(probes)
            measured["figures"] |= {"core-to-core us p25": low, "core-to-core us p75": high}
        measured["figures"]["load"] = os.getloadavg()[0]
        if notes:
            measured["notes"] = notes
        print(table(measured), flush=True)
        self.cases.append(measured)

    def finish(self, out: Path, before: Path | None = None) -> None:
        """Writes the report, with the cases of another that the same run left in `before`."""
        first: dict[str, Any] = {"absent": [], "cases": []}
        if before is not None and before.exists():
            first = json.loads(before.read_text())
        report = {
            "group": self.group,
            "machine": machine(),
            "absent": sorted({*first["absent"], *self.absent}),
            "why_absent": self.absent,
            "cases": first["cases"] + self.cases,
        }
        if not report["cases"]:
            return self.say("no case has a name that matches")
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{self.group}.json"
        path.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
        absent = f"absent: {', '.join(report['absent'])}; " if report["absent"] else ""
        print(f"# {absent}written to {path}", flush=True)

    def wrong(self) -> list[str]:
        return [case["case"] for case in self.cases if not case["verified"]]


def table(measured: Mapping[str, Any]) -> str:
    """The lines of a case."""
    mark = "" if measured["verified"] else "  WRONG RESULT"
    lines = [f"{measured['case']:48} {measured['bytes']} B, {measured['runs']} runs{mark}"]
    for name, seconds in measured["seconds"].items():
        line = f"    {name:16} {seconds * 1e6:12.3f} us"
        if name in measured["ratio"]:
            (low, middle, high), (start, end) = measured["ratio"][name], measured["interval"][name]
            line += f"  x{middle:.3f} [{low:.3f} .. {high:.3f}], median in {start:.3f} .. {end:.3f}"
        lines.append(line)
    lines += [f"    {name} = {value:.6g}" for name, value in measured["figures"].items()]
    lines += [f"    {name}: {note}" for name, note in measured.get("notes", {}).items()]
    return "\n".join(lines)
