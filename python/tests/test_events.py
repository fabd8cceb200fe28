"""Waiting, ending early, and what else may go on meanwhile."""

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isometry as iso

MIB = 1 << 20


class Large:
    """A copy that takes a while: a transpose of `mib` MiB of 2-byte entries."""

    def __init__(self, m: iso.Machine, mib: int = 256) -> None:
        self.m = m
        self.rows, self.columns = mib * 64, 8192
        self.array = np.arange(self.rows * self.columns, dtype="u2").reshape(self.rows, -1)
        self.src = m.wrap(self.array, dims="yx")
        self.dst = m.empty({"y": self.rows, "x": self.columns}, "u2", layout="xy")

    def start(self, **options: Any) -> iso.Event:
        return self.m.copy(self.src, self.dst, **options)

    def is_right(self) -> bool:
        return bool((np.asarray(self.dst) == self.array).all())


@pytest.fixture(scope="module")
def large(shared_machine: iso.Machine) -> Large:
    return Large(shared_machine)


def test_wait_times_out_and_the_copy_runs_on(large: Large) -> None:
    event = large.start()
    with pytest.raises(iso.Timeout):
        event.wait(timeout=0.001)
    with pytest.raises(TimeoutError):
        event.wait(timeout=0)
    event.wait()
    assert event.done() and large.is_right()
    event.wait(timeout=0)


def test_progress_grows_to_the_whole(large: Large) -> None:
    event, seen = large.start(), [0]
    while not event.done():
        done, total = event.progress()
        assert seen[-1] <= done <= total == large.array.nbytes
        seen.append(done)
        time.sleep(0.002)
    event.wait()
    assert event.progress() == (large.array.nbytes, large.array.nbytes)
    assert len(set(seen)) > 2, "no progress was seen on the way"


def test_a_cancelled_copy_touches_nothing_more(large: Large) -> None:
    event = large.start()
    event.cancel()
    assert event.done()
    view = np.asarray(large.dst)
    view[...] = 0xBEEF
    time.sleep(0.05)
    assert (view == 0xBEEF).all()
    with pytest.raises(iso.Cancelled):
        event.wait()
    event.cancel()
    large.start().wait()
    assert large.is_right()


def test_a_deadline_ends_the_copy(large: Large) -> None:
    event = large.start(deadline=0.002)
    with pytest.raises(iso.Timeout):
        event.wait()
    assert event.done()
    large.start(deadline=600).wait()


def test_after_orders_copies(large: Large) -> None:
    m, rows = large.m, large.rows
    back = np.zeros_like(large.array)
    first = large.start()
    second = m.copy(large.dst, m.wrap(back, dims="yx"), after=first)
    third = m.copy(
        m.wrap(back, dims="yx").box({"y": (rows - 1, rows), "x": (8191, 8192)}),
        end := m.empty({"y": 1, "x": 1}, "u2"),
        after=[first, second],
    )
    third.wait()
    assert first.done() and second.done()
    assert np.asarray(end)[0, 0] == large.array[-1, -1] and (back == large.array).all()


def test_a_copy_after_a_failed_one_fails(large: Large) -> None:
    back = large.m.wrap(np.zeros_like(large.array), dims="yx")
    first = large.start()
    second = large.m.copy(large.dst, back, after=first)
    first.cancel()
    with pytest.raises(iso.Error):
        second.wait()


def test_another_thread_runs_while_one_waits(large: Large) -> None:
    counted, stop = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1

    thread = threading.Thread(target=count)
    event = large.start()
    thread.start()
    before = counted
    event.wait()
    after = counted
    stop.set()
    thread.join()
    # A wait that held the interpreter would have let nobody count.
    assert after - before > 1000


def test_another_thread_runs_while_a_machine_is_dropped() -> None:
    counted, stop = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1

    large = Large(iso.Machine())
    thread = threading.Thread(target=count)
    large.start()
    thread.start()
    before = counted
    # The last reference: this waits for the copy.
    del large.m
    after = counted
    stop.set()
    thread.join()
    assert large.is_right()
    assert after - before > 1000


def test_many_threads_wait_for_one_event(large: Large) -> None:
    event, ended = large.start(), list[int]()

    def wait() -> None:
        event.wait()
        ended.append(1)

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 4


def test_ctrl_c_interrupts_the_wait_and_not_the_copy(large: Large) -> None:
    event = large.start()
    # Whoever runs the tests may have had it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.01, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            while True:
                event.wait()
                event = large.start()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    event.wait()
    assert large.is_right()


def test_an_exception_in_with_cancels() -> None:
    with pytest.raises(RuntimeError, match="mine"):
        with iso.Machine() as machine:
            event = Large(machine).start()
            raise RuntimeError("mine")
    assert event.done()
    with pytest.raises(iso.Cancelled):
        event.wait()


def test_leaving_with_drains() -> None:
    with iso.Machine() as machine:
        large = Large(machine, 64)
        event = large.start()
    assert event.done() and large.is_right()
    event.wait()


def test_a_dropped_event_runs_on(large: Large) -> None:
    np.asarray(large.dst)[...] = 0
    large.start()
    gc.collect()
    large.m.copy(
        m_src := large.m.empty({"x": 1}, "u1"), large.m.empty({"x": 1}, "u1"), priority=-9
    ).wait()
    assert m_src.shape == (1,)
    deadline = time.monotonic() + 60
    while not large.is_right() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert large.is_right()


def test_the_failure_of_a_dropped_event_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with iso.Machine() as machine:
        large = Large(machine, 16)
        machine.copy(large.src, large.dst, deadline=0)
        kept = machine.copy(large.src, large.dst, deadline=0)
        with pytest.raises(iso.Timeout):
            kept.wait()
    logged = [r for r in caplog.records if r.name == "isometry"]
    assert [r.levelname for r in logged] == ["ERROR"]


def test_a_priority_is_any_32_bit_integer(m: iso.Machine) -> None:
    a, b = m.empty({"x": 4}, "u1"), m.empty({"x": 4}, "u1")
    for priority in [-(1 << 31), -1, 0, (1 << 31) - 1]:
        m.copy(a, b, priority=priority).wait()


def test_small_copies_are_quick_and_done_at_once(m: iso.Machine) -> None:
    a, b = m.empty({"x": 64}, "u1"), m.empty({"x": 64}, "u1")
    event = m.copy(a, b)
    assert event.done() and event.progress() == (64, 64)


def test_two_machines_in_one_process() -> None:
    with iso.Machine() as one, iso.Machine() as two:
        events = [Large(machine, 16).start() for machine in (one, two)]
        for event in events:
            event.wait()


def test_nothing_of_the_interpreter_is_held_at_exit(tmp_path: Path) -> None:
    program = """
import numpy as np, isometry as iso
m = iso.Machine()
a = np.zeros((4096, 4096), "u2")
e = m.copy(m.wrap(a, dims="yx"), m.empty({"y": 4096, "x": 4096}, "u2", layout="xy"))
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()


def test_logging_is_left_alone() -> None:
    assert not logging.getLogger("isometry").handlers
