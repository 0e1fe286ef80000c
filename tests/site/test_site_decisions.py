"""Starts of a real slurmctld, explained one by one by the main loop and sched/backfill."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import read_case, unexplained

#: Cases, and the jobs that start later in the passes or on other nodes. Jobs ahead of these two, on as many CPUs, did
#: not start with them: sched/backfill had tested these before the CPUs were free, and let go of its locks within the
#: pass (bf_yield_interval is 33 ms on the faster clock) before it went on with the rest of the queue (bf_continue).
CASES: dict[str, tuple[list[str], list[str]]] = {
    "array_throttle": ([], []),
    "backfill": ([], []),
    "backfill_nodes": ([], []),
    "backfill_res600": ([], []),
    "backfill_user2": ([], []),
    "cores_cr_core": ([], []),
    "cores_cr_cpu": ([], []),
    "cores_cr_socket": (["15"], []),
    "cores_lln": ([], []),
    "cores_pack": ([], []),
    "deps": ([], []),
    "deps_kill": ([], []),
    "fifo_builtin": ([], []),
    "gres_gpu": ([], []),
    "licences": ([], []),
    "mem": ([], []),
    "preempt_part_suspend": ([], []),
    "preempt_qos_cancel": ([], []),
    "preempt_qos_exempt": ([], []),
    "prio_all": (["16"], []),
    "prio_classic_fs": ([], []),
    "prio_fairtree": ([], []),
    "prio_part": ([], []),
    "prio_size_big": ([], []),
    "prio_size_small": ([], []),
    "resv_maint": ([], []),
    "states": ([], []),
    "topo_none": ([], []),
}
#: The second of the first calculation of priorities in those cases in which they change with time.
PHASES = {"prio_fairtree": 31, "prio_classic_fs": 31, "prio_all": 38}


@pytest.mark.parametrize("name", CASES)
def test_each_start_of_a_recorded_schedule_is_explained(shared_data: Path, name: str) -> None:
    found = unexplained(read_case(shared_data / "slurm" / name), PHASES.get(name, 0) - 60.0)
    assert found == CASES[name]


@pytest.mark.ci
def test_the_starts_of_a_mix_of_200_jobs_are_explained(shared_data: Path) -> None:
    assert unexplained(read_case(shared_data / "slurm" / "mixed_p20a"), 20.0 - 60.0) == ([], [])
    assert unexplained(read_case(shared_data / "slurm" / "mixed_p20b"), 20.0 - 60.0) == ([], [])


#: Cases that were recorded twice, with equal orders or states of jobs.
TWICE = [
    *("backfill_nodes", "cores_cr_core", "cores_pack", "fifo_builtin", "preempt_qos_cancel", "prio_part"),
    *("prio_size_big", "resv_maint", "states", "topo_none"),
]


@pytest.mark.ci
@pytest.mark.parametrize("name", TWICE)
def test_each_start_of_the_second_recording_is_explained(shared_data: Path, name: str) -> None:
    assert unexplained(read_case(shared_data / "slurm" / name, "2")) == ([], [])
