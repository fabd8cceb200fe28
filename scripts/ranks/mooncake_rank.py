"""One of two ranks that moves bytes by Mooncake's transfer engine, over TCP. It has no messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from mooncake.engine import TransferEngine

import told
from told import Answer, places

# As many lie in one batch; of many more it fails.
BATCH = 1024


class Rank(told.Rank):
    def __init__(self, number: int, folder: Path, size: int) -> None:
        super().__init__(number, folder, size)
        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            raise OSError("the engine does not start")
        for memory in (self.own, self.shared):
            if self.engine.register_memory(memory.ctypes.data, memory.nbytes) != 0:
                raise OSError("memory can't be registered")
        mine = f"{self.shared.ctypes.data} 127.0.0.1:{self.engine.get_rpc_port()}"
        there, self.peer = self.known(mine.encode()).decode().split()
        self.there = int(there)

    def set(self, words: list[str]) -> Answer:
        _, kind, size, block, src, dst = words
        own, shared = (src, dst) if kind != "get" else (dst, src)
        length = int(size) if (src, dst) == ("plain", "plain") else int(block)
        count = int(size) // length
        mine, theirs = (
            (np.uint64(base) + places(how, count) * np.uint64(length)).tolist()
            for base, how in ((self.own.ctypes.data, own), (self.there, shared))
        )
        lengths = [length] * count
        move = self.engine.batch_transfer_sync_write
        if kind == "get":
            move = self.engine.batch_transfer_sync_read

        self.batches = [
            (mine[at : at + BATCH], theirs[at : at + BATCH], lengths[at : at + BATCH])
            for at in range(0, count, BATCH)
        ]
        self.move = move
        self.at_once = BATCH if kind == "puts" else 1
        return {}

    def run(self, times: int) -> Answer:
        for start in range(0, times, self.at_once):
            some = min(self.at_once, times - start)
            for mine, theirs, lengths in self.batches:
                if self.move(self.peer, mine * some, theirs * some, lengths * some) != 0:
                    raise OSError("a transfer failed")
        return {}


if __name__ == "__main__":
    told.main(Rank)
