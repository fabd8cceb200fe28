"""The paper's figures with our values, as SVG and PNG."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")

import claims
import matplotlib.pyplot as plt
from claims import micro, rate
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from runs import Runs, committed

SAPLING = committed("sapling")
# Table 5: what registered memory sends, and the disk writes.
NETWORK, DISK = 3.18, 0.27
# The same bytes on every run.
plt.rcParams["svg.hashsalt"] = "isometry"
plt.rcParams["svg.fonttype"] = "none"
FIXED = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}


def draw(runs: Runs, out: Path) -> list[tuple[str, str, Path]]:
    """Writes all figures; returns a name, a caption and the SVG of each."""
    made = []
    for name, caption, figure in (
        ("figure-7", "Throughput of transfers without conversion (paper: Figure 7).", pipelining(runs)),
        ("figure-8", "Completion of an urgent transfer (Figure 8); 1 is Realm with one DMA thread.",
         priorities(runs)),
        ("figure-9", "Throughput by path algorithm (Figure 9), without and with a conversion.",
         algorithms(runs)),
        ("figure-11", "Beside a fixed path that converts at the device (Figure 11).", fixed(runs)),
        ("figure-12", "Weak scaling of an iteration (Figure 12).", scaling(runs)),
        ("figure-13", "Communication of PageRank with optimizations off in turn (Figure 13).",
         degradation(runs)),
    ):
        for kind, keys in FIXED.items():
            figure.savefig(out / f"{name}.{kind}", metadata=keys, bbox_inches="tight", dpi=120)
        plt.close(figure)
        made.append((name, caption, out / f"{name}.svg"))
    return made


def axes(columns: int = 1, width: float = 8.0) -> tuple[Figure, list[Axes]]:
    figure, grid = plt.subplots(1, columns, figsize=(width, 3.6), squeeze=False, layout="constrained")
    return figure, list(grid[0])


def grouped(axis: Axes, labels: list[str], series: dict[str, list[float]], unit: str) -> None:
    """Bars beside each other, a group for each label."""
    wide = 0.8 / len(series)
    for at, (name, values) in enumerate(series.items()):
        places = [place + (at - (len(series) - 1) / 2) * wide for place in range(len(labels))]
        axis.bar(places, values, wide, label=name)
    axis.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=7)
    axis.set_ylabel(unit)
    axis.legend(fontsize=7)


def pipelining(runs: Runs) -> Figure:
    cases = claims.pairs(runs, SAPLING)
    figure, [axis] = axes(width=9)
    ours = [rate(case) / 1e9 for case in cases]
    theirs = [rate(case["baseline"]) / 1e9 for case in cases]
    names = [case["case"] for case in cases]
    grouped(axis, names, {"Isometry": ours, "store and forward": theirs}, "GB/s")
    axis.set_yscale("log")
    axis.axhline(NETWORK, color="tab:blue", linewidth=0.7)
    axis.axhline(DISK, color="tab:red", linewidth=0.7)
    return figure


def priorities(runs: Runs) -> Figure:
    figure, both = axes(2)
    threads = [1, 2, 4, 8]
    for axis, kind in zip(both, ("direct", "multi-hop"), strict=True):
        by = {count: claims.urgent(runs, SAPLING, kind, count) for count in threads}
        labels = [f"Realm, {count}" for count in threads] + ["Isometry"]
        series = {}
        for at, size in enumerate(("as large as the others", "a sixteenth")):
            one = by[1][at][1]
            series[size] = [by[count][at][1] / one for count in threads] + [by[1][at][0] / one]
        grouped(axis, labels, series, "of Realm with one DMA thread")
        axis.set_title(kind, fontsize=9)
    return figure


def algorithms(runs: Runs) -> Figure:
    figure, both = axes(2, width=12)
    for axis, only, which in (
        (both[0], claims.KEPT, ("full", "simple")),
        (both[1], claims.CONVERTED, ("full", "simple", "spsl", "spdl")),
    ):
        by = {name: runs.cases(SAPLING, "micro", filter=only, algorithm=name) for name in which}
        labels = [case["case"].split(",")[0] for case in by["full"]]
        series = {name: [rate(case) / 1e9 for case in cases] for name, cases in by.items()}
        grouped(axis, labels, series, "GB/s")
        axis.set_yscale("log")
    return figure


def fixed(runs: Runs) -> Figure:
    figure, [axis] = axes(width=5)
    names = ["FBM to FBM*", "FBM to FBM*, AOS to SOA"]
    cases = [micro(runs, SAPLING, name, baseline="device-converts") for name in names]
    series = {
        "Isometry": [rate(case) / 1e9 for case in cases],
        "fixed path": [rate(case["baseline"]) / 1e9 for case in cases],
    }
    grouped(axis, names, series, "GB/s")
    axis.set_yscale("log")
    return figure


def scaling(runs: Runs) -> Figure:
    figure, all_axes = axes(3, width=12)
    apps = [("pagerank", "xstream", 16), ("vgg16", "xstream", 16), ("circuit", "moonlight", 64)]
    for axis, (app, cluster, most) in zip(all_axes, apps, strict=True):
        nodes = [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= most]
        # Realm's conversion at the device would hide all else.
        baseline = "no-pipeline" if app == "vgg16" else "store-and-forward"
        cases = [
            claims.summary(runs, committed(cluster), app, baseline=baseline, nodes=count)
            for count in nodes
        ]
        axis.plot(nodes, [case["seconds"] / 4 for case in cases], "o-", label="Isometry")
        theirs = [case["baseline"]["seconds"] / 4 for case in cases]
        axis.plot(nodes, theirs, "s-", label=baseline.replace("-", " "))
        axis.plot(nodes, [case["computing_seconds"] / 4 for case in cases], "k:", label="computing")
        axis.set_xscale("log", base=2)
        axis.set_xticks(nodes, [str(count) for count in nodes])
        axis.set_ylim(0, 1.3 * max(theirs))
        axis.set_xlabel("nodes")
        axis.set_ylabel("seconds an iteration")
        axis.set_title(app, fontsize=9)
        axis.legend(fontsize=7)
    return figure


def degradation(runs: Runs) -> Figure:
    xstream = committed("xstream")
    ours = claims.summary(runs, xstream, "pagerank", baseline="no-path")
    threads = {"no pipelining": claims.UNBOUNDED, "one DMA thread": 1}
    without = {
        name: claims.summary(
            runs, xstream, "pagerank", baseline="store-and-forward", dma_threads=count
        )["baseline"]
        for name, count in threads.items()
    }
    bars = {"Isometry": ours, "path off": ours["baseline"], **without}
    figure, [axis] = axes(width=5)
    axis.bar(list(bars), [case[claims.COMMUNICATION] for case in bars.values()])
    axis.tick_params(axis="x", labelsize=8)
    axis.set_ylabel("seconds of communication")
    return figure
