"""Events under asyncio."""

import asyncio
import threading

import numpy as np
import pytest

import isometry as iso


def large(m: iso.Machine) -> tuple[iso.Instance, iso.Instance]:
    a = np.zeros((4096, 4096), "u4")
    return m.wrap(a, dims="yx"), m.empty({"y": 4096, "x": 4096}, "u4", layout="xy")


def test_an_event_is_awaited(m: iso.Machine) -> None:
    async def main() -> None:
        a = np.arange(1 << 20, dtype="u4").reshape(1024, -1)
        dst = m.empty({"y": 1024, "x": 1024}, "u4", layout="xy")
        event = m.copy(m.wrap(a, dims="yx"), dst)
        await event
        assert event.done() and (np.asarray(dst) == a).all()
        await event

    asyncio.run(main())


def test_many_are_awaited_without_a_thread_for_each(m: iso.Machine) -> None:
    async def main() -> None:
        pairs = [large(m) for _ in range(8)]
        before = threading.active_count()
        events = [m.copy(src, dst) for src, dst in pairs]
        waits = [asyncio.ensure_future(wait(event)) for event in events]
        await asyncio.sleep(0)
        assert threading.active_count() == before
        await asyncio.gather(*waits)

    async def wait(event: iso.Event) -> None:
        await event

    asyncio.run(main())


def test_the_loop_runs_meanwhile(m: iso.Machine) -> None:
    async def main() -> int:
        src, dst = large(m)
        event, ticks = m.copy(src, dst), 0

        async def wait() -> None:
            await event

        waiting = asyncio.ensure_future(wait())
        while not waiting.done():
            ticks += 1
            await asyncio.sleep(0.0005)
        return ticks

    assert asyncio.run(main()) > 3


def test_failure_comes_out_of_await(m: iso.Machine) -> None:
    async def main() -> None:
        src, dst = large(m)
        event = m.copy(src, dst)
        waiting = asyncio.ensure_future(asyncio.wait_for(_await(event), 60))
        await asyncio.sleep(0)
        event.cancel()
        with pytest.raises(iso.Cancelled):
            await waiting

    asyncio.run(main())


def test_a_cancelled_task_leaves_the_copy(m: iso.Machine) -> None:
    async def main() -> iso.Event:
        src, dst = large(m)
        event = m.copy(src, dst)
        task = asyncio.ensure_future(_await(event))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await event
        return event

    asyncio.run(main()).wait()


def test_two_loops_on_one_machine(m: iso.Machine) -> None:
    failures: list[BaseException] = []

    async def main() -> None:
        for _ in range(5):
            src, dst = large(m)
            await asyncio.wait_for(_await(m.copy(src, dst)), 60)

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_gather_of_many_small_ones(m: iso.Machine) -> None:
    async def main() -> None:
        a, b = m.empty({"x": 64}, "u1"), m.empty({"x": 64}, "u1")
        await asyncio.gather(*(_await(m.copy(a, b)) for _ in range(200)))

    asyncio.run(main())


def test_a_closed_loop_holds_up_no_other(m: iso.Machine) -> None:
    first = m.copy(*large(m))
    second = m.copy(*large(m), after=first)

    async def start(event: iso.Event) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(_await(event))
        await asyncio.sleep(0)
        return task

    async def main() -> None:
        task = await start(second)
        # This loop finds the ends of both at once.
        first.wait()
        second.wait()
        await asyncio.wait_for(task, 60)

    closed = asyncio.new_event_loop()
    abandoned = closed.run_until_complete(start(first))
    closed.close()
    asyncio.run(main())
    assert not abandoned.done()


def test_a_loop_that_could_not_watch_is_asked_again(m: iso.Machine) -> None:
    async def main() -> None:
        def refuse(*_: object) -> None:
            raise OSError("no space left")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
            with pytest.raises(OSError):
                await m.copy(*large(m))
        await asyncio.wait_for(_await(m.copy(*large(m))), 60)

    asyncio.run(main())


async def _await(event: iso.Event) -> None:
    await event
