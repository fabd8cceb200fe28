"""Memory of devices that other libraries allocate and use too, by DLPack and `__cuda_array_interface__`, on two
devices of CUDA that are emulated."""

import ctypes
import faulthandler
import gc
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isometry as iso

# Made with the tests of Rust.
FAKE = Path(__file__).parents[2] / "target/debug/deps/libfake_cuda.so"

CUDA = 2
MANAGED = 13


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_uint64),
        ("kind", c_int),
        ("id", c_int),
        ("rank", c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class Legacy(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint),
        ("minor", c_uint),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", Tensor),
    ]


NAMES: dict[type[ctypes.Structure], bytes] = {
    Legacy: b"dltensor",
    Versioned: b"dltensor_versioned",
}
DELETER = ctypes.CFUNCTYPE(None, c_void_p)

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.argtypes = [c_void_p, c_char_p, c_void_p]
new_capsule.restype = ctypes.py_object
name_of = ctypes.pythonapi.PyCapsule_GetName
name_of.argtypes = [ctypes.py_object]
name_of.restype = c_char_p
pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
pointer_in.argtypes = [ctypes.py_object, c_char_p]
pointer_in.restype = c_void_p
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, c_char_p]


class Library:
    """Another library of the process, on the first device of the emulated driver."""

    def __init__(self, path: str, device: int = 0) -> None:
        self.path, self.device = path, device
        self.driver = ctypes.CDLL(path)
        self.context = c_void_p()
        self.driver.cuDevicePrimaryCtxRetain(byref(self.context), device)

    def call(self, name: str, *arguments: Any) -> None:
        self.driver.cuCtxPushCurrent_v2(self.context)
        try:
            assert getattr(self.driver, name)(*arguments) == 0, name
        finally:
            self.driver.cuCtxPopCurrent_v2(byref(c_void_p()))

    def allocate(self, count: int) -> int:
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(count))
        return address.value

    def stream(self) -> int:
        stream = c_uint64()
        self.call("cuStreamCreate", byref(stream), 1)
        return stream.value

    def hold(self, stream: int, held: bool) -> None:
        self.driver.fake_hold_stream(self.device, c_uint64(stream), held)

    def fill(self, stream: int, address: int, count: int, byte: int) -> None:
        self.call("cuMemsetD8Async", c_uint64(address), byte, c_size_t(count), c_uint64(stream))

    def write(self, address: int, array: np.ndarray) -> None:
        stream = self.stream()
        source = c_void_p(array.ctypes.data)
        count = c_size_t(array.nbytes)
        self.call("cuMemcpyHtoDAsync_v2", c_uint64(address), source, count, c_uint64(stream))
        self.call("cuStreamSynchronize", c_uint64(stream))

    def read(self, address: int, count: int) -> bytes:
        stream, there = self.stream(), ctypes.create_string_buffer(count)
        self.call("cuMemcpyDtoHAsync_v2", there, c_uint64(address), c_size_t(count), c_uint64(stream))
        self.call("cuStreamSynchronize", c_uint64(stream))
        return there.raw

    def follow(self, stream: int, other: int) -> None:
        """Has a stream wait for what another was asked so far."""
        event = c_uint64()
        self.call("cuEventCreate", byref(event), 2)
        self.call("cuEventRecord", event, c_uint64(other))
        self.call("cuStreamWaitEvent", c_uint64(stream), event, 0)
        self.call("cuEventDestroy_v2", event)


class Array:
    """An array of such a library, which exports it by DLPack, of either structure."""

    def __init__(self, library: Library, source: np.ndarray, managed: type[Legacy] | type[Versioned] = Versioned) -> None:
        self.library, self.source, self.managed = library, source, managed
        self.address = library.allocate(max(source.nbytes, 1))
        if source.nbytes:
            library.write(self.address, np.ascontiguousarray(source))
        self.device = (CUDA, library.device)
        self.kind = (2 if source.dtype.kind == "f" else 1, source.dtype.itemsize * 8, 1)
        self.shape = list(source.shape)
        self.strides: list[int] | None = None
        self.byte_offset = self.flags = self.given_back = 0
        self.major = 1
        # On which it is made.
        self.stream: int | None = None
        self.asked: dict[str, Any] = {}
        self.capsule: Any = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        if self.managed is Legacy and "max_version" in options:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.asked = options
        if self.stream is not None:
            self.library.follow(options["stream"], self.stream)
        whole = self.managed()
        tensor = whole.tensor
        tensor.data, (tensor.kind, tensor.id) = self.address, (CUDA, self.library.device)
        tensor.code, tensor.bits, tensor.lanes = self.kind
        tensor.rank, tensor.byte_offset = len(self.shape), self.byte_offset
        shape = (c_int64 * len(self.shape))(*self.shape)
        tensor.shape = ctypes.cast(shape, POINTER(c_int64))
        if self.strides is not None:
            strides = (c_int64 * len(self.strides))(*self.strides)
            tensor.strides = ctypes.cast(strides, POINTER(c_int64))
        if self.managed is Versioned:
            whole.major, whole.minor, whole.flags = self.major, 0, self.flags

        def give_back(address: int) -> None:
            assert address == ctypes.addressof(whole)
            self.given_back += 1

        deleter = DELETER(give_back)
        whole.deleter = ctypes.cast(deleter, c_void_p)
        # Until the array goes.
        self.kept = (whole, shape, tensor.strides, deleter)
        self.capsule = new_capsule(ctypes.addressof(whole), NAMES[self.managed], None)
        return self.capsule


class Interface:
    """An array of such a library, which exports it by `__cuda_array_interface__`."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = interface


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if not FAKE.exists():
        pytest.skip("no emulated driver: cargo build -p isometry-fake-cuda makes it")
    monkeypatch.setenv("ISOMETRY_OPENCL", "none")
    monkeypatch.setenv("ISOMETRY_CUDA", str(tmp_path / "libcuda.so.1"))
    return str(shutil.copy(FAKE, tmp_path / "libcuda.so.1"))


@pytest.fixture
def m(path: str) -> Iterator[iso.Machine]:
    with iso.Machine() as machine:
        yield machine


@pytest.fixture
def library(path: str) -> Library:
    return Library(path)


def fetched(m: iso.Machine, there: iso.Instance) -> np.ndarray:
    here = np.zeros(there.shape, there.dtype)
    m.copy(there, m.wrap(here, dims=",".join(there.dims))).wait(timeout=20)
    return here


def collect(m: iso.Machine) -> None:
    """Has what threads of the machine have dropped go: whoever calls it next sees to that."""
    gc.collect()
    m.topology()


IMAGES = np.arange(4 * 5 * 6, dtype="f4").reshape(4, 5, 6)


@pytest.mark.parametrize("managed", [Legacy, Versioned])
@pytest.mark.parametrize("device", [0, 1])
def test_a_tensor_is_used_in_place_and_given_back_once(
    m: iso.Machine, path: str, managed: type[Legacy] | type[Versioned], device: int
) -> None:
    array = Array(Library(path, device), IMAGES, managed)
    there = m.wrap(array, dims="yxc")
    assert (there.memory, there.shape, there.dtype) == (["fbm", "fbm1"][device], (4, 5, 6), "f4")
    assert name_of(array.capsule) == b"used_" + NAMES[managed]
    assert array.asked["stream"] not in (None, 0, 1, 2)
    assert array.asked.get("max_version", (1, 1)) == (1, 1)
    assert (fetched(m, there) == IMAGES).all()
    m.copy(m.wrap(IMAGES * 2, dims="yxc"), there).wait(timeout=20)
    assert array.library.read(array.address, IMAGES.nbytes) == (IMAGES * 2).tobytes()
    part = there.box({"y": (1, 3)})
    del there
    collect(m)
    assert array.given_back == 0, "a part needs it"
    del part
    array.capsule = None
    collect(m)
    assert array.given_back == 1


def test_strides_offsets_and_read_only_tensors_are_respected(
    m: iso.Machine, library: Library
) -> None:
    array = Array(library, IMAGES)
    array.shape, array.strides, array.byte_offset = [6, 5], [1, -6], 4 * (30 + 24)
    array.flags = 1
    there = m.wrap(array, dims="cx")
    assert (fetched(m, there) == IMAGES[1, ::-1, :].T).all()
    with pytest.raises(ValueError, match="read-only"):
        m.copy(m.wrap(np.zeros((6, 5), "f4"), dims="cx"), there)


def test_a_copy_keeps_a_tensor_and_gives_it_back_from_another_thread(
    m: iso.Machine, library: Library
) -> None:
    array = Array(library, IMAGES)
    stream = library.stream()
    library.hold(stream, True)
    library.fill(stream, array.address, IMAGES.nbytes, 0)
    array.stream = stream
    here = np.ones(IMAGES.shape, "f4")
    event = m.copy(m.wrap(array, dims="yxc"), m.wrap(here, dims="yxc"))
    others = m.empty({"x": 9}, "u1", memory="fbm")
    assert (fetched(m, others) == 0).all(), "others go on"
    collect(m)
    assert not event.done() and array.given_back == 0
    library.hold(stream, False)
    event.wait(timeout=20)
    assert (here == 0).all(), "what the stream was asked before is there"
    collect(m)
    assert array.given_back == 1


def test_tensors_are_wrapped_and_dropped_by_many_threads(m: iso.Machine, library: Library) -> None:
    arrays = [Array(library, IMAGES + n) for n in range(24)]
    wrong: list[int] = []

    def run(first: int) -> None:
        for n in range(first, len(arrays), 4):
            if not (fetched(m, m.wrap(arrays[n], dims="yxc")) == IMAGES + n).all():
                wrong.append(n)

    threads = [threading.Thread(target=run, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    collect(m)
    assert wrong == [] and {array.given_back for array in arrays} == {1}


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"kind": (2, 4, 1)}, TypeError, "4 bits"),
        ({"kind": (2, 32, 4)}, TypeError, "4 lanes"),
        ({"kind": (3, 64, 1)}, TypeError, "type 3"),
        ({"kind": (2, 0, 1)}, TypeError, "0 bits"),
        ({"major": 2}, TypeError, "version 2"),
        ({"device": (MANAGED, 0)}, ValueError, "was said"),
        ({"shape": [4, 5, 7]}, ValueError, "outside"),
        ({"shape": [4, 5, -1]}, ValueError, "shape"),
        ({"shape": [1] * 65}, ValueError, "shape"),
        ({"strides": [30, 6, -1]}, ValueError, "outside"),
        ({"strides": [1 << 62, 6, 1]}, ValueError, "strides"),
        ({"address": 64}, ValueError, "0x40"),
    ],
)
def test_a_tensor_that_is_refused_is_given_back(
    m: iso.Machine,
    library: Library,
    change: dict[str, Any],
    error: type[Exception],
    match: str,
) -> None:
    array = Array(library, IMAGES)
    for name, value in change.items():
        setattr(array, name, value)
    with pytest.raises(error, match=match):
        m.wrap(array)
    array.capsule = None
    collect(m)
    assert array.given_back == 1


def test_what_gives_no_tensor_is_refused(m: iso.Machine, library: Library) -> None:
    array = Array(library, IMAGES)
    array.device = (CUDA, 7)
    with pytest.raises(ValueError, match="CUDA device 7"):
        m.wrap(array)
    assert array.capsule is None, "it was not asked"
    array.device = (CUDA, 0)
    used = array.__dlpack__()
    rename(used, b"used_dltensor_versioned")
    for gives, error in [(lambda **_: used, TypeError), (lambda **_: 3, TypeError)]:
        array.__dict__["given"] = gives
        with pytest.raises(error, match="capsule"):
            m.wrap(Given(array, gives))
    with pytest.raises(BufferError, match="mine"):
        m.wrap(Given(array, refuse))
    assert array.given_back == 0


class Given:
    """Something on a device that gives what it is told."""

    def __init__(self, array: Array, gives: Callable[..., Any]) -> None:
        self.array, self.gives = array, gives

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.device

    def __dlpack__(self, **options: Any) -> Any:
        return self.gives(**options)


def refuse(**_: Any) -> Any:
    raise BufferError("it is mine")


def test_an_interface_is_used_in_place(m: iso.Machine, library: Library) -> None:
    address = library.allocate(IMAGES.nbytes)
    library.write(address, IMAGES)
    interface = {"shape": (4, 5, 6), "typestr": "<f4", "data": (address, False), "version": 3}
    exporter = Interface(interface)
    there = m.wrap(exporter, dims="yxc")
    assert (fetched(m, there) == IMAGES).all()
    m.copy(m.wrap(IMAGES * 3, dims="yxc"), there).wait(timeout=20)
    assert library.read(address, IMAGES.nbytes) == (IMAGES * 3).tobytes()
    last = {"data": (address + 4 * 119, True), "strides": (-120, -24, -4), "stream": None}
    reversed_ = m.wrap(Interface(interface | last), dims="yxc")
    assert (fetched(m, reversed_) == IMAGES[::-1, ::-1, ::-1] * 3).all()
    with pytest.raises(ValueError, match="read-only"):
        m.copy(there, reversed_)


@pytest.mark.parametrize("kind", ["own", "default", "of the thread"])
def test_a_copy_is_behind_the_stream_of_an_interface(
    m: iso.Machine, library: Library, kind: str
) -> None:
    stream = {"own": library.stream(), "default": 1, "of the thread": 2}[kind]
    address = library.allocate(8)
    library.fill(stream, address, 8, 3)
    library.call("cuStreamSynchronize", c_uint64(stream))
    library.hold(stream, True)
    library.fill(stream, address, 8, 9)
    interface = {"shape": (8,), "typestr": "|u1", "data": (address, False), "stream": stream}
    there = m.wrap(Interface(interface), dims="x")
    here = np.zeros(8, "u1")
    event = m.copy(there, m.wrap(here, dims="x"))
    assert (fetched(m, m.empty({"x": 8}, "u1", memory="fbm")) == 0).all(), "others go on"
    assert not event.done()
    library.hold(stream, False)
    event.wait(timeout=20)
    assert (here == 9).all()


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"stream": 0}, ValueError, "legacy default"),
        ({"stream": "1"}, TypeError, "integer"),
        ({"mask": 5}, ValueError, "mask"),
        ({"typestr": "|O8"}, TypeError, "O"),
        ({"shape": (1 << 40,)}, ValueError, "outside"),
        ({"strides": (1 << 40,)}, ValueError, "outside"),
        ({"data": (0, False)}, ValueError, "0x0"),
        ({"data": None}, TypeError, "`data`"),
    ],
)
def test_an_interface_that_can_not_be_is_refused(
    m: iso.Machine,
    library: Library,
    change: dict[str, Any],
    error: type[Exception],
    match: str,
) -> None:
    interface = {"shape": (8,), "typestr": "<u1", "data": (library.allocate(8), False)}
    m.wrap(Interface(interface))
    with pytest.raises(error, match=match):
        m.wrap(Interface(interface | change))


def test_host_memory_is_no_devices(m: iso.Machine) -> None:
    here = np.zeros(8, "u1")
    with pytest.raises(ValueError, match="no CUDA device"):
        m.wrap(Interface({"shape": (8,), "typestr": "|u1", "data": (here.ctypes.data, False)}))


class Stream:
    def __init__(self, **names: Any) -> None:
        self.__dict__.update(names)


def test_a_copy_waits_for_a_streams_fence(m: iso.Machine, library: Library) -> None:
    stream = library.stream()
    library.hold(stream, True)
    library.fill(stream, library.allocate(1), 1, 1)
    ways: list[Any] = [
        stream,
        Stream(__cuda_stream__=lambda: (0, stream)),
        Stream(__cuda_stream__=(0, stream)),
        Stream(cuda_stream=stream),
        Stream(ptr=stream, wait_event=None),
    ]
    fences = [m.fence(way) for way in ways]
    src, dst = np.arange(8, dtype="u1"), np.zeros(8, "u1")
    event = m.copy(m.wrap(src, dims="x"), m.wrap(dst, dims="x"), after=fences)
    with pytest.raises(iso.Timeout):
        fences[0].wait(timeout=0.01)
    assert not event.done() and (dst == 0).all() and not any(fence.done() for fence in fences)
    library.hold(stream, False)
    event.wait(timeout=20)
    assert (dst == src).all() and all(fence.done() for fence in fences)
    assert fences[0].progress() == (0, 0)
    # PyTorch's and CuPy's default streams.
    for way in [Stream(cuda_stream=0), Stream(ptr=0, wait_event=None), 1, 2]:
        m.fence(way).wait(timeout=20)
    m.fence(1, memory="fbm1").wait(timeout=20)


def test_what_is_no_stream_has_no_fence(m: iso.Machine, library: Library) -> None:
    with pytest.raises(ValueError, match="legacy default"):
        m.fence(0)
    wrong: list[tuple[Any, str]] = [
        ("1", "expected a stream"),
        (None, "expected a stream"),
        (object(), "expected a stream"),
        # As CuPy's events and pointers have it.
        (Stream(ptr=library.stream()), "expected a stream"),
        (Stream(ptr="1", wait_event=None), "ptr must be an integer"),
        (Stream(cuda_stream=None), "cuda_stream must be an integer"),
        (Stream(__cuda_stream__=lambda: (7, 1)), "version 7"),
        (Stream(__cuda_stream__=5), "no pair"),
        (Stream(__cuda_stream__=(0, "1")), "must be an integer"),
    ]
    for stream_, match in wrong:
        with pytest.raises(TypeError, match=match):
            m.fence(stream_)
    for stream_ in [-1, Stream(cuda_stream=-1), Stream(ptr=1 << 64, wait_event=None)]:
        with pytest.raises(ValueError, match="must be from 0"):
            m.fence(stream_)
    stream = library.stream()
    for memory in ["fbm1", "sys", "none"]:
        with pytest.raises(ValueError, match="stream|sys|none"):
            m.fence(stream, memory=memory)
    library.driver.fake_capture(0, c_uint64(stream), True)
    with pytest.raises(OSError, match="CAPTURE"):
        m.fence(stream)


def test_a_fence_that_is_forgotten_holds_up_nobody(path: str) -> None:
    library = Library(path)
    stream = library.stream()
    library.hold(stream, True)
    with iso.Machine() as machine:
        fence = machine.fence(stream)
        machine.fence(stream)
    with pytest.raises(iso.Cancelled):
        fence.wait()
    with pytest.raises(iso.Error):
        machine.fence(stream)
    library.hold(stream, False)


def taken(capsule: Any) -> tuple[Any, Callable[[], None]]:
    """What a capsule holds, taken out of it as a consumer does, and what gives that back."""
    managed = {name: kind for kind, name in NAMES.items()}[name_of(capsule)]
    address = pointer_in(capsule, NAMES[managed])
    rename(capsule, b"used_" + NAMES[managed])
    whole = managed.from_address(address)
    return whole, lambda: DELETER(whole.deleter)(address)


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 9), (2, 0)])
def test_an_instance_is_a_tensor(
    m: iso.Machine, library: Library, version: tuple[int, int] | None
) -> None:
    there = m.empty({"y": 4, "x": 5, "c": 6}, "f4", layout="cyx", memory="fbm1")
    m.copy(m.wrap(IMAGES, dims="yxc"), there).wait(timeout=20)
    part = there.box({"y": (1, 3), "c": (2, 6)})
    assert part.__dlpack_device__() == (CUDA, 1)
    whole, give_back = taken(part.__dlpack__(stream=1, max_version=version))
    assert isinstance(whole, Versioned if version and version[0] else Legacy)
    if isinstance(whole, Versioned):
        assert (whole.major, whole.flags) == (1, 0)
    tensor = whole.tensor
    assert (tensor.kind, tensor.id, tensor.byte_offset) == (CUDA, 1, 0)
    assert (tensor.code, tensor.bits, tensor.lanes) == (2, 32, 1)
    assert (tensor.shape[:3], tensor.strides[:3]) == ([2, 5, 4], [5, 1, 20])
    # It is kept by what was handed out alone.
    del part, there
    collect(m)
    other = Library(library.path, 1)
    assert (np.frombuffer(other.read(tensor.data, 20), "f4") == IMAGES[1, :, 2]).all()
    live = library.driver.fake_live()
    thread = threading.Thread(target=give_back)
    thread.start()
    thread.join()
    assert library.driver.fake_live() == live - 1


def test_a_capsule_that_nobody_takes_gives_its_memory_back(
    m: iso.Machine, library: Library
) -> None:
    live = library.driver.fake_live()
    for version in [None, (1, 0)]:
        capsule = m.empty({"x": 8}, "u1", memory="fbm").__dlpack__(max_version=version)
        collect(m)
        assert library.driver.fake_live() > live
        del capsule
        collect(m)
        assert library.driver.fake_live() == live


def test_an_array_without_bytes_needs_no_address(m: iso.Machine, path: str) -> None:
    array = Array(Library(path, 1), np.zeros((0, 4), "f4"))
    array.address = 0
    interface = {"shape": (0, 4), "typestr": "<f4", "data": (0, False), "version": 3, "stream": 1}
    nothing = m.empty({"y": 0, "x": 4}, "f4", memory="fbm")
    exporters: list[tuple[Any, str]] = [
        (array, "fbm1"),
        (Interface(interface), "fbm"),
        (nothing, "fbm"),
    ]
    for exporter, memory in exporters:
        there = m.wrap(exporter, dims="yx")
        assert (there.memory, there.shape) == (memory, (0, 4))
        assert fetched(m, there).shape == (0, 4)
        m.copy(m.wrap(np.zeros((0, 4), "f4"), dims="yx"), there).wait(timeout=20)


def test_an_instance_goes_out_and_comes_in_again(m: iso.Machine) -> None:
    there = m.empty({"y": 3, "x": 4}, "i2", layout="xy", memory="fbm")
    again = m.wrap(there, dims="yx")
    numbers = np.arange(12, dtype="i2").reshape(3, 4)
    m.copy(m.wrap(numbers, dims="yx"), again).wait(timeout=20)
    assert (fetched(m, there) == numbers).all()
    interface = m.wrap(Interface(there.__cuda_array_interface__), dims="yx")
    assert (fetched(m, interface) == numbers).all()
    with pytest.raises(ValueError, match="overlaps"):
        m.copy(again.box({"y": (0, 2)}), interface.box({"y": (1, 3)}))


def test_an_instance_has_an_interface(m: iso.Machine) -> None:
    there = m.empty({"y": 3, "x": 4}, "<i2", layout="xy", memory="fbm").box({"x": (1, 3)})
    interface = there.__cuda_array_interface__
    address, is_read_only = interface.pop("data")
    assert interface == {
        "version": 3,
        "shape": (3, 2),
        "typestr": "<i2",
        "strides": (2, 6),
        "stream": None,
    }
    assert address % 256 == 6 and not is_read_only
    assert there.box({"x": (2, 2)}).__cuda_array_interface__["data"] == (0, False)


def test_what_goes_out_is_made(m: iso.Machine, library: Library) -> None:
    stream = library.stream()
    array = Array(library, IMAGES)
    array.stream = stream
    library.hold(stream, True)
    library.fill(stream, array.address, 4, 0)
    there = m.wrap(array, dims="yxc")
    threading.Timer(0.05, library.hold, (stream, False)).start()
    whole, give_back = taken(there.__dlpack__(max_version=(1, 0)))
    m.fence(stream).wait(timeout=20)
    assert library.read(whole.tensor.data, 4) == bytes(4)
    give_back()


def test_what_has_no_place_on_a_device_is_refused(m: iso.Machine) -> None:
    host = m.empty({"x": 8}, "u1")
    assert not hasattr(host, "__cuda_array_interface__")
    assert host.__dlpack_device__() == (1, 0)
    assert (np.from_dlpack(host) == 0).all()
    there = m.empty({"x": 8}, "u1", memory="fbm")
    asked: list[dict[str, Any]] = [{"dl_device": (1, 0)}, {"dl_device": (CUDA, 1)}, {"copy": True}]
    for options in asked:
        with pytest.raises(BufferError, match="cop"):
            there.__dlpack__(**options)
    there.__dlpack__(dl_device=(CUDA, 0), copy=False)
    records = m.empty({"x": 8}, [("a", "i4"), ("b", "i4")], memory="fbm")
    assert not hasattr(records, "__cuda_array_interface__")
    for dtype in [[("a", "i4"), ("b", "i4")], ">i4", "M8[ns]", "S3"]:
        with pytest.raises(BufferError, match="element type"):
            m.empty({"x": 8}, dtype, memory="fbm").__dlpack__()
    blocks = m.empty({"x": 8}, "u1", layout="<x_in=4, F, x_out>", memory="fbm")
    with pytest.raises(iso.LayoutError):
        _ = blocks.__cuda_array_interface__
    with pytest.raises(iso.LayoutError):
        blocks.__dlpack__()
    with pytest.raises(ValueError, match="fbm"):
        np.asarray(there)


def test_a_read_only_instance_goes_out_as_such(m: iso.Machine, library: Library) -> None:
    array = Array(library, IMAGES)
    array.flags = 1
    there = m.wrap(array, dims="yxc")
    assert there.__cuda_array_interface__["data"] == (array.address, True)
    with pytest.raises(BufferError, match="read-only"):
        there.__dlpack__()
    whole, give_back = taken(there.__dlpack__(max_version=(1, 0)))
    assert whole.flags == 1
    give_back()


@pytest.mark.parametrize("dtype", ["b1", "i1", "u8", "f2", "f8", "c8", "c16"])
def test_types_go_out_and_come_in(m: iso.Machine, dtype: str) -> None:
    there = m.empty({"x": 3}, dtype, memory="fbm")
    again = m.wrap(there, dims="x")
    assert again.dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    ("kind", "dtype"), [((4, 16, 1), "bfloat16"), ((10, 8, 1), "float8_e4m3fn")]
)
def test_types_that_numpy_lacks_keep_their_names(
    m: iso.Machine, library: Library, kind: tuple[int, int, int], dtype: str
) -> None:
    array = Array(library, np.zeros(4, f"u{kind[1] // 8}"))
    array.kind = kind
    whole, give_back = taken(m.wrap(array).__dlpack__(max_version=(1, 0)))
    tensor = whole.tensor
    assert (tensor.code, tensor.bits, tensor.lanes) == kind, dtype
    give_back()


def test_a_lost_device_has_no_memory_for_others(m: iso.Machine, library: Library) -> None:
    array, there = Array(library, IMAGES), m.empty({"x": 8}, "u1", memory="fbm")
    library.driver.fake_fail(0, 700, True)
    with pytest.raises(iso.TransferError):
        fetched(m, there)
    uses: list[Callable[[], Any]] = [
        lambda: m.wrap(array),
        lambda: m.fence(1, memory="fbm"),
        lambda: there.__dlpack__(),
        lambda: there.__cuda_array_interface__,
    ]
    for use in uses:
        with pytest.raises(OSError, match="`Emulated 0` is lost"):
            use()
    m.fence(1, memory="fbm1").wait(timeout=20)


# As many as a stream takes.
MOST_QUEUED = 1024


@pytest.fixture
def watched() -> Iterator[None]:
    """Ends the process where the interpreter is held for too long: who watches here needs none."""
    faulthandler.dump_traceback_later(20, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("way", ["fence", "interface"])
def test_others_have_the_interpreter_while_a_stream_takes_no_more(
    m: iso.Machine, library: Library, way: str
) -> None:
    stream, address = library.stream(), library.allocate(8)
    library.hold(stream, True)
    for _ in range(MOST_QUEUED):
        library.fill(stream, address, 8, 3)
    threading.Timer(0.05, library.hold, (stream, False)).start()
    if way == "fence":
        m.fence(stream).wait(timeout=20)
        return
    interface = {"shape": (8,), "typestr": "|u1", "data": (address, False), "stream": stream}
    assert (fetched(m, m.wrap(Interface(interface), dims="x")) == 3).all()


def test_the_child_of_a_fork_gets_no_address(m: iso.Machine) -> None:
    there = m.empty({"x": 8}, "u1", memory="fbm")
    child = os.fork()
    if child == 0:
        refused = 0
        uses: list[Callable[[], Any]] = [there.__dlpack__, lambda: there.__cuda_array_interface__]
        for use in uses:
            try:
                use()
            except iso.Error as error:
                refused += "fork" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


def test_memory_of_opencl_has_no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCL_DEVICES", os.environ.get("POCL_DEVICES", "pthread pthread"))
    monkeypatch.setenv("ISOMETRY_OPENCL", "all")
    monkeypatch.setenv("ISOMETRY_CUDA", "none")
    with iso.Machine() as m:
        if "fbm" not in [memory["name"] for memory in m.topology().to_dict()["memories"]]:
            pytest.skip("no device of OpenCL")
        there = m.empty({"x": 8}, "u1", memory="fbm")
        assert not hasattr(there, "__cuda_array_interface__")
        asked: list[Callable[[], Any]] = [there.__dlpack_device__, there.__dlpack__]
        for refused in asked:
            with pytest.raises(ValueError, match="`fbm` is not memory of a CUDA device"):
                refused()
        with pytest.raises(ValueError, match="no CUDA device"):
            m.fence(1)
