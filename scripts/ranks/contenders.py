"""Who is timed: two ranks of ours, and of each peer that is installed."""

from __future__ import annotations

import csv
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from link import ADDRESSES, DEVICE, Link
from pairs import Failed, Pair, Start
from timing import Bench, Case, Contender, Probe, Truth
from told import places, span

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = ROOT / ".venv-fabric"
PYTHON = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
BUILT = ROOT / "target" / "ranks"
RANK = ROOT / "target" / "release" / "iso-rank"


def truth_of(case: Case, folder: Path) -> Truth:
    """Random bytes on both sides, and the blocks of one at the places of the other."""
    rng = np.random.default_rng(case.bytes + case.block)
    src = rng.integers(0, 256, span(case.src, case.bytes), np.uint8)
    dst = rng.integers(0, 256, span(case.dst, case.bytes), np.uint8)
    truth = Truth(folder, src.nbytes, dst.nbytes)
    src.tofile(truth.src)
    dst.tofile(truth.dst)
    count = case.bytes // case.block
    dst.reshape(-1, case.block)[places(case.dst, count)] = src.reshape(-1, case.block)[
        places(case.src, count)
    ]
    dst.tofile(truth.right)
    return truth


class Ranks:
    """Two ranks that speak the lines of pairs.py, and the kinds of cases that they know."""

    # What is too long for the caches needs no time off the clock before: then this is `time`.
    verb = "run"

    def __init__(self, name: str, pair: Pair, kinds: str, most_bytes: Mapping[str, int]) -> None:
        self.name, self.pair = name, pair
        self._kinds, self._most_bytes = kinds.split(), most_bytes
        self._gets = False

    def takes(self, case: Case) -> bool:
        return case.kind in self._kinds and case.bytes <= self._most_bytes.get(case.kind, case.bytes)

    def prepare(self, case: Case) -> dict[str, float]:
        self._gets = case.kind == "get"
        return self.pair.tell(self.line(case))[0]

    def line(self, case: Case) -> str:
        """How its ranks are told of a case."""
        return case.line()

    def is_right(self, truth: Truth) -> bool | None:
        src, dst = (0, "own"), (1, "shared")
        if self._gets:
            src, dst = dst, src
        self.pair.tell_one(src[0], f"load {src[1]} {truth.src_bytes} {truth.src}")
        self.pair.tell_one(dst[0], f"load {dst[1]} {truth.dst_bytes} {truth.dst}")
        self.pair.tell("once")
        self.pair.tell_one(dst[0], f"dump {dst[1]} {truth.dst_bytes} {truth.found}")
        return truth.is_found()

    def run(self, times: int) -> dict[str, float]:
        return self.pair.tell(f"{self.verb} {times}")[0]

    def probe(self, turns: int) -> float:
        """The seconds of a turn between the cores; only our ranks know how."""
        seconds: float = self.pair.tell(f"probe {turns}")[0]["seconds"]
        return seconds / turns

    def close(self) -> None:
        self.pair.close()


def each(
    folder: Path, program: str, size: int, variables: Mapping[str, str], way: Way
) -> Pair:
    """One of our programs in Python that is started for each rank, with its number before other
    arguments."""
    script = [str(PEERS / "bin/python"), str(ROOT / "scripts/ranks" / program)]
    starts = [
        Start(
            [*way.at(rank), *script, str(rank), str(folder), str(size)],
            {**variables, "ISOMETRY_RANK": str(rank)},
        )
        for rank in (0, 1)
    ]
    return Pair(folder, starts)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@dataclass(frozen=True)
class Way:
    """How two ranks reach each other: `shm`, `tcp`, or over a `link` that is there."""

    name: str
    link: Link | None = None
    # Whether ours meet by TCP, though they share memory.
    meets_by_tcp: bool = False

    def at(self, rank: int) -> list[str]:
        """What starts a program where that rank is."""
        return [] if self.link is None else self.link.at(rank)

    def address(self, rank: int) -> str:
        """One that a rank may listen at."""
        return f"{'127.0.0.1' if self.link is None else ADDRESSES[rank]}:{free_port()}"

    def of_ucx(self) -> dict[str, str]:
        """Within one machine UCX finds shared memory by itself."""
        if self.name == "shm":
            return {}
        return {"UCX_TLS": "tcp", "UCX_NET_DEVICES": self.device()}

    def device(self) -> str:
        """What TCP goes by."""
        return "lo" if self.link is None else DEVICE


WAYS = {
    "shm": ("shared memory", Way("shm")),
    "near": ("shared memory where they meet by TCP", Way("shm", meets_by_tcp=True)),
    "tcp": ("TCP loopback", Way("tcp")),
}


@contextmanager
def way_of(over: str, gigabits: float) -> Iterator[tuple[str, Way]]:
    """How ranks reach each other, and what is said of it; a link is as fast as that."""
    if over != "link":
        name, way = WAYS[over]
        yield name, way
        return
    with Link(gigabits) as link:
        yield f"a link of {gigabits:g} Gbit/s", Way("link", link)


def joining(way: Way) -> dict[str, str]:
    """What two ranks of ours join by, but for the rank: the root's spelling says by what they go."""
    if way.meets_by_tcp:
        root = way.address(0)
    elif way.name == "shm":
        root = f"local:{secrets.token_hex(8)}"
    else:
        # What goes by a network is to go by that, though the ranks are of one machine.
        root = f"apart:{way.address(0)}"
    return {"ISOMETRY_ROOT": root, "ISOMETRY_SIZE": "2", "ISOMETRY_KEY": secrets.token_hex(16)}


def package() -> str:
    """Where ours is installed."""
    folder = ROOT / ".venv" / PYTHON
    if not (folder / "isometry").exists():
        raise Failed("the package is not installed")
    return str(folder)


def nodes(folder: Path, size: int, way: Way) -> Ranks:
    """Ours as nodes, whose copies are planned."""
    variables = {**joining(way), "PYTHONPATH": package()}
    pair = each(folder, "node_rank.py", size, variables, way)
    return Ranks("isometry nodes", pair, "kv", {})


def isometry(folder: Path, size: int, way: Way) -> Ranks:
    """Ours, which go by what the spelling of their root says."""
    if not RANK.exists():
        raise Failed("it is not built")
    variables = joining(way)
    starts = [
        Start(
            [*way.at(rank), str(RANK), str(folder), str(size)],
            {**variables, "ISOMETRY_RANK": str(rank)},
        )
        for rank in (0, 1)
    ]
    kinds = "put get puts trip flood send kv"
    return Ranks("isometry", Pair(folder, starts), kinds, {"trip": 4096, "flood": 4096})


def built(name: str) -> Path:
    """The program of an MPI, compiled by its own compiler."""
    compiler = PEERS / name / "bin" / "mpicc"
    if not compiler.exists():
        raise Failed("it is not installed")
    BUILT.mkdir(parents=True, exist_ok=True)
    source = ROOT / "bench" / "peers" / "mpi.c"
    command = [str(compiler), "-O2", "-o", str(BUILT / name), str(source)]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0:
        raise Failed(f"{compiler} fails: {made.stderr.strip()[-200:]}")
    return BUILT / name


MPI_KINDS = "put get puts trip flood send"


def launched(
    folder: Path, program: list[str], way: Way, across: Callable[[str], list[str]]
) -> list[str]:
    """How a launcher is started with its program; `across` has it reach the ends of a link by an agent."""
    if way.link is None:
        return program
    folder.parent.mkdir(parents=True, exist_ok=True)
    launcher, *rest = program
    return [*way.at(0), launcher, *across(way.link.agent(folder.parent)), *rest]


def openmpi(folder: Path, size: int, way: Way) -> Ranks:
    by_tcp = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": way.device()}
    layers = {"OMPI_MCA_btl": "sm,self"} if way.name == "shm" else by_tcp
    # By the layers of its own: by UCX it would be UCX that is measured.
    variables = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_osc": "^ucx", **layers}
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    options = [*as_root, "--bind-to", "none", "--oversubscribe"]
    window = "allocated" if way.name == "shm" else "created"
    arguments = [*options, "-n", "2", str(built("openmpi")), str(folder), str(size), window]
    program = [str(PEERS / "openmpi/bin/mpirun"), *arguments]

    def across(agent: str) -> list[str]:
        hosts = ",".join(f"{address}:1" for address in ADDRESSES)
        return ["--host", hosts, "--prtemca", "plm_ssh_agent", agent]

    start = Start(launched(folder, program, way, across), variables)
    return Ranks("openmpi", Pair(folder, [start]), MPI_KINDS, {})


def mpich(folder: Path, size: int, way: Way) -> Ranks:
    by_tcp = {
        "MPIR_CVAR_NOLOCAL": "1",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": way.device(),
    }
    arguments = ["-n", "2", str(built("mpich")), str(folder), str(size), "allocated"]
    program = [str(PEERS / "mpich/bin/mpiexec"), *arguments]

    def across(agent: str) -> list[str]:
        hosts = ["-hosts", ",".join(ADDRESSES), "-iface", way.device()]
        return ["-launcher", "ssh", "-launcher-exec", agent, *hosts]

    variables = {} if way.name == "shm" else by_tcp
    start = Start(launched(folder, program, way, across), variables)
    return Ranks("mpich", Pair(folder, [start]), MPI_KINDS, {})


def nixl(folder: Path, size: int, way: Way, *paths: str) -> Ranks:
    """NIXL; `paths` are of packages that its ranks use besides."""
    theirs = PEERS / "nixl-cu12" / PYTHON
    if not theirs.exists():
        raise Failed("it is not installed")
    variables = {
        "PYTHONPATH": ":".join([str(theirs), *paths]),
        "NIXL_LOG_LEVEL": "ERROR",
        **way.of_ucx(),
    }
    pair = each(folder, "nixl_rank.py", size, variables, way)
    # What notifications may be is not for bulk.
    return Ranks("nixl", pair, "put get puts trip flood kv", {"trip": 4096, "flood": 4096})


def mooncake(folder: Path, size: int, way: Way) -> Ranks:
    theirs = PEERS / "mooncake-transfer-engine-non-cuda" / PYTHON
    if not theirs.exists():
        raise Failed("it is not installed")
    if way.name != "tcp":
        raise Failed("without devices it goes by TCP only")
    variables = {"PYTHONPATH": str(theirs), "MC_LOG_LEVEL": "ERROR"}
    pair = each(folder, "mooncake_rank.py", size, variables, way)
    return Ranks("mooncake", pair, "put get puts", {})


def tcp(folder: Path, size: int, way: Way, *paths: str) -> Ranks:
    """A connection of sockets and nothing else; `paths` as for NIXL."""
    if way.name == "shm":
        raise Failed("it does not go by shared memory")
    variables = {"PEERS_ROOT": way.address(1), "PYTHONPATH": ":".join(paths)}
    return Ranks("raw TCP", each(folder, "tcp_rank.py", size, variables, way), "kv", {})


class Plain(Ranks):
    """Those that move bytes in one piece only."""

    def takes(self, case: Case) -> bool:
        return case.is_plain() and super().takes(case)


def plain_tcp(folder: Path, size: int, way: Way) -> Plain:
    return Plain("raw TCP", tcp(folder, size, way).pair, "put trip", {})


class Perftest:
    """UCX's own measure, started anew for each run: it says its time itself, and shows no bytes."""

    name = "ucx_perftest"

    # The test, its options, and how many of its latencies one of ours is. Its ping-pong gives half; with
    # -y its receiver takes what a message carries out of the queue, as all others do.
    TESTS: Mapping[str, tuple[str, tuple[str, ...], int]] = {
        "put": ("ucp_put_bw", ("-O", "1"), 1),
        "puts": ("ucp_put_bw", (), 1),
        "get": ("ucp_get", ("-O", "1"), 1),
        "trip": ("ucp_am_lat", ("-y",), 2),
        "flood": ("ucp_am_bw", ("-y",), 1),
    }

    def __init__(self, way: Way) -> None:
        home = PEERS / "libucx-cu12" / PYTHON / "libucx"
        self._program = home / "bin" / "ucx_perftest"
        if not self._program.exists():
            raise Failed("it is not installed")
        self._way = way
        self._variables = {**os.environ, "LD_LIBRARY_PATH": str(home / "lib"), **way.of_ucx()}
        self._case: Case | None = None

    def takes(self, case: Case) -> bool:
        return case.is_plain() and case.kind in self.TESTS

    def prepare(self, case: Case) -> dict[str, float]:
        self._case = case
        return {}

    def is_right(self, truth: Truth) -> bool | None:
        return None

    def run(self, times: int) -> dict[str, float]:
        assert self._case is not None
        test, options, latencies = self.TESTS[self._case.kind]
        host, _, port = self._way.address(1).rpartition(":")
        server = self._start(1, "-c", "1", "-p", port)
        try:
            sizes = ["-s", str(self._case.bytes), "-n", str(times), "-w", str(max(1, times // 10))]
            ends = [host, "-c", "0", "-p", port, "-t", test, *options]
            said = self._ask(server, [*ends, *sizes, "-f", "-v"])
        finally:
            server.kill()
            server.wait()
        return {"seconds": overall_us(said) * 1e-6 * times * latencies}

    def _start(self, rank: int, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._way.at(rank), self._program, *arguments],
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _ask(self, server: subprocess.Popen[str], arguments: list[str]) -> str:
        """Tries until the server listens."""
        end = time.monotonic() + 60
        while server.poll() is None and time.monotonic() < end:
            client = self._start(0, *arguments)
            try:
                said, _ = client.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                client.kill()
                client.wait()
                break
            if client.returncode == 0:
                return said
            time.sleep(0.02)
        raise Failed("it came to no end")

    def close(self) -> None:
        """Nothing of it runs between runs."""


def overall_us(said: str) -> float:
    """The mean latency of all iterations, out of the table that it prints."""
    rows = list(csv.DictReader(line for line in said.splitlines() if "," in line))
    try:
        return float(rows[-1]["overall_lat"])
    except (IndexError, KeyError, TypeError, ValueError) as wrong:
        raise Failed(f"it says {said[-200:]!r}") from wrong


# Starts a contender in a folder of its own, with so many bytes.
Join = Callable[[Path, int, Way], Contender]


def joined(
    bench: Bench, joins: Mapping[str, Join], folder: Path, size: int, way: Way
) -> list[Contender]:
    """Those that can be started; the others are absent."""
    contenders: list[Contender] = []
    for name, join in joins.items():
        try:
            contenders.append(join(folder / name.replace(" ", "-"), size, way))
        except Failed as why:
            bench.lacks(name, str(why))
    return contenders


def probe_of(contenders: list[Contender], turns: int, way: Way) -> Probe:
    """How long a turn between the cores takes, as our ranks know it that share memory."""
    if way.name != "shm":
        return None
    ours = [c for c in contenders if isinstance(c, Ranks) and c.name == "isometry"]
    return (lambda: ours[0].probe(turns)) if ours else None
