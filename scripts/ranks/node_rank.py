"""One of two nodes, whose copies are planned and go by the path that is found, layout and all.

It knows `kv LAYERS PAGES TOKENS HEADS RUN SRC DST` only, as our rank and NIXL's do: the first node asks
for one copy, from pages of its own to pages that the other has published.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import isometry as iso
import told
from told import Answer

NAMES = "layer,page,token,head,at"


class Rank(told.Rank):
    def __init__(self, number: int, folder: Path, size: int) -> None:
        super().__init__(number, folder, size)
        self.machine = iso.Machine.join(lanes=1)
        self.cases = 0
        self.copy: Callable[[], object]

    def set(self, words: list[str]) -> Answer:
        layers, pages, tokens, heads, run = (int(word) for word in words[1:6])
        src, dst = (np.fromfile(path, np.uint64).tolist() for path in words[6:8])
        self.cases += 1
        whole = layers * pages * tokens * heads * run
        if self.number == 1:
            pool = self.shared[:whole].view(np.uint16)
            turned = pool.reshape(layers, pages, heads, tokens, run // 2).transpose(0, 1, 3, 2, 4)
            self.machine.publish(f"pool-{self.cases}", self.machine.wrap(turned, dims=NAMES))
            return {}
        pool = self.own[:whole].view(np.uint16).reshape(layers, pages, tokens, heads, run // 2)
        here = self.machine.wrap(pool, dims=NAMES).take("page", src)
        there = self.machine.lookup(f"node1/pool-{self.cases}").take("page", dst)
        self.copy = lambda: self.machine.copy(here, there).wait()
        return {}

    def run(self, times: int) -> Answer:
        for _ in range(times):
            self.copy()
        return {}


if __name__ == "__main__":
    told.main(Rank)
