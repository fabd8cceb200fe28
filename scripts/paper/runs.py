"""Runs of `iso sim run`, each once, and clusters with one assumed curve changed."""

from __future__ import annotations

import copy
import json
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
ISO = ROOT / "target" / "release" / "iso"

# The paper gives the peaks of this cluster's curves (Table 5): only what lies below is assumed.
PEAKS_GIVEN = {"sapling"}


@dataclass(frozen=True)
class Variant:
    """A cluster as it is committed, or with one assumed curve times `factor`."""

    cluster: str
    curve: str
    factor: float
    path: str


def committed(cluster: str) -> Variant:
    return Variant(cluster, "", 1.0, cluster)


def variants(cluster: str, scratch: Path) -> list[Variant]:
    """Each assumed curve of a cluster halved, then doubled; those of like devices together."""
    spec = tomllib.loads((ROOT / "clusters" / f"{cluster}.toml").read_text())
    made: list[Variant] = []
    for curve in sorted({name for name, _ in assumed(spec)}):
        for factor in (0.5, 2.0):
            changed = copy.deepcopy(spec)
            for name, channel in assumed(changed):
                if name == curve:
                    # Wires have no kind; nobody gives a rate of theirs.
                    scale(channel, factor, cluster in PEAKS_GIVEN and "kind" in channel)
            path = scratch / f"{cluster}-{len(made)}.json"
            path.write_text(json.dumps(changed))
            made.append(Variant(cluster, curve, factor, str(path)))
    return made


def assumed(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The channels, links and ports with an assumed curve, by a name that like devices share."""
    inside = [channel for node in spec["node"] for channel in node["channel"]]
    for channel in [*inside, *spec.get("link", [])]:
        if channel.get("assumed"):
            ends = [",".join(map(undigit, channel[end])) for end in ("from", "to")]
            yield f"{channel['kind']} {ends[0]} → {ends[1]}", channel
    ports = {memory["port"] for node in spec["node"] for memory in node["memory"] if "port" in memory}
    for wire in (wire for node in spec["node"] for wire in node.get("wire", [])):
        if wire.get("assumed") and wire["name"] in ports:
            yield "the port of a node", wire


def undigit(memory: str) -> str:
    return memory.rsplit(".")[-1].rstrip("0123456789")


def scale(channel: dict[str, Any], factor: float, keeps_peak: bool) -> None:
    for key in ("throughput", "throughput_interleave", "throughput_transpose", "throughput_gather"):
        curve = channel.get(key)
        if isinstance(curve, list):
            peak = curve[-1][1] if keeps_peak else float("inf")
            below = [[size, min(rate * factor, peak)] for size, rate in curve]
            channel[key] = [*below[:-1], curve[-1]] if keeps_peak else below
        elif curve is not None and not keeps_peak:
            channel[key] = curve * factor


class Runs:
    """Runs of the simulator, which are functions of their arguments: each is made once."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[tuple[str, ...], threading.Lock] = {}
        self._made: dict[tuple[str, ...], dict[str, Any]] = {}

    def cases(self, variant: Variant, workload: str, **options: Any) -> list[dict[str, Any]]:
        """The cases of a run; `options` as the command's, with `_` for `-`, None left out."""
        args = [variant.path, workload]
        for name, value in sorted(options.items()):
            flag = "--" + name.replace("_", "-")
            if value is True:
                args.append(flag)
            elif value is not None:
                args += [flag, str(value)]
        cases: list[dict[str, Any]] = self._run(tuple(args))["cases"]
        return cases

    def _run(self, args: tuple[str, ...]) -> dict[str, Any]:
        with self._guard:
            lock = self._locks.setdefault(args, threading.Lock())
        with lock:
            if args not in self._made:
                command = [str(ISO), "sim", "run", *args, "--json"]
                ran = subprocess.run(command, capture_output=True, text=True, check=False)
                if ran.returncode != 0:
                    raise SystemExit(f"{' '.join(command)}: {ran.stderr.strip()}")
                self._made[args] = json.loads(ran.stdout)
            return self._made[args]
