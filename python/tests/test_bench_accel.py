"""The Python part of `make bench GROUP=accel`, with this processor for a device and contenders of its own."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import isometry as iso

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "ranks")]

import bench_accel  # noqa: E402
from bench_accel import Array, Isometry, Problem  # noqa: E402
from timing import Bench  # noqa: E402

RECORDS = "[('a', '<f4'), ('b', '<f4'), ('c', '<f4')]"


def problem(dims: str, dtype: str, src: str, dst: str) -> Problem:
    return Problem.of(
        {"name": "a", "dims": dims, "dtype": dtype, "from": src, "to": dst, "runs": 2}
    )


PROBLEMS = [
    problem("y=30, x=20", "<f4", "yx", "xy"),
    problem("y=30, x=20", "<f8", "yx", "xy"),
    problem("i=400", RECORDS, "i", "<i, F>"),
    problem("i=400", RECORDS, "<i, F>", "i"),
]


class NumPy:
    """Does on the host what a library does on a device."""

    name = "numpy"

    def begin(self, problem: Problem, source: Array) -> None:
        self.src = source.transpose(problem.permutation)

    def turn(self) -> None:
        self.dst = np.ascontiguousarray(self.src)

    def result(self) -> Array:
        return self.dst


class Wrong(NumPy):
    """Leaves out the last byte."""

    name = "wrong"

    def turn(self) -> None:
        super().turn()
        self.dst.reshape(-1).view("u1")[-1] ^= 1


@pytest.fixture(scope="module")
def m() -> Iterator[iso.Machine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISOMETRY_OPENCL", "all")
        patch.setenv("ISOMETRY_CUDA", "none")
        machine = iso.Machine()
    with machine:
        if all(memory["name"] != "fbm" for memory in machine.topology().to_dict()["memories"]):
            pytest.skip("no device of OpenCL")
        yield machine


def test_every_problem_is_turned_as_numpy_turns_it(m: iso.Machine) -> None:
    bench = Bench("a", 2, 1)
    bench_accel.time_all(bench, PROBLEMS, [Isometry(m), NumPy(), Wrong()])
    assert bench.wrong() == []
    for case in bench.cases:
        assert case["verified"] and set(case["ratio"]) == {"numpy"} and case["runs"] == 2
        assert case["notes"] == {"wrong": "WRONG RESULT"}


class Tensor:
    """What of PyTorch's is called, on an array of NumPy's."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def permute(self, axes: list[int]) -> Tensor:
        return Tensor(self.array.transpose(axes))

    def contiguous(self) -> Tensor:
        return Tensor(np.ascontiguousarray(self.array))

    def cuda(self) -> Tensor:
        return self

    cpu = cuda

    def numpy(self) -> Array:
        return self.array


def stand_in(library: str, devices: int) -> SimpleNamespace:
    """A library with so many devices, which are this processor."""

    def count() -> int:
        if not devices:
            raise RuntimeError("no device here")
        return devices

    done = SimpleNamespace(synchronize=lambda: None)
    if library == "torch":
        cuda = SimpleNamespace(is_available=lambda: devices > 0, synchronize=lambda: None)
        return SimpleNamespace(cuda=cuda, from_numpy=Tensor)
    cuda = SimpleNamespace(
        runtime=SimpleNamespace(getDeviceCount=count), get_current_stream=lambda: done
    )
    calls = {"asarray": np.asarray, "empty": np.empty, "copyto": np.copyto}
    return SimpleNamespace(cuda=cuda, asnumpy=np.asarray, **calls)


def test_libraries_are_called_as_they_want(
    m: iso.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: stand_in(name, 1))
    bench = Bench("a", 2, 1)
    bench_accel.time_all(bench, PROBLEMS, [Isometry(m), *bench_accel.peers(bench)])
    assert bench.absent == {} and bench.wrong() == []
    for case in bench.cases:
        assert set(case["ratio"]) == {"pytorch", "cupy"} and "notes" not in case


def test_libraries_without_a_device_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: stand_in(name, 0))
    bench = Bench("a", 2, 1)
    assert bench_accel.peers(bench) == []
    assert bench.absent == {"pytorch": "it has no CUDA", "cupy": "no device here"}


class Forgetful(Isometry):
    """Copies nothing."""

    def turn(self) -> None:
        pass


def test_what_is_not_copied_is_wrong(m: iso.Machine) -> None:
    bench = Bench("a", 2, 1)
    bench_accel.time_all(bench, PROBLEMS[:1], [Forgetful(m), NumPy()])
    assert bench.wrong() == [f"{bench_accel.label()}: a"]


def test_the_problems_of_the_bench_are_permutations() -> None:
    turned = problem("y=3, x=5", "<f4", "yx", "xy")
    assert turned.source().shape == (3, 5, 1) and turned.permutation == [1, 0, 2]
    records = problem("i=7", RECORDS, "i", "<i, F>")
    assert records.source().shape == (7, 3) and records.permutation == [1, 0]


def test_who_is_not_installed_or_has_no_device_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> Any:
        raise ImportError(f"no {name} here")

    monkeypatch.setattr(importlib, "import_module", refuse)
    bench = Bench("a", 2, 1)
    assert bench_accel.peers(bench) == []
    assert bench.absent == {"pytorch": "no torch here", "cupy": "no cupy here"}
    monkeypatch.setattr(sys, "argv", ["bench_accel.py", "--out", str(tmp_path)])
    bench_accel.main()
    assert not list(tmp_path.iterdir()), "nothing was timed"


def test_an_emulated_driver_is_called_so(
    m: iso.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISOMETRY_CUDA", "/a/libcuda.so.1")
    bench = Bench("accel_python", 2, 1)
    bench_accel.time_all(bench, PROBLEMS[:1], [Isometry(m), NumPy()])
    bench.finish(tmp_path)
    report = json.loads((tmp_path / "accel_python.json").read_text())
    assert [case["case"] for case in report["cases"]] == ["emulated CUDA: a"]
