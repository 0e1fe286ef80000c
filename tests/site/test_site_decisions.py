"""Starts of a real slurmctld, explained one by one by the main loop and sched/backfill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import read_case, unexplained

from hdsim.site.jobs_table import jobs_table
from hdsim.site.model import site_of
from hdsim.site.scheduler import SlurmScheduler

#: Cases that were recorded once, and those that were recorded twice.
ONCE = (
    *("backfill_res600", "backfill_user2", "prio_classic_fs", "prio_fairtree"),
    *("mixed_p20a", "mixed_p20b"),
)
TWICE = (
    *("array_throttle", "backfill", "backfill_nodes", "cores_cr_core", "cores_cr_cpu", "cores_cr_socket", "cores_lln"),
    *("cores_pack", "deps", "deps_kill", "fifo_builtin", "gres_gpu", "licences", "mem", "preempt_part_suspend"),
    *("preempt_qos_cancel", "preempt_qos_exempt", "prio_all", "prio_part", "prio_size_big", "prio_size_small"),
    *("resv_maint", "states", "topo_none"),
)
_MIXES = tuple(name for name in ONCE if name.startswith("mixed"))
#: The second of the first calculation of priorities in those recordings in which they change with time.
PHASES = {"prio_fairtree": 31, "prio_classic_fs": 31, "prio_all": 38, "prio_all2": 52} | dict.fromkeys(_MIXES, 20)


def found(folder: Path, name: str, run: str = "") -> tuple[list[str], list[str]]:
    return unexplained(read_case(folder / "slurm" / name, run), PHASES.get(f"{name}{run}", 0) - 60.0)


@pytest.mark.parametrize("name", [name for name in (*ONCE, *TWICE) if name not in _MIXES])
def test_each_start_of_a_recorded_schedule_is_explained(shared_data: Path, name: str) -> None:
    assert found(shared_data, name) == ([], [])


@pytest.mark.ci
@pytest.mark.parametrize("name", _MIXES)
def test_the_starts_of_a_mix_of_200_jobs_are_explained(shared_data: Path, name: str) -> None:
    assert found(shared_data, name) == ([], [])


@pytest.mark.ci
@pytest.mark.parametrize("name", TWICE)
def test_each_start_of_the_second_recording_is_explained(shared_data: Path, name: str) -> None:
    assert found(shared_data, name, "2") == ([], [])


def test_backfill_keeps_a_node_for_the_job_ahead_while_another_job_completes_on_it() -> None:
    """The main loop leaves such a node out, and the job ahead takes another one."""
    site = site_of({"nodes": {"n": {"nodes": "n[1-2]"}}, "partitions": {"p": {"nodes": "ALL", "default": True}}}, "")
    jobs: dict[str, list[Any]] = {
        "submit": [0.0, 0.0],
        "cpus": [1, 1],
        "partition": [None, None],
        "requested_time": [600.0, 600.0],
    }
    for of_loop, expected in ((False, [(1, [1])]), (True, [(0, [1])])):
        scheduler = SlurmScheduler(site, jobs_table(jobs, site))
        scheduler.submit(0, 0.0)
        scheduler.submit(1, 0.0)
        scheduler.completing[:] = np.array([True, False])
        started = scheduler.main(0.0) if of_loop else scheduler.backfill(0.0)
        assert [(one.job, one.nodes) for one in started] == expected
