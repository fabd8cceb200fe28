"""What the ranks that are written in Python share: memory, and the lines of pairs.py.

A rank is started as `PROGRAM RANK FOLDER BYTES`. It has BYTES of its own, and as many that the other
reaches.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Places = np.ndarray[Any, np.dtype[np.uint64]]
# Seconds, by what took them.
Answer = dict[str, float]

PAGE = 4096
PR_SET_PDEATHSIG = 1


def span(how: str, size: int) -> int:
    """The bytes that blocks of `size` bytes in all lie in."""
    return size if how == "plain" else 2 * size


def places(how: str, count: int) -> Places:
    """Where the blocks lie, counted in blocks."""
    if how == "plain":
        return np.arange(count, dtype=np.uint64)
    if how == "every":
        return np.arange(0, 2 * count, 2, dtype=np.uint64)
    return np.fromfile(how, np.uint64)


def aligned(size: int) -> Bytes:
    """Zeros that start with a page, as registered memory does best."""
    memory = np.zeros(size + PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE
    return memory[start : start + size]


class Rank:
    """One of two; what it does a case by is its subclass's."""

    def __init__(self, number: int, folder: Path, size: int) -> None:
        self.number, self.folder = number, folder
        self.own, self.shared = aligned(size), aligned(size)
        # Whether what messages carry is copied to where it can be looked at.
        self.keeps = False

    def known(self, mine: bytes) -> bytes:
        """Tells the other rank something, and returns what it tells."""
        half = self.folder / f"{self.number}.half"
        half.write_bytes(mine)
        half.rename(self.folder / f"{self.number}.known")
        theirs = self.folder / f"{1 - self.number}.known"
        while not theirs.exists():
            time.sleep(0.01)
        return theirs.read_bytes()

    def set(self, words: list[str]) -> Answer:
        """Makes ready for a case, whose line this is."""
        raise NotImplementedError

    def run(self, times: int) -> Answer:
        """Does it, on the first rank."""
        raise NotImplementedError

    def together(self, run: Callable[[], Answer]) -> Answer:
        """Runs on the first rank; the other serves it if it has to."""
        return run() if self.number == 0 else {}

    def timed(self, times: int) -> Answer:
        started = time.perf_counter()
        parts = self.run(times)
        return {"seconds": time.perf_counter() - started, **parts}

    def obey(self, line: str) -> Answer:
        verb, *words = line.split()
        if verb in ("load", "dump"):
            which, size, path = words
            memory = (self.own if which == "own" else self.shared)[: int(size)]
            if verb == "dump":
                memory.tofile(path)
            else:
                memory[:] = np.fromfile(path, np.uint8, int(size))
            return {}
        if verb == "once":
            self.keeps = True
            self.together(lambda: self.run(1))
            self.keeps = False
            return {}
        if verb in ("run", "time"):
            if verb == "run":
                self.together(lambda: self.run(1))
            return self.together(lambda: self.timed(int(words[0])))
        return self.set([verb, *words])

    def serve(self) -> None:
        """Obeys until it is told to quit, or nobody is left who could."""
        inward, outward = (self.folder / f"{self.number}.{end}" for end in ("in", "out"))
        with inward.open() as lines, outward.open("w") as answers:
            print("{}", file=answers, flush=True)
            for line in iter(lines.readline, ""):
                if line.strip() == "quit":
                    return
                try:
                    answer: dict[str, Any] = dict(self.obey(line))
                except Exception as error:
                    answer = {"error": f"{type(error).__name__}: {error}"}
                print(json.dumps(answer), file=answers, flush=True)


def main(rank: type[Rank]) -> None:
    number, folder, size = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    os.sched_setaffinity(0, [number])
    # Whatever becomes of who tells it what to do, nobody spins for ever.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    rank(number, folder, size).serve()
    # The libraries' threads need no farewell, and some wait for the other rank's.
    os._exit(0)
