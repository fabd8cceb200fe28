"""The kernels beside NumPy, PyTorch, oneDNN, MKL and HPTT, in one process on the same buffers.

`make bench GROUP=kernels` installs what this needs and runs it. The cases, the clock and the report
are those of `iso bench kernels`, as a module that Python loads; here are the peers that only Python
has. Writes bench/out/kernels.json; fails where a peer is missing without which the table is void.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before anything with threads is loaded: all share one OpenMP, whose idle threads sleep soon and
# have a core each, as ours have. It binds this thread too, which may run anywhere again.
os.environ.setdefault("MKL_THREADING_LAYER", "GNU")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
os.environ.setdefault("OMP_PROC_BIND", "true")
CORES = os.sched_getaffinity(0)

import numpy as np  # noqa: E402
import torch  # noqa: E402

import isometry_peers  # noqa: E402

os.sched_setaffinity(0, CORES)

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Span = tuple[int, int]
Side = tuple[int, list[int]]
View = tuple[list[int], int, Side, Side]
Run = Callable[[], object]

LIBRARIES = {"ISOMETRY_ONEDNN": "libdnnl.so.3", "ISOMETRY_MKL": "libmkl_rt.so.3"}


def memory(span: Span) -> Bytes:
    """A buffer's bytes; the buffer outlives whatever is made of them."""
    address, size = span
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


class NumPy:
    """`np.copyto` of strided views."""

    name = "numpy"
    version = np.__version__
    aligned = False

    TYPES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}

    def prepare(self, src: Span, dst: Span, views: list[View], threads: int) -> Run | None:
        def side(buffer: Bytes, extents: list[int], item: int, at: Side) -> np.ndarray[Any, Any]:
            offset, strides = at
            dtype = np.dtype(self.TYPES[item])
            return np.ndarray(extents, dtype, buffer.data, offset, strides)

        buffers = memory(src), memory(dst)
        froms = [side(buffers[0], e, item, at) for e, item, at, _ in views]
        tos = [side(buffers[1], e, item, at) for e, item, _, at in views]
        if len(views) == 1:
            return lambda: np.copyto(tos[0], froms[0])
        return lambda: collections.deque(map(np.copyto, tos, froms), maxlen=0)


class PyTorch:
    """`Tensor.copy_` of strided views."""

    name = "pytorch"
    version = torch.__version__
    aligned = True

    TYPES = {
        1: torch.uint8,
        2: torch.int16,
        4: torch.int32,
        8: torch.int64,
        16: torch.complex128,
    }

    def prepare(self, src: Span, dst: Span, views: list[View], threads: int) -> Run | None:
        def side(buffer: Bytes, extents: list[int], item: int, at: Side) -> torch.Tensor:
            offset, strides = at
            whole = torch.from_numpy(buffer[: buffer.size // item * item]).view(self.TYPES[item])
            return whole.as_strided(extents, [s // item for s in strides], offset // item)

        torch.set_num_threads(threads)
        buffers = memory(src), memory(dst)
        froms = [side(buffers[0], e, item, at) for e, item, at, _ in views]
        tos = [side(buffers[1], e, item, at) for e, item, _, at in views]
        if len(views) == 1:
            return lambda: tos[0].copy_(froms[0])
        return lambda: torch._foreach_copy_(tos, froms)


def find_libraries() -> None:
    """Names the libraries that this environment has, unless the user named others."""
    for variable, name in LIBRARIES.items():
        path = Path(sys.prefix) / "lib" / name
        if variable not in os.environ and path.exists():
            os.environ[variable] = str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--budget", type=int, help="seconds of timing for a case")
    arguments = parser.parse_args()
    find_libraries()
    wrong, void = isometry_peers.kernels(
        [NumPy(), PyTorch()],
        filter=arguments.filter,
        runs=arguments.runs,
        budget=arguments.budget,
    )
    if wrong:
        sys.exit(f"wrong results: {'; '.join(wrong)}")
    if void:
        sys.exit(f"the table is void without {', '.join(void)}")


if __name__ == "__main__":
    main()
