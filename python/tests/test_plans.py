"""What a machine knows of itself, and how it would run a copy."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isometry as iso


def test_the_topology_is_a_dict(m: iso.Machine) -> None:
    topology = m.topology().to_dict()
    memories = {memory["name"]: memory["kind"] for memory in topology["memories"]}
    assert memories["sys"] == "SYS"
    loops = [c for c in topology["channels"] if c["kind"] == "Memcpy"]
    assert loops and all({"from", "to", "throughput"} <= set(c) for c in loops)
    json.dumps(topology)


def test_a_disk_joins_on_first_use(tmp_path: Path) -> None:
    with iso.Machine(disk=tmp_path) as machine:
        kinds = {memory["kind"] for memory in machine.topology().to_dict()["memories"]}
        channels = {channel["kind"] for channel in machine.topology().to_dict()["channels"]}
    assert "DSK" in kinds and {"DiskRead", "DiskWrite"} <= channels


def test_a_plan_explains_itself(m: iso.Machine, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((64, 256, 256, 3), "u1"))
    f = m.open(tmp_path / "in.npy", dims="nhwc")
    g = m.create(tmp_path / "out.npy", like=f, layout="nchw")
    plan = m.plan(f, g, algorithm="full")
    text, value = plan.explain(), plan.to_dict()
    assert value["algorithm"] == "full" and value["model"] == "default"
    assert len(value["layouts"]) == len(value["memories"]) == len(value["hops"]) + 1
    assert len(value["buffers"]) == len(value["hops"]) - 1
    assert value["throughput"] > 0 and value["seconds"] > 0
    assert value["memories"][0] in text and value["hops"][0]["channel"] in text
    assert m.plan(f, g, algorithm="full").to_dict()["cached"]
    paper = m.plan(f, g, algorithm="simple", model="paper").to_dict()
    assert paper["algorithm"] == "simple" and paper["model"] == "paper"


def test_nothing_runs_for_a_plan(m: iso.Machine) -> None:
    a, b = m.wrap(np.ones(16, "u1"), dims="x"), m.empty({"x": 16}, "u1")
    m.plan(a, b).explain()
    assert np.asarray(b).sum() == 0


def test_a_trace_has_tracks_and_counters(tmp_path: Path) -> None:
    with iso.Machine(trace=True) as machine:
        np.save(tmp_path / "in.npy", np.zeros((512, 4096), "u4"))
        f = machine.open(tmp_path / "in.npy", dims="yx")
        machine.copy(f, machine.create(tmp_path / "out.npy", like=f, layout="xy")).wait()
        events: list[dict[str, Any]] = machine.trace()["traceEvents"]
    phases = {event["ph"] for event in events}
    assert "X" in phases and "M" in phases
    spans = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in spans)
    with iso.Machine() as machine, pytest.raises(ValueError):
        machine.trace()


def test_metrics_count_copies() -> None:
    with iso.Machine(lanes=1) as machine:
        a = np.arange(1 << 20, dtype="u4").reshape(1024, -1)
        dst = machine.empty({"y": 1024, "x": 1024}, "u4", layout="xy")
        machine.copy(machine.wrap(a, dims="yx"), dst).wait()
    lines = machine.metrics().splitlines()
    assert "# TYPE isometry_copied_bytes_total counter" in lines
    assert f'isometry_copied_bytes_total{{node="node0"}} {a.nbytes}' in lines
    assert 'isometry_copies_ended_total{node="node0",outcome="done"} 1' in lines


def test_lanes_and_staging_are_settings() -> None:
    with iso.Machine(lanes=1, staging={"sys": "16MiB"}) as machine:
        a = np.arange(1 << 20, dtype="u4").reshape(1024, -1)
        dst = machine.empty({"y": 1024, "x": 1024}, "u4", layout="xy")
        machine.copy(machine.wrap(a, dims="yx"), dst).wait()
        assert (np.asarray(dst) == a).all()
