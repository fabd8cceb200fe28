"""One of two ranks that has a connection and nothing else: the limit of what moves bytes between two
machines.

It knows `case put …` and `case trip …` of bytes in one piece, and `kv …` and `permuted …` as NIXL's rank
does. Of the latter two the first sends a cache's bytes as they lie, which
is less than what is asked for; the second has all pages turned before, in memory of its own. PEERS_ROOT
in the environment is where the second rank listens.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import told
from cache import Cache
from told import Answer, aligned

# Of what says how many transfers come.
COUNT_BYTES = 8


class Rank(told.Rank):
    def __init__(self, number: int, folder: Path, size: int) -> None:
        super().__init__(number, folder, size)
        host, _, port = os.environ["PEERS_ROOT"].rpartition(":")
        if number == 1:
            with socket.create_server((host, int(port))) as listening:
                self.known(b"listens")
                self.peer, _ = listening.accept()
        else:
            self.known(b"comes")
            self.peer = socket.create_connection((host, int(port)))
        self.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.bytes, self.answer_bytes = 0, 1
        self.answer = aligned(size)
        self.message = self.own
        self.turn: Callable[[], object] | None = None

    def set(self, words: list[str]) -> Answer:
        self.turn = None
        if words[0] == "case":
            self.bytes, self.answer_bytes = int(words[2]), int(words[2]) if words[1] == "trip" else 1
            self.message = self.own[: self.bytes]
            return {}
        cache = Cache.told(words[1:])
        self.bytes, self.answer_bytes = cache.bytes, 1
        self.message = self.own[: self.bytes]
        if words[0] == "permuted" and self.number == 0:
            self.message = aligned(self.bytes)
            self.turn = cache.turning(self.own, self.message)
        return {}

    def together(self, run: Callable[[], Answer]) -> Answer:
        if self.number == 0:
            answer = run()
            self.peer.sendall(bytes(COUNT_BYTES))
            return answer
        while times := int.from_bytes(self.take(COUNT_BYTES), "little"):
            for _ in range(times):
                self.receive()
                self.peer.sendall(self.shared[: self.answer_bytes].data)
        return {}

    def run(self, times: int) -> Answer:
        self.peer.sendall(times.to_bytes(COUNT_BYTES, "little"))
        turning = 0.0
        for _ in range(times):
            started = time.perf_counter()
            if self.turn is not None:
                self.turn()
            turning += time.perf_counter() - started
            self.peer.sendall(self.message.data)
            self.fill(self.answer[: self.answer_bytes].data)
        return {} if self.turn is None else {"permute": turning}

    def receive(self) -> None:
        self.fill(self.shared[: self.bytes].data)

    def take(self, count: int) -> bytes:
        said = bytearray(count)
        self.fill(memoryview(said))
        return bytes(said)

    def fill(self, room: memoryview) -> None:
        while room:
            count = self.peer.recv_into(room)
            if count == 0:
                raise OSError("the other rank has gone")
            room = room[count:]


if __name__ == "__main__":
    told.main(Rank)
