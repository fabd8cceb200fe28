"""The types of the native half. Import them from `isometry`."""

import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias, final

from typing_extensions import Buffer, CapsuleType, Self

VERSION: str

Dims: TypeAlias = str | Mapping[str, int | tuple[int, int]]
"""Slowest first: a mapping from name to extent or (lo, hi), or names alone: "nhwc", "batch,row"."""

Bounds: TypeAlias = Mapping[str, int | tuple[int, int]]
"""Half-open ranges of absolute indices; a dimension that is not named means all of it."""

Algorithm: TypeAlias = Literal["auto", "full", "simple", "spsl", "spdl"]

class _Interface(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class _CudaInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

class _DLPack(Protocol):
    def __dlpack__(self) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

Stream: TypeAlias = object
"""A stream of CUDA's: what has `__cuda_stream__`, `cuda_stream` (PyTorch) or `ptr` beside `wait_event` (CuPy), or
an integer: a handle, 1 for the legacy default stream, 2 for that of the calling thread."""

@final
class Machine:
    """The memories of this machine, the channels between them, and what runs on them.

    The first time its channels are measured, which takes about a second; later the figures come
    from the user's cache directory. Leaving `with` waits for what runs; on an exception it cancels.
    Any thread may use it. After a fork the child's copy raises `Error`: make one there.

    Devices of CUDA and OpenCL are memories called `fbm`, `fbm1`, …, and `zcm` is host memory near to them
    (`zcm1` to those of OpenCL, where both have some). Which, two variables say. ISOMETRY_CUDA: `all` (the
    default), `none`, or the path of a driver. ISOMETRY_OPENCL: `gpu`, all but this processor (the
    default), `all` or `none`; a graphics processor of NVIDIA's is CUDA's where both show it.
    """

    def __new__(
        cls,
        lanes: int | None = None,
        staging: Mapping[str, str | int] | None = None,
        disk: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        *,
        trace: bool = False,
        remeasure: bool = False,
    ) -> Self:
        """
        lanes: threads for copies inside host memory, 1 to 1024; default: one for each core but one.
        staging: the sum of all intermediate buffers, {"sys": "512MiB"}; default: a sixteenth of
            what the process may use, at most 192 MiB.
        disk: paths whose file systems are measured now; others are on their first use.
        trace: keep what `trace()` returns.
        remeasure: measure again, whatever was kept.
        """

    @staticmethod
    def join(
        address: str | None = None,
        rank: int | None = None,
        size: int | None = None,
        key: str | None = None,
        *,
        name: str | None = None,
        capacity: int | None = None,
        timeout: float = 60.0,
        lanes: int | None = None,
        staging: Mapping[str, str | int] | None = None,
        disk: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        trace: bool = False,
    ) -> Machine:
        """A machine as one node among others; returns when all have joined.

        What is None is read from ISOMETRY_ROOT, ISOMETRY_RANK, ISOMETRY_SIZE and ISOMETRY_KEY, which
        `iso launch` sets. Where none is set, PMIx is asked if there is any (under `mpirun` of Open MPI 5 or
        `srun --mpi=pmix`), which waits for all; else there is one node. Where address and key are given, and
        neither rank nor size, this node comes later to those that have met there with a `capacity`
        (ISOMETRY_CAPACITY): how many nodes may ever join. Nodes are called node0, node1, …, and their memories
        node0.sys, …; `sys` is this node's. `name` is what others may call it besides; it is found by it again
        when it comes back, as another node. Other nodes may open and make files below the
        directories in `files`, once symbolic links are followed, and no others.

        Raises OSError for one of `files` that is not there, ValueError for what can't be, for several nodes without a key among it, Timeout where
        not all join within `timeout` seconds, and Error where one has another key.
        """

    @property
    def rank(self) -> int:
        """Which node this is."""

    @property
    def size(self) -> int:
        """How many nodes there are: one more than the highest rank of any that has joined."""

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """All nodes that have joined, by rank, which is given once: `rank`, `name`, and `lost`: why it is, or
        None."""

    def barrier(self, timeout: float | None = None) -> None:
        """Waits until all nodes that joined at the start have called this as often as this one.

        Raises Timeout after `timeout` seconds (a later call goes on waiting for the same one), PeerLost
        where a node is gone, and Error where this node came later.
        """

    def publish(self, name: str, instance: Instance) -> None:
        """Lets other nodes find an instance of this one, or a box of it, and copy from and to it, for
        as long as this machine lives. A name has letters, digits, `_` and `-`.

        Waits until what it was wrapped behind is over. Raises ValueError for a name that is none or taken,
        and for what another node has.
        """

    def lookup(self, name: str, timeout: float | None = 30.0) -> Instance:
        """What a node publishes under a name, "node0/weights"; waits until it does, and where nodes may come
        later, until one of that name is there.

        Raises KeyError for a node that is not there, Timeout after `timeout` seconds, PeerLost where
        the node is gone.
        """

    def wrap(
        self, array: _Interface | _CudaInterface | _DLPack | Buffer, dims: Dims | None = None
    ) -> Instance:
        """An array in place, whatever its strides, kept alive as long as the instance or a copy
        uses it: an ndarray, a buffer, or what has `__array_interface__`, `__dlpack__` or
        `__cuda_array_interface__`.

        Memory of a CUDA device is an instance in that device's memory. Copies of it start once what was
        queued by then on the stream on which it is made is over: DLPack's producer says which that is, as does
        `stream` of the interface (without one it is taken to be made). Later work on it is ordered by
        `fence`. Of a tensor's deleter it is known that it is called once, with the interpreter.

        Raises TypeError for an object that exports none, and for elements that can't be copied (parts of a
        byte, lanes); ValueError for dims that don't fit, and for memory that no device of the machine has, or
        less of it than the strides reach; OSError where the device is lost, or the stream is being captured.
        """

    def fence(self, stream: Stream, memory: str | None = None) -> Event:
        """The event that all is over that a stream was asked so far: for `after`, to be waited for or
        awaited. Nothing waits meanwhile, neither a thread nor the stream. It ends as Cancelled where it is
        cancelled or the machine is closed, which the stream never hears of.

        `memory` names the device, where the stream is a default one and there are several; else it is the
        first. Raises TypeError for what is no stream; ValueError for 0, which is one of two default streams,
        and for a stream of no device of the machine; OSError where the device is lost or the stream is being
        captured.
        """

    def empty(
        self, dims: Bounds, dtype: object, layout: str | None = None, memory: str = "sys"
    ) -> Instance:
        """A zeroed array. `dtype` is anything that np.dtype takes; `layout` is "<F, w, h, c, n>",
        fastest first, or "nchw", slowest first with the fields innermost. `memory` may be an
        accelerator's: copies reach it, other libraries do if that is CUDA's, and np.asarray and `bytes` raise
        ValueError.

        Raises LayoutError for a layout of other dimensions, ValueError for an unknown memory.
        """

    def open(
        self,
        path: str | os.PathLike[str],
        dims: Dims | None = None,
        dtype: object = None,
        *,
        tensor: str | None = None,
        layout: str | None = None,
    ) -> Instance:
        """The array in a file: .npy, .safetensors (with `tensor` where it has several), or else
        raw, with extents in `dims`, a `dtype` and maybe a `layout`. It can't be written. A path that
        starts with the name of a node that was joined and a colon, as `node1:/a.npy`, is a file there.

        Raises FileFormatError for a damaged or short file, ValueError for an unknown tensor, for a
        path with a NUL in it and for what the format has no use for, OSError as `open` does,
        PermissionError for a file that its node does not serve.
        """

    def create(
        self,
        path: str | os.PathLike[str],
        like: Instance | None = None,
        layout: str | None = None,
        *,
        dims: Bounds | None = None,
        dtype: object = None,
        tensor: str | None = None,
    ) -> Instance:
        """A file to be: it appears under `path`, replacing what is there, when one copy has covered
        all of it or `commit` is called, and never otherwise. Dims, dtype and layout are those of
        `like` but for what is given; a dimension that `like` has a part of starts at 0. A path may be
        another node's, as in `open`; such a file appears by a copy alone.

        Raises LayoutError for what the format can't express, FileNotFoundError, PermissionError or
        another OSError for a directory that is missing or can't be written, or a full disk,
        ValueError for a path with a NUL in it.
        """

    def copy(
        self,
        src: Instance,
        dst: Instance,
        priority: int = 0,
        deadline: float | None = None,
        after: Event | Iterable[Event] | None = None,
        algorithm: Algorithm = "auto",
        *,
        sync: bool = False,
    ) -> Event:
        """Copies a box into another of equal extents, and returns at once.

        Dimensions and fields match by name, a lone field matches a lone field. A larger priority
        is more urgent. `deadline`, in seconds from now, ends the copy as Timeout. It starts when
        `after` has ended well. `sync`: a file that it completes survives a power failure.

        Raises LayoutError where the two don't match, ValueError for a destination that overlaps
        the source or itself or can't be written, PlanError where there is no path.
        """

    def copy_many(
        self,
        pairs: Sequence[tuple[Instance, Instance]],
        priority: int = 0,
        deadline: float | None = None,
        after: Event | Iterable[Event] | None = None,
        algorithm: Algorithm = "auto",
        *,
        sync: bool = False,
    ) -> Event:
        """Several copies, in any order, with one event: it ends when all have, and fails if one
        does. Raises as `copy`; none has started then."""

    def verify(self, src: Instance, dst: Instance) -> None:
        """Looks whether `dst` holds what `src` does, wherever and however both lie: each node reads its own
        once more, and only checksums (XXH3, 64 bits, of every few megabytes) travel.

        Raises TransferError where they differ, and says where; LayoutError where they don't match.
        """

    def reshard(
        self,
        src: Sequence[Instance],
        dst: Sequence[Instance],
        priority: int = 0,
        deadline: float | None = None,
        after: Event | Iterable[Event] | None = None,
        algorithm: Algorithm = "auto",
    ) -> Event:
        """Copies an array that lies in `src`, each a box of it on some node, to `dst`, with one event.

        The bounds of a shard (`dims`) say which indices of the whole it has; layouts and memories are
        its own. Shards of `dst` with the same bounds are replicas: the first is filled from `src`, the
        others from each other.

        Raises as `copy`, and ValueError for indices that no shard of `src` has.
        """

    def plan(
        self,
        src: Instance,
        dst: Instance,
        algorithm: Algorithm = "auto",
        model: Literal["default", "paper"] = "default",
    ) -> Plan:
        """How `copy` would run, without running it."""

    def topology(self) -> Topology:
        """Memories, channels and their measured throughput."""

    def trace(self) -> dict[str, Any]:
        """What ran so far, in the format of Chrome and Perfetto: json.dump it into a file.

        Raises ValueError unless the machine was made with trace=True.
        """

    def metrics(self) -> str:
        """Counters and gauges since it was opened, in Prometheus' text format 0.0.4.

        Copies, requests and bytes by channel and peer, waits by priority, staging, uses of the
        plan cache. Also of a closed machine.
        """

    def close(self) -> None:
        """Takes no more copies, waits until all have ended, and leaves the other nodes."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

@final
class Instance:
    """An array in a memory, or a box of one. Boxes share the data, which lives as long as an
    instance, a view or a copy uses it."""

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """The bounds of the whole array, slowest first."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the box."""

    @property
    def dtype(self) -> Any:
        """An np.dtype."""

    @property
    def layout(self) -> str:
        """The layout vector, fastest first; of a wrapped array the nearest one."""

    @property
    def memory(self) -> str:
        """The memory that holds it."""

    @property
    def nbytes(self) -> int:
        """The bytes of all fields at all indices of the box."""

    def box(self, ranges: Bounds) -> Instance:
        """The part with these indices. Raises ValueError for indices outside or unknown names."""

    def take(self, dim: str, indices: Sequence[int]) -> Instance:
        """The entries at `indices` of `dim`, in that order: pages. A source may repeat one."""

    def bytes(self) -> memoryview:
        """The bytes of the whole array in its own linear order, padding included; writable.

        Raises ValueError for memory that is not on the host.
        """

    def commit(self, sync: bool = False) -> None:
        """Makes a created file appear under its name, once. Raises ValueError for anything else, and
        for a file that was committed, as by a copy that covered all of it."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __array__(self, dtype: object = None, copy: bool | None = None) -> Any:
        """Zero-copy: shape in the order of dims, strides as the layout.

        Raises ValueError for memory that is not on the host, LayoutError for a layout in blocks,
        fields that lie apart or index lists, which no strides express.
        """

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Zero-copy, of memory of a CUDA device; elsewhere there is none, nor of structures. `stream` is
        None: wait for the copies to it first, and put later ones behind what you queue, by `fence`.

        Raises LayoutError as `__array__`, OSError where the device is lost, Error in the child of a fork.
        """

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """Zero-copy, of memory of the host or of a CUDA device. Of the latter any `stream` may be given, as
        nothing is in flight: wait for the copies to it first, and put later ones behind what you queue, by
        `fence`. The memory stays until the tensor is given back, which any thread may do once.

        Raises BufferError for another `dl_device`, for a copy, for element types that DLPack lacks and, without
        `max_version`, for what is read-only; LayoutError as `__array__`; ValueError for other memory; on a device
        OSError where that is lost, and Error in the child of a fork.
        """

    def __dlpack_device__(self) -> tuple[int, int]:
        """(1, 0) on the host, (2, n) on a CUDA device. Raises ValueError for other memory."""

@final
class Event:
    """The end of a copy, or of several, or a fence of a stream. Dropped, the copy runs on and its error is logged."""

    def wait(self, timeout: float | None = None) -> None:
        """Returns when it has ended well, and raises what ended it otherwise: TransferError,
        Cancelled, Timeout for its deadline. Timeout also when `timeout` seconds have passed: then
        the copy runs on. Ctrl-C interrupts the wait, not the copy."""

    def done(self) -> bool:
        """Whether it has ended in any way: no memory of it is touched any more."""

    def progress(self) -> tuple[int, int]:
        """Payload bytes that reached the destination, and in all."""

    def cancel(self) -> None:
        """Ends it as Cancelled, unless it is over; returns when no memory of it is touched."""

    def report(self) -> dict[str, Any]:
        """Where its time went: path, bytes, and for each hop its busy and waiting seconds and the
        `transfer` that held it up. Of `copy_many`: {"bytes": …, "copies": [one for each]}."""

    def __await__(self) -> Generator[Any, None, None]:
        """As `wait`, for asyncio; one descriptor for each loop, and no thread."""

    def _notify(self, token: int) -> None: ...
    def _outcome(self) -> None: ...

@final
class Plan:
    """How a copy would run: path, layouts, buffers, and what bounds it."""

    def explain(self) -> str:
        """For people: the plan, the alternatives that were weighed, and what bound each."""

    def to_dict(self) -> dict[str, Any]:
        """As `iso plan --json` prints it."""

@final
class Topology:
    """Memories and channels, with measured throughput."""

    def to_dict(self) -> dict[str, Any]:
        """As `iso topo --json` prints it: {"memories": [{"name", "kind", …}], "channels": […]}."""
