"""One of two ranks that moves bytes by NIXL, over UCX.

Descriptors are prepared when a case is set, and posted when it runs: an answer to `case` says what
preparing took, and one to `run` how much of its seconds the posting calls took. `trip` and `flood` are
notifications, the only messages that NIXL has.

It knows `kv …` too, as our rank does: pages of a cache go from `[token][head]` to `[head][token]`, by a
descriptor for each run of bytes that stays whole. `permuted …` is the same by pages that are turned before,
in memory of this rank's, and go by a descriptor each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config

import told
from cache import Cache
from told import Answer, Places, aligned, places

# As many of one kind may be under way at once.
OPEN = 64
OVER = b"over"


class Rank(told.Rank):
    def __init__(self, number: int, folder: Path, size: int) -> None:
        super().__init__(number, folder, size)
        # Without a thread of its own, which would run while others are measured.
        self.agent = nixl_agent(str(number), nixl_agent_config(enable_prog_thread=False))
        self.register(self.own)
        self.register(self.shared)
        self.peer = str(1 - number)
        mine = self.shared.ctypes.data.to_bytes(8, "little")
        known = self.known(mine + self.agent.get_agent_metadata())
        self.there = int.from_bytes(known[:8], "little")
        self.agent.add_remote_agent(known[8:])
        self.work: Callable[[int], Answer]
        self.transfers: list[Any] = []
        self.sides: list[Any] = []

    def register(self, memory: told.Bytes) -> None:
        self.agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")

    def run(self, times: int) -> Answer:
        return self.work(times)

    def together(self, run: Callable[[], Answer]) -> Answer:
        """The other rank has to call NIXL meanwhile: nothing else moves its end."""
        if self.number == 1:
            self.listen()
            return {}
        answer = run()
        self.agent.send_notif(self.peer, OVER)
        return answer

    def listen(self) -> None:
        """Answers what asks for an answer, until the first rank says that it is over."""
        while True:
            for message in self.hear():
                if message == OVER:
                    return
                if self.keeps and len(message) > 1:
                    self.shared[: len(message) - 1] = np.frombuffer(message[1:], np.uint8)
                if message.startswith(b"?"):
                    self.agent.send_notif(self.peer, message)

    def hear(self) -> list[bytes]:
        messages: list[bytes] = self.agent.get_new_notifs().get(self.peer, [])
        return messages

    def set(self, words: list[str]) -> Answer:
        for handle in self.transfers + self.sides:
            handle.release()
        self.transfers, self.sides = [], []
        if self.number == 1:
            return {}
        started = time.perf_counter()
        if words[0] == "case":
            self.set_case(words[1], int(words[2]), int(words[3]), (words[4], words[5]))
        else:
            set_kv = self.set_runs if words[0] == "kv" else self.set_permuted
            set_kv(Cache.told(words[1:]))
        return {"prepare": time.perf_counter() - started}

    def set_case(self, kind: str, size: int, block: int, hows: tuple[str, str]) -> None:
        if kind in ("trip", "flood"):
            self.work = lambda times: self.messages(times, size, kind == "trip")
            return
        if hows == ("plain", "plain"):
            block = size
        own, shared = hows if kind != "get" else hows[::-1]
        at = [places(how, size // block) * np.uint64(block) for how in (own, shared)]
        for _ in range(OPEN if kind == "puts" else 1):
            self.prepare("READ" if kind == "get" else "WRITE", (self.own, at[0]), at[1], block)
        self.work = self.stream if kind == "puts" else self.moves

    def prepare(
        self, operation: str, mine: tuple[told.Bytes, Places], theirs: Places, block: int
    ) -> None:
        """A transfer between blocks that start at these offsets."""
        addresses = (np.uint64(mine[0].ctypes.data) + mine[1], np.uint64(self.there) + theirs)
        handles = []
        for agent, at in zip(("NIXL_INIT_AGENT", self.peer), addresses):
            descriptors = np.zeros((len(at), 3), np.uint64)
            descriptors[:, 0], descriptors[:, 1] = at, block
            handles.append(self.agent.prep_xfer_dlist(agent, descriptors, "DRAM"))
        all_of_it = np.arange(len(theirs), dtype=np.int32)
        transfer = self.agent.make_prepped_xfer(
            operation, handles[0], all_of_it, handles[1], all_of_it
        )
        self.sides += handles
        self.transfers.append(transfer)

    def post(self, transfer: Any) -> None:
        if self.agent.transfer(transfer) == "ERR":
            raise OSError("a transfer was refused")

    def finish(self, transfer: Any) -> None:
        while (state := self.agent.check_xfer_state(transfer)) != "DONE":
            if state == "ERR":
                raise OSError("a transfer failed")

    def moves(self, times: int) -> Answer:
        """All transfers together, so often one time after the other."""
        posting = 0.0
        for _ in range(times):
            started = time.perf_counter()
            for transfer in self.transfers:
                self.post(transfer)
            posting += time.perf_counter() - started
            for transfer in self.transfers:
                self.finish(transfer)
        return {"post": posting}

    def stream(self, times: int) -> Answer:
        """So many transfers, as many at once as there are."""
        for i in range(times):
            if i >= OPEN:
                self.finish(self.transfers[i % OPEN])
            self.post(self.transfers[i % OPEN])
        for transfer in self.transfers[:times]:
            self.finish(transfer)
        return {}

    def messages(self, times: int, size: int, is_answered: bool) -> Answer:
        payload = (b"?" if is_answered else b"!") + self.own[:size].tobytes()
        for _ in range(times):
            self.agent.send_notif(self.peer, payload)
            while is_answered and not self.hear():
                pass
        if not is_answered:
            self.agent.send_notif(self.peer, b"?")
            while not self.hear():
                pass
        return {}

    def set_runs(self, cache: Cache) -> None:
        for own, there in cache.runs():
            self.prepare("WRITE", (self.own, own), there, cache.run_bytes)
        self.work = self.moves

    def set_permuted(self, cache: Cache) -> None:
        staging = aligned(cache.bytes)
        self.register(staging)
        permute = cache.turning(self.own, staging)
        page = cache.page_bytes * cache.joined
        for layer in range(cache.layers):
            places = (layer * cache.pages // cache.joined + cache.dst) * page
            self.prepare("WRITE", (staging, places), places, page)

        def work(times: int) -> Answer:
            permuting = posting = 0.0
            for _ in range(times):
                started = time.perf_counter()
                permute()
                permuting += time.perf_counter() - started
                posting += self.moves(1)["post"]
            return {"permute": permuting, "post": posting}

        self.work = work


if __name__ == "__main__":
    told.main(Rank)
