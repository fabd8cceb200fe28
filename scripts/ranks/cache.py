"""Pages of a cache of keys and values, and where each of their runs lies on either side.

The first rank has `[share][layer][page][token][head]`, where each share has a part of the heads, as ranks do
that share a model; the other has `[layer][page][head][token]`, with so many pages of the first's in each of
its own. A run is what a head has of a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from told import Bytes, Places

if TYPE_CHECKING:
    from isometry import Instance

Pool = np.ndarray[Any, np.dtype[np.uint16]]

NAMES = "layer,page,token,head,at"


@dataclass(frozen=True)
class Cache:
    """Page `i` comes from place `src[i]`; `joined` pages that follow each other go to a place of `dst`."""

    layers: int
    pages: int
    tokens: int
    heads: int
    run_bytes: int
    src: Places
    dst: Places
    joined: int
    shares: int

    @classmethod
    def told(cls, words: Sequence[str]) -> Cache:
        """What the line of pairs.py says."""
        layers, pages, tokens, heads, run_bytes = (int(word) for word in words[:5])
        src, dst = (np.fromfile(table, np.uint64) for table in words[5:7])
        joined, shares = (int(word) for word in words[7:])
        return cls(layers, pages, tokens, heads, run_bytes, src, dst, joined, shares)

    @property
    def bytes(self) -> int:
        return self.layers * self.pages * self.page_bytes

    @property
    def page_bytes(self) -> int:
        return self.tokens * self.heads * self.run_bytes

    def pools(self, memory: Bytes) -> list[Pool]:
        """The first rank's, one a share, whose dimensions are NAMES."""
        each = self.heads // self.shares
        extents = (self.shares, self.layers, self.pages, self.tokens, each, self.run_bytes // 2)
        return list(memory[: self.bytes].view(np.uint16).reshape(extents))

    def turned(self, memory: Bytes) -> Pool:
        """The other rank's, whose dimensions are NAMES, and lie otherwise."""
        tokens, pages = self.tokens * self.joined, self.pages // self.joined
        extents = (self.layers, pages, self.heads, tokens, self.run_bytes // 2)
        return memory[: self.bytes].view(np.uint16).reshape(extents).transpose(0, 1, 3, 2, 4)

    def copies(
        self, sources: Sequence[Instance], target: Instance
    ) -> list[tuple[Instance, Instance]]:
        """Boxes of the pools that are to be copied to boxes of what is turned."""
        each = self.heads // self.shares
        pages = target.take("page", self.dst.tolist())

        def box(share: int, part: int) -> Instance:
            tokens = (part * self.tokens, (part + 1) * self.tokens)
            return pages.box({"token": tokens, "head": (share * each, (share + 1) * each)})

        return [
            (source.take("page", self.src[part :: self.joined].tolist()), box(share, part))
            for share, source in enumerate(sources)
            for part in range(self.joined)
        ]

    def runs(self) -> Iterator[tuple[Places, Places]]:
        """Layer by layer, the bytes at which runs start on either side."""
        each = self.heads // self.shares
        indices = np.indices((self.pages, self.tokens, self.heads), np.uint64)
        page, token, head = indices.reshape(3, -1)
        src = (self.src[page] * self.tokens + token) * each + head % each
        src += head // each * (self.layers * self.pages * self.tokens * each)
        dst = (self.dst[page // self.joined] * self.heads + head) * self.joined
        dst = (dst + page % self.joined) * self.tokens + token
        whole = self.pages * self.tokens
        for layer in range(self.layers):
            at = (src + layer * whole * each, dst + layer * whole * self.heads)
            yield at[0] * self.run_bytes, at[1] * self.run_bytes

    def turning(self, own: Bytes, staging: Bytes) -> Callable[[], object]:
        """Turns pages by our own kernels, on one thread, to where the other rank has them."""
        import isometry as iso

        machine = iso.Machine(lanes=1)
        sources = [machine.wrap(pool, dims=NAMES) for pool in self.pools(own)]
        copies = self.copies(sources, machine.wrap(self.turned(staging), dims=NAMES))
        return lambda: machine.copy_many(copies).wait()
