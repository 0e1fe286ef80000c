"""Copies of simulations in mid-replay: exactness, independence, and assumptions in place of the future."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_golden

import hdsim
import hdsim.backends.sim

ACTUAL = {"runtimes": "actual", "arrivals": "actual"}
#: What copies share; the numbers of a counter are in another order only.
SHARED = (
    hdsim.Platform,
    hdsim.Workload,
    types.FunctionType,
    types.BuiltinFunctionType,
    type,
    types.ModuleType,
)


def same(first: hdsim.Result, second: hdsim.Result) -> None:
    for key in first.jobs:
        np.testing.assert_array_equal(first.jobs[key], second.jobs[key], err_msg=key)
    assert {**first.metrics, "jobs_per_second": 0} == {**second.metrics, "jobs_per_second": 0}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.requires("torch")) if name == "learned" else name
        for name in test_golden.RUNS
    ],
)
def test_a_chain_of_forks_leaves_the_same_jobs_csv(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forks = 0

    def simulate(*args: Any, config: Any = None, progress: bool = False, **options: Any) -> hdsim.Result:
        nonlocal forks
        simulation = hdsim.Simulation(*args, **options)
        while all(simulation.step() for _ in range(7 << forks)):
            before, simulation = simulation, simulation.fork(**ACTUAL)
            # The original has no part in the copy.
            before.run_until(before.now + 1000.0)
            forks += 1
        return simulation.run(config=config)

    monkeypatch.setattr(hdsim.backends.sim, "simulate", simulate)
    assert test_golden.digest(name, tmp_path) == json.loads(test_golden.DIGESTS.read_text())[name]
    assert forks > 2
