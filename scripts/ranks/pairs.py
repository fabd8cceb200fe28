"""Two processes, a rank on each core, that do what they are told and sleep in between.

Each rank reads lines from a pipe of its own and answers each with an object of JSON, so that it
takes no time while others are measured. All speak the same lines:

    case KIND BYTES BLOCK SRC DST   what is to be done: so many bytes, in blocks that lie one after the
                                    other (`plain`), every other (`every`), or at the places that a file
                                    names, counted in blocks
    load WHICH BYTES PATH           take bytes from a file: `own` are the rank's, `shared` what the
                                    other rank reaches
    dump WHICH BYTES PATH           write bytes to a file
    once                            do it once
    run TIMES                       do it so often, after once off the clock: {"seconds": …}
    quit

Ours knows three more; those in Python know the latter two, as far as their libraries go:

    probe TURNS                     turns of a word between the cores
    kv LAYERS PAGES TOKENS HEADS RUN SRC DST JOINED SHARES
                                    pages are handed over as cache.py says, between places that two files
                                    name
    time TIMES                      `run` without the first time

KIND is one of:

    put, get     from the first rank's own bytes to the other's shared ones or back, each whole before the
                 next begins
    puts         puts that are waited for together
    trip         a message and one back, of as many bytes
    flood        messages one way, and one back at the end
    send         a message one way, and an empty one back
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RANKS = (0, 1)
# The longest that an answer takes; a transfer of millions of descriptors is prepared in less.
PATIENCE = 180.0
TICK = 0.5


class Failed(Exception):
    """A rank ended, was silent, or said that it can't."""


def end_on_sigterm() -> None:
    """Has the ranks ended before this process is."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


@dataclass(frozen=True)
class Start:
    """A program that is one rank, or starts both."""

    command: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)


class Pair:
    """Two ranks that run. Closing it ends them."""

    def __init__(self, folder: Path, starts: Sequence[Start]) -> None:
        folder.mkdir(parents=True)
        self._pipes: list[int] = []
        self._log = (folder / "log").open("wb")
        self._path = folder / "log"
        self._buffers = [b"", b""]
        for rank in RANKS:
            for end in ("in", "out"):
                os.mkfifo(folder / f"{rank}.{end}")
                # Opened both ways: else this would wait for a rank that may never come.
                self._pipes.append(os.open(folder / f"{rank}.{end}", os.O_RDWR | os.O_CLOEXEC))
        self._running = [
            subprocess.Popen(
                start.command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, **start.variables},
                start_new_session=True,
            )
            for start in starts
        ]
        try:
            for rank in RANKS:
                self._hear(rank)
        except Failed:
            self.close()
            raise

    def tell(self, *lines: str) -> list[dict[str, Any]]:
        """What the ranks answer to a line each, or all to the same."""
        for rank, line in zip(RANKS, lines if len(lines) > 1 else lines * 2):
            self._say(rank, line)
        return [self._hear(rank) for rank in RANKS]

    def tell_one(self, rank: int, line: str) -> dict[str, Any]:
        """What a rank answers while the other is told nothing."""
        self._say(rank, line)
        return self._hear(rank)

    def close(self) -> None:
        """Asks the ranks to end, and sees to it that they do."""
        for rank in RANKS:
            self._say(rank, "quit")
        for process in self._running:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                # What it started is in its session, and ends with it.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for pipe in self._pipes:
            os.close(pipe)
        self._log.close()

    def _say(self, rank: int, line: str) -> None:
        os.write(self._pipes[2 * rank], f"{line}\n".encode())

    def _hear(self, rank: int) -> dict[str, Any]:
        pipe = self._pipes[2 * rank + 1]
        end = time.monotonic() + PATIENCE
        while b"\n" not in self._buffers[rank]:
            if select.select([pipe], [], [], TICK)[0]:
                self._buffers[rank] += os.read(pipe, 65536)
            elif any(process.poll() is not None for process in self._running):
                raise Failed(f"a rank has ended: {self._last_words()}")
            elif time.monotonic() > end:
                raise Failed(f"a rank is silent: {self._last_words()}")
        line, _, self._buffers[rank] = self._buffers[rank].partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def _last_words(self) -> str:
        lines = self._path.read_text(errors="replace").split("\n")
        return "; ".join(line.strip() for line in lines if line.strip())[-400:]
