"""One of two nodes, whose copies are planned and go by the path that is found, layout and all.

It knows `kv …` only, as our rank and NIXL's do: the first node asks for copies, from pages of its own to
pages that the other has published, and waits for them together.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import isometry as iso
import told
from cache import NAMES, Cache
from told import Answer


class Rank(told.Rank):
    def __init__(self, number: int, folder: Path, size: int) -> None:
        super().__init__(number, folder, size)
        self.machine = iso.Machine.join(lanes=1)
        self.cases = 0
        self.copy: Callable[[], object]

    def set(self, words: list[str]) -> Answer:
        cache = Cache.told(words[1:])
        self.cases += 1
        name = f"pool-{self.cases}"
        if self.number == 1:
            self.machine.publish(name, self.machine.wrap(cache.turned(self.shared), dims=NAMES))
            return {}
        pools = [self.machine.wrap(pool, dims=NAMES) for pool in cache.pools(self.own)]
        copies = cache.copies(pools, self.machine.lookup(f"node1/{name}"))
        self.copy = lambda: self.machine.copy_many(copies).wait()
        return {}

    def run(self, times: int) -> Answer:
        for _ in range(times):
            self.copy()
        return {}


if __name__ == "__main__":
    told.main(Rank)
