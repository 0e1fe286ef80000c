"""Starts of a real slurmctld under rules that designed jobs meet, explained one by one by the passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from measurements import FOLDER, MEASUREMENTS
from measuring import CLOCK, measure, measured_case
from recorded import unexplained
from tiers import ci

CASES = {path.name for path in FOLDER.iterdir()}
#: Cases whose passes are compiled for other clusters than all the others.
KERNELS_OF_THEIR_OWN = {"gpus", "gpus_on_nodes", "linear", "linear_tasks"}


@pytest.mark.parametrize("name", [*sorted(CASES - KERNELS_OF_THEIR_OWN), *ci(*sorted(KERNELS_OF_THEIR_OWN))])
def test_each_start_of_a_measured_schedule_is_explained(tmp_path: Path, name: str) -> None:
    case, begin = measured_case(FOLDER / name, tmp_path)
    assert unexplained(case, begin, tolerance=CLOCK) == ([], [])


@pytest.mark.nightly
@pytest.mark.requires("slurm")
@pytest.mark.xdist_group("slurm")
@pytest.mark.parametrize("name", MEASUREMENTS)
def test_each_start_of_a_real_slurmctld_is_explained(tmp_path: Path, name: str) -> None:
    measure(MEASUREMENTS[name], tmp_path / "cluster", tmp_path / "dump")
    case, begin = measured_case(tmp_path / "dump", tmp_path / "site")
    late, elsewhere = unexplained(case, begin, tolerance=CLOCK)
    # Jobs are at most a second of this machine late, in which another one may end.
    assert len(late) + len(elsewhere) <= 0.1 * len(case.order), (late, elsewhere)
