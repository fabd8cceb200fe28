"""Awaits events with one descriptor for each loop, and no thread."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import Counter
from typing import Protocol


class _Finished(Protocol):
    def fileno(self) -> int: ...
    def take(self) -> list[int]: ...


class _Event(Protocol):
    def _notify(self, token: int) -> None: ...
    def _outcome(self) -> None: ...


class Waiters:
    """The futures of a machine's events, by token.

    Every loop that awaits watches the machine's descriptor. Whichever is woken takes all tokens,
    and hands the futures of others over to their loops.
    """

    def __init__(self, finished: _Finished) -> None:
        self._fd = finished.fileno()
        self._take = finished.take
        # The collector may close an abandoned wait() while this thread holds it.
        self._lock = threading.RLock()
        self._tokens = itertools.count()
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._waiting: Counter[asyncio.AbstractEventLoop] = Counter()

    async def wait(self, event: _Event) -> None:
        """Returns when `event` has ended well, and raises what ended it otherwise."""
        loop = asyncio.get_running_loop()
        token, future = next(self._tokens), loop.create_future()
        try:
            with self._lock:
                self._futures[token] = future
                self._waiting[loop] += 1
                if self._waiting[loop] == 1:
                    loop.add_reader(self._fd, self._wake)
            event._notify(token)
            await future
        finally:
            with self._lock:
                self._futures.pop(token, None)
                self._waiting[loop] -= 1
                if not self._waiting[loop]:
                    del self._waiting[loop]
                    loop.remove_reader(self._fd)
        event._outcome()

    def _wake(self) -> None:
        for token in self._take():
            with self._lock:
                future = self._futures.pop(token, None)
            if future is not None:
                # A loop that was closed meanwhile has nobody who waits.
                with contextlib.suppress(RuntimeError):
                    future.get_loop().call_soon_threadsafe(_finish, future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
