"""Memories of accelerators: the processor as two devices of OpenCL, by PoCL, and two devices of CUDA that
are emulated; those that are not there are skipped."""

import ctypes
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import isometry as iso

# Made with the tests of Rust.
FAKE = Path(__file__).parents[2] / "target/debug/deps/libfake_cuda.so"


def choose(patch: pytest.MonkeyPatch, opencl: str, cuda: str) -> None:
    patch.setenv("POCL_DEVICES", os.environ.get("POCL_DEVICES", "pthread pthread"))
    patch.setenv("ISOMETRY_OPENCL", opencl)
    patch.setenv("ISOMETRY_CUDA", cuda)


def driver(directory: Path) -> str:
    if not FAKE.exists():
        pytest.skip("no emulated driver: cargo build -p isometry-fake-cuda makes it")
    return str(shutil.copy(FAKE, directory / "libcuda.so.1"))


@pytest.fixture(scope="module", params=["OpenCL", "CUDA"])
def m(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[iso.Machine]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "OpenCL":
            choose(patch, "all", "none")
        else:
            choose(patch, "none", driver(tmp_path_factory.mktemp("driver")))
        machine = iso.Machine()
    with machine:
        if "fbm1" not in names(machine):
            pytest.skip(f"no two devices of {request.param}")
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


def test_a_lost_device_is_named_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = driver(tmp_path)
    choose(monkeypatch, "none", library)
    with iso.Machine() as m:
        here = m.wrap(np.arange(8, dtype="u1"), dims="x")
        lost, other = (m.empty({"x": 8}, "u1", memory=name) for name in ("fbm", "fbm1"))
        ctypes.CDLL(library).fake_fail(0, 700, True)
        with pytest.raises(iso.TransferError, match="Emulated 0.*ILLEGAL_ADDRESS"):
            m.copy(here, lost).wait(timeout=20)
        with pytest.raises(iso.PlanError, match="`Emulated 0` is lost.*ILLEGAL_ADDRESS"):
            m.copy(here, lost)
        m.copy(here, other).wait(timeout=20)
        m.verify(here, other)


def test_a_child_of_a_fork_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, "all", "none")
    with iso.Machine() as machine:
        if "fbm" not in names(machine):
            pytest.skip("no device of OpenCL")
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            with iso.Machine() as machine:
                os._exit(int("fbm" in names(machine)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("variable", ["ISOMETRY_OPENCL", "ISOMETRY_CUDA"])
def test_a_variable_that_names_none_is_refused(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "some")
    with pytest.raises(ValueError, match="`some`"):
        iso.Machine()
