"""How the simulator itself grows with nodes and transfers: measured here, unlike all else."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

from report import Table
from runs import ISO

NODES = [1, 4, 16, 64, 256, 1024]
TRANSFERS = [1_000, 10_000, 100_000, 1_000_000]
SIZES = [
    *((nodes, 10_000) for nodes in NODES),
    *((64, transfers) for transfers in TRANSFERS if transfers != 10_000),
    (1024, 1_000_000),
]

TEXT = (
    "The simulator at work, one thread: wall time and the most memory of `iso sim run pod exchange "
    "--nodes N --transfers T`, measured on the machine that wrote this, which may have had other work; "
    "events are what virtual time brought."
)
HEAD = ["nodes", "transfers", "events", "seconds", "events a second", "most memory"]


def table() -> Table:
    return Table("Scale of the simulator", TEXT, HEAD, list(rows()))


def rows() -> Iterator[list[str]]:
    for nodes, transfers in SIZES:
        print(f"{transfers} transfers on {nodes} nodes", file=sys.stderr)
        events, seconds, peak = measured(nodes, transfers)
        yield [
            f"{nodes:,}", f"{transfers:,}", f"{events:,}", f"{seconds:.2f}",
            f"{events / seconds:,.0f}", peak,
        ]


def measured(nodes: int, transfers: int) -> tuple[int, float, str]:
    """Events, seconds, and the most memory, as the program says it."""
    size = ["--nodes", str(nodes), "--transfers", str(transfers)]
    command = [str(ISO), "sim", "run", "pod", "exchange", *size, "--summary", "--json"]
    started = time.perf_counter()
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {ran.stderr.strip()}")
    peak = ran.stderr.rsplit(", ", 1)[-1].strip().removesuffix(" of memory")
    return int(json.loads(ran.stdout)["cases"][0]["events"]), seconds, peak
