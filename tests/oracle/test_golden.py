"""Configurations whose jobs.csv is known byte by byte: every mode of the engine, every family of models and agents.

The digests catch a change of results that nobody intended; what is right is decided by the oracles of the other tests.
After an intended change: ``python tests/oracle/test_golden.py`` writes them anew, and the commit says why.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

import pytest
from tiers import ci

from hdsim.cli import main

# One worker of pytest compiles the kernels of all of them, first of all (conftest.py).
pytestmark = pytest.mark.xdist_group("golden")

DIGESTS = Path(__file__).parents[1] / "golden" / "jobs_csv.json"

GAIA = "platform=gaia workload.jobs=250"
EQUAL = "platform=homogeneous_256 workload.path=lublin_16000 workload.jobs=400"
ONE_BY_ONE = f"{EQUAL} backend.batch_events=false"
BSP = "platform=sixteen_nodes workload.memory_bandwidth=trace workload.jobs=40"
FAILURES = "platform=eight_nodes workload.path=even_1000 workload.jobs=300 failures.mtbf=40h failures.mttr=2h"
DENSE = "workload.arrival_factor=0.2"

RUNS = {
    "fcfs": f"{EQUAL} agent=fcfs",
    "f1": f"{EQUAL} agent=f1",
    "wfp3": f"{EQUAL} agent=wfp3",
    "easy": f"{EQUAL} agent=easy",
    "easy_sjbf": f"{EQUAL} agent=easy-sjbf",
    "conservative": f"{EQUAL} agent=conservative-saf",
    "rlscheduler": f"{ONE_BY_ONE} agent.backfill=rlscheduler agent.job_policy=f4 agent.commit_head=true",
    "learned": f"{ONE_BY_ONE} agent=ppo agent.checkpoint=rlscheduler-1 env=rlscheduler",
    "killed": f"{EQUAL} agent=easy backend.kill_at_walltime=true workload.runtime=hdeeprm",
    "one_by_one": f"{GAIA} agent=easy backend.batch_events=false",
    "gaia_none": f"{GAIA} agent=shortest-high_gflops",
    "gaia_threshold": f"{GAIA} agent=easy contention=threshold {DENSE}",
    "gaia_smoothstep": f"{GAIA} agent=smallest-high_mem contention=smoothstep {DENSE}",
    "gaia_fair_share": f"{GAIA} agent=first-high_mem_bw contention=fair_share {DENSE}",
    "gaia_conservative": f"{GAIA} agent=conservative-fcfs-low_power {DENSE} workload.jobs=100",
    "gaia_random": f"{GAIA} agent=random-random seed=7",
    "gaia_imitation": f"{GAIA} agent=imitation agent.checkpoint=gaia_saf-1",
    "ricc": f"platform=ricc workload.path=lublin_16000 workload.jobs=300 agent=easy-saf-high_cores {DENSE}",
    "bsp_pack": f"{BSP} workload.path=memory_bound agent.core_policy=pack contention=fair_share network=fluid",
    "bsp_spread": f"{BSP} workload.path=communication_bound agent=fcfs-spread contention=threshold network=fluid",
    "bsp_rounds": f"{BSP} workload.path=communication_bound agent=easy network=fluid network.sharing=rounds",
    "failures": f"{FAILURES} failures=exponential agent=easy",
    "checkpoints": f"{FAILURES} failures=weibull agent=fcfs contention=threshold failures.recovery=checkpoint "
    "failures.checkpoint_interval=600 failures.max_restarts=3",
    "accelerated": "platform=accelerated workload.jobs=300 agent=easy-saf",
}
#: Runs whose agents are networks of torch.
WITH_TORCH = {"learned", "gaia_imitation"}
#: Runs that compile for a quarter of a minute what no other test of every change needs.
KERNELS_OF_THEIR_OWN = {"one_by_one", "gaia_conservative"}


def digest(name: str, folder: Path) -> str:
    """SHA-256 of the jobs.csv of a run."""
    with pytest.raises(SystemExit) as done:
        main(["run", *RUNS[name].split(), f"hydra.run.dir={folder / name}"])
    assert done.value.code == 0, name
    return hashlib.sha256((folder / name / "jobs.csv").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "name",
    [
        *sorted(RUNS.keys() - WITH_TORCH - KERNELS_OF_THEIR_OWN),
        *ci(*sorted(KERNELS_OF_THEIR_OWN)),
        *(pytest.param(name, marks=pytest.mark.requires("torch")) for name in sorted(WITH_TORCH)),
    ],
)
def test_jobs_csv_is_the_same_byte_by_byte(name: str, tmp_path: Path) -> None:
    assert digest(name, tmp_path) == json.loads(DIGESTS.read_text())[name]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        found = {name: digest(name, Path(scratch)) for name in RUNS}
    DIGESTS.parent.mkdir(exist_ok=True)
    DIGESTS.write_text(json.dumps(found, indent=2) + "\n")
