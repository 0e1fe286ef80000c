"""Nodes that are kept up for jobs to come: a fixed number, and as many as the past of the replay predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_node_power import check_energy, jobs, sleeping, spans, suspend

from hdsim import Workload, simulate
from hdsim.errors import ConfigError
from hdsim.platform.model import Platform
from hdsim.report import panels
from hdsim.report.charts import Lines
from hdsim.results.result import Result
from hdsim.results.run_directory.reader import read as read_run

#: 20 W idle beside its cores, 1 W off, boots in 100 s.
STATES = {
    "on": {"watts": 20},
    "idle": {"watts": 20},
    "going_down": {"watts": 20, "seconds": 10},
    "off": {"watts": 1},
    "booting": {"watts": 20, "seconds": 100},
}


def predictive(**keys: Any) -> dict[str, Any]:
    return {"_target_": "hdsim.power.PredictiveSuspend", **keys}


def regular(gaps: list[float], cores: int = 1) -> Workload:
    """Jobs of 10 s, each submitted some seconds after the one before."""
    return jobs(*((float(at), 10.0, cores) for at in np.cumsum([0.0, *gaps])))


def replay(workload: Workload, nodes: int = 1, **keys: Any) -> Result:
    platform = Platform.homogeneous(nodes, 1, power_per_core=1.0, states=STATES)
    return simulate(platform, workload, "easy", power=predictive(**keys), check=True)


def test_spare_nodes_stay_up_and_are_booted_ahead() -> None:
    workload = jobs((0, 10, 2), (500, 1000, 2), (1000, 10, 2))
    result = simulate(sleeping(3), workload, "easy", power=suspend(suspend_time=50, spare=1), check=True)
    # One node is up when the second job comes, and another one boots then, which is up when the third one does.
    assert result.starting_time.tolist() == [0, 500, 1000]
    boots = [begin for _, state, begin, _ in spans(result) if state == "booting"]
    assert boots == [500, 1000]
    check_energy(result)


def test_no_spare_nodes_are_the_time_out_alone() -> None:
    workload = jobs((0, 10, 2), (500, 1000, 2), (1000, 10, 2))
    results = [
        simulate(sleeping(3), workload, "easy", power=suspend(suspend_time=50, **keys)) for keys in ({}, {"spare": 0})
    ]
    assert spans(results[0]) == spans(results[1])
    assert results[0].starting_time.tolist() == results[1].starting_time.tolist() == [0, 600, 1100]


def test_before_there_is_a_past_a_node_goes_down_when_idling_costs_as_much_as_a_boot() -> None:
    # Going down and booting cost 110 s x 19 W; idle, with its core at 5 %, the node draws 19.05 W more than off.
    begin = next(each for each in spans(replay(regular([5000.0]))) if each[1] == "going_down")[2]
    assert begin == pytest.approx(10 + 110 * 19 / 19.05)


def test_a_node_stays_up_for_gaps_that_it_has_seen() -> None:
    # At each gap of 300 s the node has gone down at first, and stays up when it has seen some.
    result = replay(regular([300.0] * 30), wait_watts=1000)
    waits = result.starting_time - result.workload.submission_time
    assert waits[1] > 0 and (waits[10:] == 0).all()
    # And goes down at once where nobody comes for a day, for which waiting is worth little.
    result = replay(regular([86_400.0] * 20), wait_watts=1e-3)
    downs = [begin for _, state, begin, _ in spans(result) if state == "going_down"]
    ends = result.finish_time[: len(downs)]
    assert (np.array(downs[10:]) - ends[10:] < downs[0] - ends[0]).all()


def test_the_future_changes_nothing_before_it() -> None:
    rng = np.random.default_rng(3)
    gaps = rng.exponential(200, 80).tolist()
    begins = []
    for later in (50.0, 20_000.0):
        result = replay(regular([*gaps, later, later]), nodes=3)
        changed = float(np.sum(gaps))
        begins.append([each[:3] for each in spans(result) if each[2] < changed])
    assert begins[0] == begins[1] and begins[0]


def test_the_same_is_predicted_again() -> None:
    workload = regular(np.random.default_rng(1).exponential(300, 100).tolist(), cores=2)
    first, second = (replay(workload, nodes=4) for _ in range(2))
    assert spans(first) == spans(second) and first.energy_joules == second.energy_joules
    check_energy(first)


@pytest.mark.parametrize(
    ("power", "message"),
    [
        (predictive(wait_watts=0), r"power.wait_watts"),
        (predictive(memory="soon"), r"power.memory"),
        (suspend(suspend_time=1, spare=-1), r"power.spare"),
    ],
)
def test_what_is_refused(power: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(sleeping(), jobs((0, 1, 1)), "easy", power=power)


def test_the_report_has_the_nodes_by_state(tmp_path: Path) -> None:
    result = replay(regular([5000.0, 100.0]), nodes=2)
    result.save(tmp_path / "run")
    panel = panels.node_states(read_run(tmp_path / "run"))
    assert panel is not None and isinstance(panel.views[0].chart, Lines)
    assert [line.label for line in panel.views[0].chart.lines] == ["on", "idle", "going down", "off", "booting"]
    usual = simulate(sleeping(), jobs((0, 1, 1)), "easy")
    usual.save(tmp_path / "usual")
    assert panels.node_states(read_run(tmp_path / "usual")) is None
