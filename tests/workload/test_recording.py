"""Recordings as files: what they become, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.errors import ConfigError
from hdsim.kubernetes.recording import Recording
from hdsim.simulation.simulation import Simulation

GIB = 2**30


def platform(cpu: int = 4) -> hdsim.Platform:
    """node-0 and node-1."""
    return hdsim.Platform.from_dict(
        {
            "kind": "quantities",
            "clusters": [{"id": "node", "nodes": [{"type": "n", "number": 2}]}],
            "types": {
                "node": {"n": {"processors": [{"type": "p", "number": 1}], "memory": {"capacity": "8GiB"}}},
                "processor": {"p": {"cores": cpu, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 0}},
            },
        },
        where="test",
    )


def header(**changes: Any) -> dict[str, Any]:
    amounts = {"cpu": 4.0, "memory": 8.0 * GIB, "pods": 110.0, "gpus": 0.0, "storage": None}
    nodes = [{"name": f"node-{n}", "allocatable": amounts} for n in range(2)]
    return {"format": "hdsim recording 1", "nodes": nodes, **changes}


def bound(uid: str, time: float, node: str, cpu: float = 1.0, **changes: Any) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": 1.5 * GIB, "pods": 1, "gpus": 0.0, "storage": 0.0}
    entry = {"event": "bound", "time": time, "uid": uid, "pod": f"default/{uid}", "node": node, "decided": True}
    return {**entry, "requests": requests, "constraints": {}, "priority": 0, "duration": None, **changes}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_events_of_one_instant_keep_their_order(tmp_path: Path) -> None:
    """Four cores are free for `c` only because `a` ended before, at the same time."""
    path = write(
        tmp_path / "r.jsonl",
        header(),
        bound("z", 0.0, "node-1", 0.5, decided=False),
        bound("a", 1.0, "node-0", 4.0),
        {"event": "ended", "time": 2.0, "uid": "a", "pod": "default/a", "node": "node-0"},
        bound("c", 2.0, "node-0", 4.0, constraints={"nodeSelector": {"kubernetes.io/hostname": "node-0"}}),
        bound("d", 2.0, "node-1", 3.5, duration=7.5),
    )
    machine = platform()
    jobs, nodes = Recording.read(path).jobs(machine, "agent.recording")
    assert nodes == [1, 0, 0, 1]
    assert jobs.cpu.tolist() == [0.5, 4.0, 4.0, 3.5]
    assert jobs.requested_time[3] == 7.5
    simulation = Simulation(machine, jobs, agent="fcfs")
    result = simulation.run()
    np.testing.assert_array_equal(result.starting_time, jobs.submission_time)  # each one fits when it comes
    only = jobs.constraints[0]  # was bound by another: it may be on its node alone
    allowed = [
        only.allows(*each) for each in zip(machine.node_names, machine.node_labels, machine.node_taints, strict=True)
    ]
    assert allowed == [False, True]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"format": "other"}], r"r.jsonl:1: expected a line of a recording: expected format 'hdsim recording 1'"),
        ([header(), "{"], r"r.jsonl:2: expected a line of a recording: "),
        ([header(), bound("a", 1.0, "node-7")], r"r.jsonl:2: expected a line of a recording: unknown node 'node-7'"),
        ([header(), {"event": "ended", "time": 1.0, "uid": "a"}], r"r.jsonl:2: expected a line of a recording: 'a'"),
        ([header(), bound("a", 1.0, "node-0", decided=False)], "expected a recording with a binding, got none"),
    ],
)
def test_files_that_are_no_recordings(tmp_path: Path, lines: list[object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Recording.read(write(tmp_path / "r.jsonl", *lines))


def test_the_platform_must_have_the_recorded_nodes(tmp_path: Path) -> None:
    recording = Recording.read(write(tmp_path / "r.jsonl", header(), bound("a", 1.0, "node-0")))
    message = "agent.recording: expected the nodes of .*r.jsonl; node-0 of .* has 8 cpu, .*, there it has 4 cpu, "
    with pytest.raises(ConfigError, match=message):
        recording.jobs(platform(cpu=8), "agent.recording")
    wider = header()
    wider["nodes"].append({**wider["nodes"][0], "name": "other"})
    recording = Recording.read(write(tmp_path / "r.jsonl", wider, bound("a", 1.0, "other")))
    with pytest.raises(ConfigError, match=r"expected the nodes of .*r.jsonl; .* has no other"):
        recording.jobs(platform(), "agent.recording")
