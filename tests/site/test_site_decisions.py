"""Starts of a real slurmctld, explained one by one by the main loop and sched/backfill."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import read_case, unexplained

#: Cases, and the jobs whose nodes differ: which of equal nodes a job gets depends on the cores that ended jobs held.
CASES = {
    "fifo_builtin": [],
    "backfill": [],
    "backfill_nodes": [],
    "backfill_user2": [],
    "backfill_res600": [],
    "prio_part": [],
    "prio_size_big": ["13"],
    "prio_size_small": [],
    "topo_none": [],
    "cores_pack": [],
}


@pytest.mark.parametrize("name", CASES)
def test_each_start_of_a_recorded_schedule_is_explained(shared_data: Path, name: str) -> None:
    late, elsewhere = unexplained(read_case(shared_data / "slurm" / name))
    assert late == []
    assert elsewhere == CASES[name]


@pytest.mark.ci
@pytest.mark.parametrize("name", ["fifo_builtin", "backfill_nodes", "prio_part", "topo_none"])
def test_each_start_of_the_second_recording_is_explained(shared_data: Path, name: str) -> None:
    late, _ = unexplained(read_case(shared_data / "slurm" / name, "2"))
    assert late == []
