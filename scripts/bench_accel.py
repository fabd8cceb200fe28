"""Conversions inside a device beside PyTorch's `.contiguous()` and CuPy's copy, in one process.

`make bench GROUP=accel` and `make gpu` run it behind `iso bench accel`. The cases are those of
bench/problems/accel.toml that convert inside a device; each contender has arrays of its own there, of the same
content, and every byte of its result is compared. Writes accel_python.json, in the form of the other
groups. Where neither PyTorch with CUDA nor CuPy is installed nothing is timed.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import re
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import isometry as iso

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "ranks"))

from timing import OURS, Bench, Case, Truth  # noqa: E402

# The fields as a dimension.
FIELDS = "F"
# What no case puts there.
POISON = 0xA5

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Problem:
    """An array that is turned from one order of its dimensions to another; fields are the last dimension."""

    name: str
    dims: dict[str, int]
    dtype: Any
    src: str
    dst: str
    runs: int

    @staticmethod
    def of(entry: dict[str, Any]) -> Problem:
        dims = (part.split("=") for part in entry["dims"].split(","))
        extents = {name.strip(): int(extent) for name, extent in dims}
        text: str = entry["dtype"]
        dtype = ast.literal_eval(text) if text.startswith("[") else text
        return Problem(entry["name"], extents, dtype, entry["from"], entry["to"], entry["runs"])

    @property
    def fields(self) -> list[str]:
        """The types of the fields, one after the other in a structure."""
        return [self.dtype] if isinstance(self.dtype, str) else [t for _, t in self.dtype]

    def order(self, layout: str) -> list[str]:
        """The dimensions of a layout, slowest first, with the fields among them."""
        if layout.startswith("<"):
            return [part.strip() for part in layout.strip("<>").split(",")][::-1]
        return [*layout, FIELDS]

    def source(self) -> Array:
        """What it holds, an axis for each dimension of the source's order: no two bytes that are near are
        alike."""
        kinds = set(self.fields)
        assert len(kinds) == 1, "fields of one type are a dimension"
        extents = self.dims | {FIELDS: len(self.fields)}
        shape = [extents[dim] for dim in self.order(self.src)]
        kind = np.dtype(kinds.pop())
        noise = np.random.default_rng(0).integers(0, 256, kind.itemsize * np.prod(shape), "u1")
        return noise.view(kind).reshape(shape)

    @property
    def permutation(self) -> list[int]:
        """Which of the source's axes each of the destination's is."""
        src = self.order(self.src)
        return [src.index(dim) for dim in self.order(self.dst)]


class Contender(Protocol):
    """One that turns an array on a device."""

    name: str

    def begin(self, problem: Problem, source: Array) -> None:
        """Has the source on the device."""

    def turn(self) -> None:
        """Turns it once; the result is there when this returns."""

    def result(self) -> Array:
        """The result, on the host."""


class Isometry:
    """A copy in a machine, from one instance on its first device to another."""

    name = OURS

    def __init__(self, machine: iso.Machine) -> None:
        self.machine = machine

    def begin(self, problem: Problem, source: Array) -> None:
        m, (dims, dtype) = self.machine, (problem.dims, np.dtype(problem.dtype))
        host = m.empty(dims, dtype, layout=problem.src)
        np.frombuffer(host.bytes(), "u1")[:] = source.reshape(-1).view("u1")
        self.src = m.empty(dims, dtype, layout=problem.src, memory="fbm")
        self.dst = m.empty(dims, dtype, layout=problem.dst, memory="fbm")
        self.back = m.empty(dims, dtype, layout=problem.dst)
        m.copy(host, self.src).wait()

    def turn(self) -> None:
        self.machine.copy(self.src, self.dst).wait()

    def result(self) -> Array:
        found = np.frombuffer(self.back.bytes(), "u1")
        found[:] = POISON
        self.machine.copy(self.dst, self.back).wait()
        return found


class PyTorch:
    """`Tensor.contiguous()` of a permuted tensor."""

    name = "pytorch"

    def __init__(self) -> None:
        self.torch: Any = importlib.import_module("torch")
        if not self.torch.cuda.is_available():
            raise ImportError("it has no CUDA")

    def begin(self, problem: Problem, source: Array) -> None:
        there = self.torch.from_numpy(source).cuda()
        self.src = there.permute(problem.permutation)

    def turn(self) -> None:
        self.dst = self.src.contiguous()
        self.torch.cuda.synchronize()

    def result(self) -> Array:
        return np.ascontiguousarray(self.dst.cpu().numpy())


class CuPy:
    """`cupy.copyto` of a transposed array."""

    name = "cupy"

    def __init__(self) -> None:
        self.cupy: Any = importlib.import_module("cupy")
        self.cupy.cuda.runtime.getDeviceCount()

    def begin(self, problem: Problem, source: Array) -> None:
        self.src = self.cupy.asarray(source).transpose(problem.permutation)
        self.dst = self.cupy.empty(self.src.shape, self.src.dtype)

    def turn(self) -> None:
        self.cupy.copyto(self.dst, self.src)
        self.cupy.cuda.get_current_stream().synchronize()

    def result(self) -> Array:
        return np.ascontiguousarray(self.cupy.asnumpy(self.dst))


PEERS: list[Callable[[], Contender]] = [PyTorch, CuPy]


class Timed:
    """A contender of one problem, as the clock asks for it."""

    def __init__(self, contender: Contender, problem: Problem, source: Array) -> None:
        self.contender, self.problem, self.source = contender, problem, source
        self.name = contender.name

    def takes(self, case: Case) -> bool:
        return True

    def prepare(self, case: Case) -> dict[str, float]:
        self.contender.begin(self.problem, self.source)
        return {}

    def is_right(self, truth: Truth) -> bool:
        self.contender.turn()
        expected = np.ascontiguousarray(self.source.transpose(self.problem.permutation))
        found = self.contender.result().reshape(-1).view("u1")
        return bool(np.array_equal(found, expected.reshape(-1).view("u1")))

    def run(self, times: int) -> dict[str, float]:
        started = time.perf_counter()
        for _ in range(times):
            self.contender.turn()
        return {"seconds": time.perf_counter() - started}

    def close(self) -> None:
        pass


def peers(bench: Bench) -> list[Contender]:
    """Those that are installed and have a device; the others are noted as absent."""
    found = []
    for peer in PEERS:
        try:
            found.append(peer())
        # A library without its device has errors of its own.
        except Exception as why:  # noqa: BLE001
            bench.lacks(peer.__name__.lower(), str(why))
    return found


def label() -> str:
    """What the cases begin with: a driver that is named by its path is one that emulates."""
    return "emulated CUDA" if "/" in os.environ.get("ISOMETRY_CUDA", "") else "CUDA"


def time_all(bench: Bench, problems: list[Problem], contenders: list[Contender]) -> None:
    for problem in problems:
        source = problem.source()
        case = Case(f"{label()}: {problem.name}", "convert", source.nbytes, source.itemsize)
        bench.runs = problem.runs
        timed = [Timed(contender, problem, source) for contender in contenders]
        bench.time(case, Truth(Path(), 0, 0), list(timed), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("filter", nargs="?", default="")
    parser.add_argument("--out", type=Path, default=Path("bench/out"))
    parser.add_argument("--budget", type=float, default=5, help="seconds of timing for a case")
    arguments = parser.parse_args()
    entries = tomllib.loads((ROOT / "bench/problems/accel.toml").read_text())["inside"]
    pattern = re.compile(arguments.filter)
    problems = [Problem.of(e) for e in entries if pattern.search(f"{label()}: {e['name']}")]
    bench = Bench("accel_python", 0, arguments.budget)
    found = peers(bench)
    if not found:
        return bench.say("nobody is there to be beside")
    with iso.Machine() as machine:
        time_all(bench, problems, [Isometry(machine), *found])
    bench.finish(arguments.out)
    if wrong := bench.wrong():
        sys.exit(f"wrong results: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
