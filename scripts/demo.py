"""Converts real pixels on disk from NHWC to NCHW, verifies them, and says what happened.

The pixels are crops of the photographs that scikit-learn ships, 512 MiB of them. The copy runs on
the path that the full planner chooses, with direct I/O, and the result is on the disk for good
when it ends. Everything lies in demo-out/ of the checkout; the trace stays there.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from sklearn.datasets import load_sample_images

import isometry as iso

MIB = 1 << 20
BYTES = 512 * MIB
CROP = 224
WRAPS = 8

OUT = Path(__file__).resolve().parent.parent / "demo-out"
PIXELS, PLANES, NUMPYS = OUT / "pixels.npy", OUT / "planes.npy", OUT / "numpy.npy"
TRACE = OUT / "copy.trace.json"


def say(text: str = "") -> None:
    print(text, flush=True)


def write_pixels() -> None:
    """Crops at places that differ, as (n, h, w, c) of one byte each."""
    photographs = load_sample_images().images
    count = -(-BYTES // (CROP * CROP * 3))
    pixels = open_memmap(PIXELS, "w+", "u1", (count, CROP, CROP, 3))
    rng = np.random.default_rng(0)
    for i in range(count):
        photograph = photographs[i % len(photographs)]
        y, x = (rng.integers(0, size - CROP) for size in photograph.shape[:2])
        pixels[i] = photograph[y : y + CROP, x : x + CROP]
    pixels.flush()


def forget(path: Path) -> None:
    """Writes what the page cache has of a file, and has it forgotten."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def convert(m: iso.Machine) -> tuple[float, dict[str, Any], dict[str, Any]]:
    """Seconds, plan and report of the conversion."""
    f = m.open(PIXELS, dims="nhwc")
    g = m.create(PLANES, like=f, layout="nchw")
    plan = m.plan(f, g, algorithm="full")
    say(plan.explain())
    started = time.perf_counter()
    event = m.copy(f, g, algorithm="full", sync=True)
    event.wait()
    return time.perf_counter() - started, plan.to_dict(), event.report()


def convert_with_numpy() -> float:
    """The same job with NumPy: the file mapped, a part transposed and written at a time."""
    started = time.perf_counter()
    pixels = np.load(PIXELS, mmap_mode="r")
    n, h, w, c = pixels.shape
    planes = open_memmap(NUMPYS, "w+", "u1", (n, c, h, w))
    for i in range(0, n, 64):
        planes[i : i + 64] = pixels[i : i + 64].transpose(0, 3, 1, 2)
    planes.flush()
    del planes
    with open(NUMPYS, "rb") as file:
        os.fsync(file.fileno())
    return time.perf_counter() - started


def verify() -> bool:
    pixels, planes = (np.load(path, mmap_mode="r") for path in (PIXELS, PLANES))
    parts = range(0, len(pixels), 64)
    alike = (np.array_equal(planes[i : i + 64].transpose(0, 2, 3, 1), pixels[i : i + 64]) for i in parts)
    return planes.shape == tuple(pixels.shape[i] for i in (0, 3, 1, 2)) and all(alike)


def check_rings(plan: dict[str, Any], report: dict[str, Any]) -> list[float]:
    """How often each ring went round: what went through it, over its size."""
    through = [hop["bytes"] for hop in report["hops"][:-1]]
    wraps = [bytes / ring["bytes"] for bytes, ring in zip(through, plan["buffers"])]
    if not wraps or min(wraps) < WRAPS:
        sys.exit(f"a ring wrapped less than {WRAPS} times: {wraps}")
    return wraps


def rate(seconds: float, size: int) -> str:
    return f"{size / seconds / 1e9:.2f} GB/s"


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    say(f"writing {BYTES // MIB} MiB of real pixels as NHWC …")
    write_pixels()
    size = PIXELS.stat().st_size
    with iso.Machine(disk=OUT, trace=True, remeasure=True) as m:
        forget(PIXELS)
        seconds, plan, report = convert(m)
        TRACE.write_text(json.dumps(m.trace()))
    wraps = check_rings(plan, report)
    if not verify():
        sys.exit("the planes differ from the pixels")
    forget(PIXELS)
    numpys = convert_with_numpy()
    for path in (PIXELS, PLANES, NUMPYS):
        path.unlink()
    say(f"path       {' → '.join(report['path'])}")
    for hop in report["hops"]:
        held_up = max(
            ("input", "space", "channel"), key=lambda what: float(hop[f"waiting_for_{what}"])
        )
        say(
            f"  {hop['channel']:10} {hop['requests']:6} requests, busy {hop['busy']:.2f} s,"
            f" waited most for {held_up} ({hop[f'waiting_for_{held_up}']:.2f} s)"
        )
    say(f"rings      wrapped {', '.join(f'{n:.0f}' for n in wraps)} times")
    say(f"predicted  {plan['seconds']:.2f} s, {rate(plan['seconds'], size)}")
    say(f"reached    {seconds:.2f} s, {rate(seconds, size)}, synced, verified against NumPy")
    say(f"NumPy      {numpys:.2f} s, {rate(numpys, size)} for the same job, synced")
    say(f"trace      {TRACE.relative_to(OUT.parent)} (open it in Perfetto)")


if __name__ == "__main__":
    try:
        main()
    finally:
        for path in (PIXELS, PLANES, NUMPYS):
            path.unlink(missing_ok=True)
