"""What is refused, and with which exception."""

import asyncio
import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isometry as iso


def test_the_tree_of_exceptions() -> None:
    for error in [
        iso.LayoutError,
        iso.PlanError,
        iso.TransferError,
        iso.FileFormatError,
        iso.PeerLost,
        iso.Cancelled,
        iso.Timeout,
    ]:
        assert issubclass(error, iso.Error)
    assert issubclass(iso.Timeout, TimeoutError)


def test_a_transfer_error_says_where() -> None:
    error = iso.TransferError("it failed", 2, "dsk", "disk full")
    assert (error.hop, error.memory, error.cause, str(error)) == (2, "dsk", "disk full", "it failed")
    assert isinstance(pickle.loads(pickle.dumps(error)), iso.TransferError)


@pytest.mark.parametrize(
    "src, dst",
    [
        ({"x": 4}, {"x": 5}),
        ({"x": 4}, {"y": 4}),
        ({"x": 4}, {"x": 4, "y": 1}),
    ],
)
def test_boxes_that_differ(m: iso.Machine, src: dict[str, int], dst: dict[str, int]) -> None:
    with pytest.raises(iso.LayoutError):
        m.copy(m.empty(src, "u1"), m.empty(dst, "u1"))


def test_types_that_differ(m: iso.Machine) -> None:
    for other in ["i4", "f8", [("a", "f4"), ("b", "f4")]]:
        with pytest.raises(iso.LayoutError):
            m.copy(m.empty({"x": 4}, "f4"), m.empty({"x": 4}, other))


def test_boxes_outside(m: iso.Machine) -> None:
    a = m.empty({"x": 4}, "u1")
    for wrong in [{"x": (0, 5)}, {"x": (-1, 2)}, {"x": (3, 1)}, {"y": (0, 1)}]:
        with pytest.raises(ValueError):
            a.box(wrong)
    for indices in [[4], [-1]]:
        with pytest.raises(ValueError):
            a.take("x", indices)
    with pytest.raises(TypeError):
        a.box({"x": "all"})  # type: ignore[dict-item]


def test_overlap(m: iso.Machine) -> None:
    a = np.arange(16, dtype="u4")
    with pytest.raises(ValueError):
        m.copy(m.wrap(a[:8], dims="x"), m.wrap(a[4:12], dims="x"))
    inst = m.empty({"x": 16}, "u4")
    with pytest.raises(ValueError):
        m.copy(inst.box({"x": (0, 8)}), inst.box({"x": (4, 12)}))
    m.copy(inst.box({"x": (0, 8)}), inst.box({"x": (8, 16)})).wait()
    m.copy(m.wrap(a[::2], dims="x"), m.wrap(a[1::2], dims="x")).wait()
    assert (a[1::2] == a[::2]).all()
    b = np.arange(32, dtype="u4").reshape(4, 8)
    m.copy(m.wrap(b[:, :4], dims="yx"), m.wrap(b[:, 4:], dims="yx")).wait()
    assert (b[:, 4:] == b[:, :4]).all()
    with pytest.raises(ValueError):
        m.copy(m.wrap(b[:, :4], dims="yx"), m.wrap(b[:, 3:7], dims="yx"))


def test_a_destination_of_stride_0(m: iso.Machine) -> None:
    row = np.zeros(4, "u1")
    wide = np.lib.stride_tricks.as_strided(row, (3, 4), (0, 1))
    with pytest.raises(ValueError):
        m.copy(m.empty({"y": 3, "x": 4}, "u1"), m.wrap(wide, dims="yx"))
    with pytest.raises(ValueError):
        m.copy(m.empty({"x": 3}, "u1"), m.empty({"x": 4}, "u1").take("x", [1, 2, 1]))


def test_wrong_arguments(m: iso.Machine) -> None:
    a, b = m.empty({"x": 4}, "u1"), m.empty({"x": 4}, "u1")
    with pytest.raises(ValueError):
        m.copy(a, b, algorithm="magic")  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        m.copy(a, b, deadline=-1)
    with pytest.raises(TypeError):
        m.copy(a, "b")  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        iso.Machine(staging={"sys": "many"})
    with pytest.raises(ValueError):
        iso.Machine(staging={"moon": "1MiB"})


def test_numbers_out_of_bounds_are_value_errors_that_name_the_argument(m: iso.Machine) -> None:
    a, b = m.empty({"x": 4}, "u1"), m.empty({"x": 4}, "u1")
    for priority in [1 << 31, -(1 << 31) - 1, 1 << 40, 1 << 200]:
        with pytest.raises(ValueError, match="priority must be from -2147483648 to 2147483647"):
            m.copy(a, b, priority=priority)
    m.copy_many([(a, b)], priority=(1 << 31) - 1).wait()
    for lanes in [0, -1, 10**9, 1 << 100]:
        with pytest.raises(ValueError, match="lanes must be from 1 to 1024"):
            iso.Machine(lanes=lanes)
    for staging in [-1, 1 << 63]:
        with pytest.raises(ValueError, match="staging must be from 0"):
            iso.Machine(staging={"sys": staging})
    for wrong in [1.5, "2", None]:
        with pytest.raises(TypeError, match="priority must be an integer"):
            m.copy(a, b, priority=wrong)  # type: ignore[arg-type]


def test_indices_past_all_bounds_are_value_errors(m: iso.Machine) -> None:
    a = m.empty({"x": 4}, "u1")
    for index in [1 << 63, -(1 << 63) - 1, 1 << 200]:
        with pytest.raises(ValueError):
            a.take("x", [index])
        with pytest.raises(ValueError):
            a.box({"x": (0, index)})
        with pytest.raises(ValueError):
            m.empty({"x": index}, "u1")
    with pytest.raises(TypeError):
        a.take("x", [0.5])  # type: ignore[list-item]
    assert a.take("x", list(np.arange(2))).shape == (2,)


def test_wrong_times_and_events_name_the_argument(m: iso.Machine) -> None:
    a, b = m.empty({"x": 4}, "u1"), m.empty({"x": 4}, "u1")
    for wrong in [-1.0, -1e300, float("nan")]:
        with pytest.raises(ValueError, match="deadline must be 0 seconds or more") as refused:
            m.copy(a, b, deadline=wrong)
        assert len(str(refused.value)) < 80
        with pytest.raises(ValueError, match="timeout must be 0 seconds or more"):
            m.copy(a, b).wait(timeout=wrong)
    for after in [5, [5], "event", a]:
        with pytest.raises(TypeError, match="after is an Event or an iterable of Events"):
            m.copy(a, b, after=after)  # type: ignore[arg-type]
    m.copy(a, b, after=(e for e in [m.copy(a, b)])).wait()


def test_the_memory_and_the_field_are_named(m: iso.Machine, tmp_path: Path) -> None:
    f = m.create(tmp_path / "a.npy", dims={"x": 4}, dtype="f4")
    with pytest.raises(ValueError, match="`dsk` is not host memory"):
        np.asarray(f)
    with pytest.raises(iso.LayoutError, match="the lone field is <i4 in the source"):
        m.copy(m.empty({"x": 4}, "i4"), f)


def test_files_are_missing_or_forbidden_as_python_says_it(m: iso.Machine, tmp_path: Path) -> None:
    a = m.empty({"x": 4}, "u1")
    for gone in [tmp_path / "none" / "a.npy", tmp_path / "none" / "none" / "a.npy"]:
        with pytest.raises(FileNotFoundError) as missing:
            m.create(gone, like=a)
        assert (missing.value.errno, missing.value.filename) == (errno.ENOENT, str(gone))
        with pytest.raises(FileNotFoundError) as missing:
            m.open(gone)
        assert missing.value.errno == errno.ENOENT
    with pytest.raises(FileNotFoundError) as missing:
        iso.Machine(disk=tmp_path / "nope")
    assert missing.value.filename == str(tmp_path / "nope")
    with pytest.raises(IsADirectoryError):
        m.open(tmp_path, dims={"x": 4}, dtype="u1")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        m.create(tmp_path / "file" / "a.npy", like=a)


def test_a_nul_in_a_path_is_a_wrong_argument(m: iso.Machine, tmp_path: Path) -> None:
    path = tmp_path / "a\0b.npy"
    uses: list[Callable[[], object]] = [
        lambda: m.open(path),
        lambda: m.create(path, dims={"x": 4}, dtype="u1"),
        lambda: iso.Machine(disk=path),
    ]
    for use in uses:
        with pytest.raises(ValueError, match=r"a\\0b.npy.* NUL"):
            use()


def test_a_directory_that_may_not_be_written(m: iso.Machine, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    # Root may write anywhere but in the kernel's own file systems.
    path = Path("/sys/a.npy") if os.geteuid() == 0 else tmp_path / "a.npy"
    with pytest.raises(PermissionError) as refused:
        m.create(path, dims={"x": 4}, dtype="u1")
    assert (refused.value.errno, refused.value.filename) == (errno.EACCES, str(path))


def test_a_file_is_committed_once(m: iso.Machine, tmp_path: Path) -> None:
    f = m.create(tmp_path / "a.npy", dims={"x": 4}, dtype="u1")
    f.commit()
    with pytest.raises(ValueError, match="a.npy was committed"):
        f.commit()
    with pytest.raises(ValueError, match="nothing to commit"):
        m.empty({"x": 4}, "u1").commit()


def test_instances_of_another_machine(m: iso.Machine) -> None:
    with iso.Machine() as other:
        with pytest.raises(ValueError):
            m.copy(m.empty({"x": 4}, "u1"), other.empty({"x": 4}, "u1"))


def test_a_closed_machine_says_so(tmp_path: Path) -> None:
    machine = iso.Machine()
    a, b = machine.empty({"x": 4}, "u1"), machine.empty({"x": 4}, "u1")
    machine.close()
    machine.close()
    with pytest.raises(iso.Error, match="closed"):
        machine.copy(a, b)
    with pytest.raises(iso.Error, match="closed"):
        machine.create(tmp_path / "a.npy", like=a)


def test_a_machine_after_a_fork_says_so(m: iso.Machine) -> None:
    import os

    a, b = m.empty({"x": 4}, "u1"), m.empty({"x": 4}, "u1")
    child = os.fork()
    if child == 0:
        try:
            m.copy(a, b)
        except iso.Error as error:
            os._exit(0 if "fork" in str(error) else 3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    m.copy(a, b).wait()


async def awaited(event: iso.Event) -> None:
    await event


@pytest.mark.parametrize(
    "wait",
    [
        iso.Event.wait,
        lambda event: asyncio.run(awaited(event)),
        iso.Event.progress,
        iso.Event.report,
    ],
)
def test_an_event_that_runs_on_says_so_after_a_fork(m: iso.Machine, wait: Any) -> None:
    import os

    a, b = m.empty({"y": 8192, "x": 8192}, "u1"), m.empty({"x": 8192, "y": 8192}, "u1")
    event = m.copy(a, b)
    child = os.fork()
    if child == 0:
        try:
            wait(event)
        except iso.Error as error:
            os._exit(0 if "fork" in str(error) else 3)
        os._exit(0 if event.done() else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    event.wait()


def test_a_timeout_past_all_clocks_is_for_ever(m: iso.Machine) -> None:
    a, b = m.empty({"y": 2048, "x": 2048}, "u1"), m.empty({"x": 2048, "y": 2048}, "u1")
    m.copy(a, b).wait(timeout=1e19)


def test_an_array_whose_descriptions_disagree(m: iso.Machine) -> None:
    class Liar:
        dtype = np.dtype("f8")
        __array_interface__ = np.zeros(4, "u1").__array_interface__

    with pytest.raises(ValueError, match="disagree"):
        m.wrap(Liar(), dims="x")
