"""Memories of accelerators: the processor as two devices of OpenCL, by PoCL; without it skipped."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import isometry as iso


@pytest.fixture(scope="module")
def m() -> Iterator[iso.Machine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_DEVICES", os.environ.get("POCL_DEVICES", "pthread pthread"))
        patch.setenv("ISOMETRY_OPENCL", "all")
        machine = iso.Machine()
    with machine:
        if "fbm1" not in names(machine):
            pytest.skip("no two devices of OpenCL")
        yield machine


def names(machine: iso.Machine) -> list[str]:
    return [memory["name"] for memory in machine.topology().to_dict()["memories"]]


def test_an_array_goes_from_device_to_device_and_back_in_other_layouts(m: iso.Machine) -> None:
    images = np.arange(4 * 30 * 20 * 3, dtype="f4").reshape(4, 30, 20, 3)
    shape = dict(zip("nhwc", images.shape, strict=True))
    there = m.empty(shape, "f4", memory="fbm")
    planes = m.empty(shape, "f4", layout="nchw", memory="fbm1")
    m.copy(m.wrap(images, dims="nhwc"), there).wait(timeout=20)
    m.copy(there, planes).wait(timeout=20)
    m.verify(there, planes)
    back = np.zeros((4, 3, 30, 20), "f4")
    m.copy(planes, m.wrap(back, dims="nchw")).wait(timeout=20)
    assert (back == images.transpose(0, 3, 1, 2)).all()


def test_a_file_goes_to_a_device(m: iso.Machine, tmp_path: Path) -> None:
    rows = np.random.default_rng(1).integers(0, 255, (500, 300), dtype="u1")
    np.save(tmp_path / "rows.npy", rows)
    there = m.empty({"y": 500, "x": 300}, "u1", layout="xy", memory="fbm")
    file = m.open(tmp_path / "rows.npy", dims="yx")
    m.copy(file, there).wait(timeout=20)
    near = m.empty({"y": 500, "x": 300}, "u1", memory="zcm")
    m.copy(there, near).wait(timeout=20)
    assert (np.asarray(near) == rows).all()


def test_memory_of_a_device_is_no_array_here(m: iso.Machine) -> None:
    there = m.empty({"x": 8}, "u1", memory="fbm")
    with pytest.raises(ValueError, match="fbm"):
        np.asarray(there)
    with pytest.raises(ValueError, match="fbm"):
        there.bytes()
    with pytest.raises(MemoryError):
        m.empty({"x": 1 << 50}, "u1", memory="fbm")


def test_a_child_of_a_fork_has_none(m: iso.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISOMETRY_OPENCL", "all")
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with iso.Machine() as machine:
            os._exit(int("fbm" in names(machine)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_variable_that_names_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISOMETRY_OPENCL", "some")
    with pytest.raises(ValueError, match="`some`"):
        iso.Machine()
