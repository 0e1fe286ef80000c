"""Power of a site's nodes: caps under slurmctld's passes, nodes that sleep, and changes of electricity in whatif."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_site_replay import make_jobs, make_site, run
from test_whatif import recorded_folder

from hdsim.agents.slurm import SlurmAgent
from hdsim.errors import ConfigError
from hdsim.facility.model import KEYS
from hdsim.platform.model import Platform
from hdsim.results import series
from hdsim.results.result import Result
from hdsim.simulation.simulation import simulate
from hdsim.site.electricity import assumed, electricity_of, with_power
from hdsim.site.model import NodePower, Site
from hdsim.site.plans import read_plan
from hdsim.site.platform import platform_document

_CLASS = "hdsim.power.PowerManagement"
#: 10 W up, 10 W a core that computes, off 1 W; an idle node draws 12 W, a full one 50 W.
_POWER = {"on": 10, "core": 10, "off": 1, "shutdown": 10, "boot": 50}


def site_with_power(**rules: Any) -> Site:
    """Two nodes of four cores with `_POWER`."""
    return make_site(
        nodes={"n": {"nodes": "n[1-2]", "cpus": 4, "cores_per_socket": 4, "memory": 1000, "power": _POWER}}, **rules
    )


def replay(jobs: list[dict[str, Any]], power: dict[str, Any], **rules: Any) -> Result:
    """A checked replay by slurmctld's passes under power management."""
    site = site_with_power(**rules)
    platform = Platform.from_dict(platform_document(site), "test")
    management = {"_target_": _CLASS, **power}
    return simulate(platform, make_jobs(site, jobs), SlurmAgent(site), power=management, check=True)


def test_the_platform_has_the_watts_of_the_site() -> None:
    result = replay([{"cpus": 4}], {"suspend_time": None})
    # One full node for 100 s beside an idle one.
    assert result.energy_joules == pytest.approx(100 * (50 + 12))


def test_a_job_waits_for_power_and_has_the_reason_of_slurm() -> None:
    # A full node draws 50 W and the other one 12 W: two full nodes break 99 W.
    result = replay(
        [{"cpus": 4}, {"at": 10.0, "cpus": 4}, {"at": 20.0, "cpus": 1, "limit": 30.0, "runtime": 20.0}], {"cap": 99}
    )
    # The third job draws 12 + 9.5 + 3 x 2 W beside the full node and ends before the second one has power.
    assert result.starting_time.tolist() == [0, 100, 20]
    assert result.columns["reason"].tolist() == ["None", "PowerNotAvail", "Resources"]
    assert series.power(result).values.max() <= 99


def test_power_is_kept_for_the_first_job_that_lacks_it() -> None:
    # As above, but the third job would still run when the second one has its power, of which too little is left.
    jobs = [{"cpus": 4, "limit": 100.0}, {"at": 10.0, "cpus": 4}, {"at": 20.0, "cpus": 1, "limit": 600.0}]
    result = replay(jobs, {"cap": 65 + 1.5})
    assert result.starting_time.tolist()[1] == 100
    assert result.starting_time.tolist()[2] >= 200


def test_a_cap_that_rises_lets_jobs_start(tmp_path: Path) -> None:
    (tmp_path / "cap.csv").write_text("time,watts\n0,70\n50,100\n")
    result = replay([{"cpus": 4}, {"at": 10.0, "cpus": 4}], {"cap": str(tmp_path / "cap.csv")})
    assert result.starting_time.tolist() == [0, 50]


def test_jobs_above_a_cap_never_run() -> None:
    result = replay([{"cpus": 1}, {"cpus": 8}], {"cap": 70})
    assert result.columns["reason"].tolist() == ["None", "PowerNotAvail"]


@pytest.mark.parametrize("seed", range(4))
def test_the_power_never_exceeds_a_cap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = [
        {"at": float(at), "cpus": int(cpus), "runtime": float(seconds), "limit": float(seconds * factor)}
        for at, cpus, seconds, factor in zip(
            np.sort(rng.integers(0, 600, 30)), rng.integers(1, 6, 30), rng.integers(5, 90, 30), rng.integers(1, 4, 30),
            strict=True,
        )
    ]  # fmt: skip
    result = replay(jobs, {"cap": 80, "suspend_time": 30 if seed % 2 else None})
    assert series.power(result).values.max() <= 80 * (1 + 1e-9)
    assert not np.isnan(result.starting_time).any()


def test_nodes_that_are_up_are_taken_before_others_of_their_weight() -> None:
    # The first job has n1, so that n2 goes down.
    jobs = [{"cpus": 2, "runtime": 300.0}, {"at": 200.0, "cpus": 1, "name": "a"}, {"at": 210.0, "cpus": 2}]
    result = replay(jobs, {"suspend_time": 60})
    assert result.columns["nodes"].tolist() == ["n1", "n1", "n[1-2]"]
    # Node 2 boots for 50 s.
    assert result.starting_time.tolist() == [0, 200, 260]
    # Of nodes of one weight the first one is off, and the second one up.
    jobs = [{"cpus": 4, "runtime": 20.0}, {"cpus": 4, "runtime": 200.0}, {"at": 190.0, "cpus": 1, "runtime": 5.0},
            {"at": 205.0, "cpus": 1, "runtime": 10.0}]  # fmt: skip
    result = replay(jobs, {"suspend_time": 60})
    assert result.columns["nodes"].tolist() == ["n1", "n2", "n1", "n2"]


def test_caps_are_refused_beside_preemption() -> None:
    qos = {"lo": {}, "hi": {"preempt": ["lo"], "priority": 1}}
    with pytest.raises(ConfigError, match=r"power.cap: expected no hard cap with preemption of the jobs of a site"):
        replay([{"qos": "lo"}], {"cap": 99}, preemption={"type": "qos", "mode": "CANCEL"}, qos=qos)


def test_changes_of_electricity_are_keys_of_runs() -> None:
    read = partial(electricity_of, keys={"power": ("cap", "cap_kind", "exclude", "suspend_time"), "facility": KEYS})
    rules, found = read(
        [
            "power.suspend=600",
            "power.cap=0.8",
            "power.price=p.csv",
            "facility.pue=1.3",
            "nodes.n+=2",
            "qos.a.priority=3",
        ]
    )
    assert rules == ["nodes.n+=2", "qos.a.priority=3"]
    assert found.power == {"suspend_time": 600, "cap": 0.8}
    assert found.facility == {"price": "p.csv", "pue": 1.3}
    with pytest.raises(ConfigError, match=r"power\.cap=: expected a change such as power\.cap=0\.8"):
        read(["power.cap="])
    for change in ("power.cap_kind=soft", "power.exclude=[n1]"):
        with pytest.raises(ConfigError, match=r"expected power.cap or power.suspend beside it"):
            read(["power.price=0.1", change])
    for changes, told in (
        (["power.capp=0.9"], r"power\.capp: unknown key \(did you mean 'power\.cap'\?\)"),
        (["power.cap.machine=0.9"], r"power\.cap\.machine: unknown key"),
        (["facility.prize=0.9"], r"facility\.prize: unknown key \(did you mean 'facility\.price'\?\)"),
        (["power.cap=0.9", "power.cap=0.8"], r"power\.cap=0\.8: expected one value of power\.cap, got a second one"),
        (["qos.a.priority=3", "qos.a.priority=4"], r"expected one value of qos\.a\.priority"),
    ):
        with pytest.raises(ConfigError, match=told):
            read(changes)
    assert read(["nodes.n+=2", "nodes.n+=3"])[0] == ["nodes.n+=2", "nodes.n+=3"]
    assert read(["power.price=1_000"])[1].facility == {"price": "1_000"}


def test_a_site_without_watts_has_no_caps_and_a_warning_instead_of_costs(caplog: pytest.LogCaptureFixture) -> None:
    site = make_site()
    platform, jobs = Platform.from_dict(platform_document(site), "test"), make_jobs(site, [{"cpus": 4}])
    with pytest.raises(ConfigError, match=r"power.cap: expected nodes that draw power, those of site draw none"):
        simulate(platform, jobs, SlurmAgent(site), power={"_target_": _CLASS, "cap": 0.5})
    assert simulate(platform, jobs, SlurmAgent(site), facility={"price": 0.2}).metrics["cost_eur"] == 0
    assert "no core or node of site draws power: energy, costs and emissions are 0" in caplog.text


def test_the_power_of_nodes_is_assumed_where_it_is_not_known() -> None:
    site = make_site()
    assert "of nodes n assumed: 100 W up, beside it 5 W a core that computes" in assumed(site)
    assert with_power(site).nodes["n"].power == NodePower()
    assert assumed(site_with_power()) == "" and with_power(site_with_power()) == site_with_power()


def test_energy_cost_and_boots_stand_beside_the_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded_folder(tmp_path)
    Path("prices.csv").write_text("time,price\n2026-03-02T00:00,0.1\n2026-03-02T10:30,0.3\n2026-04-02T00:00,0.1\n")
    capsys.readouterr()
    run("whatif", "site", "power.price=prices.csv")
    told = capsys.readouterr().out
    assert "power: of nodes n[1-2] assumed: 100 W up" in told and "cost (EUR)" in told and "changed" not in told
    run("whatif", "site", "power.cap=235", "power.suspend=60", "power.price=prices.csv", "--html", "answer.html")
    told = capsys.readouterr().out
    lines = {name: next(line for line in told.splitlines() if line.startswith(name)).split() for name in (
        "energy (kWh)", "peak power (kW)", "boots", "cost (EUR)"
    )}  # fmt: skip
    assert float(lines["peak power (kW)"][4]) <= 0.235 < float(lines["peak power (kW)"][3])
    assert float(lines["boots"][2]) >= 0 and float(lines["cost (EUR)"][2]) > 0
    page = Path("answer.html").read_text(encoding="utf-8")
    assert "Electricity" in page and "cost (EUR)" in page and "power.cap=235" in page


def planned(folder: Path, jobs: str, cap: Any) -> Result:
    """A checked replay of jobs on four nodes of eight cores, of which 16 draw 560 W, under a cap."""
    path = folder / "plan.yaml"
    nodes = '{n: {nodes: "n[1-4]", cpus: 8, cores_per_socket: 8, power: {on: 100, core: 10}}}'
    path.write_text(f"nodes: {nodes}\njobs:{jobs}", encoding="utf-8")
    site, workload = read_plan(path)
    platform = Platform.from_dict(platform_document(site), "plan")
    return simulate(platform, workload, SlurmAgent(site), power={"_target_": _CLASS, "cap": cap}, check=True)


def test_jobs_behind_several_that_never_get_power_start(tmp_path: Path) -> None:
    """The cap falls before b, c and d have cores, each of which leaves none for e in a pass of its own."""
    (tmp_path / "cap.csv").write_text("time,watts\n0,700\n100,600\n")
    jobs = """
- {id: a, cpus: 16, runtime: 200, time: 5min}
- {id: b, cpus: 24, runtime: 1h, time: 1h, at: 10}
- {id: c, cpus: 25, runtime: 1h, time: 1h, at: 10}
- {id: d, cpus: 26, runtime: 1h, time: 1h, at: 10}
- {id: e, cpus: 14, runtime: 100, time: 5min, at: 20}
"""
    result = planned(tmp_path, jobs, str(tmp_path / "cap.csv"))
    assert np.isnan(result.starting_time).tolist() == [False, True, True, True, False]
    assert result.starting_time[-1] < 300
    assert result.columns["reason"].tolist()[1:4] == ["PowerNotAvail"] * 3
    assert result.metrics["seconds_above_cap"] == 0


def test_jobs_that_no_cap_lets_run_end_the_wait_of_those_that_depend_on_them(tmp_path: Path) -> None:
    """Nothing else happens when b and e are turned away."""
    jobs = """
- {id: a, cpus: 8, runtime: 100, time: 5min}
- {id: b, cpus: 30, runtime: 1h, time: 1h, at: 200}
- {id: c, cpus: 8, runtime: 100, time: 5min, dependency: "afterany:b"}
- {id: d, cpus: 8, runtime: 100, time: 5min, dependency: "afterok:b"}
- {id: e, cpus: 30, runtime: 1h, time: 1h, at: 900}
"""
    result = planned(tmp_path, jobs, 600)
    found = dict(zip(result.workload.job_id.tolist(), result.columns["reason"].tolist(), strict=True))
    assert found == {
        "a": "None",
        "b": "PowerNotAvail",
        "c": "Dependency",
        "d": "DependencyNeverSatisfied",
        "e": "PowerNotAvail",
    }
    starts = dict(zip(result.workload.job_id.tolist(), result.starting_time.tolist(), strict=True))
    assert 200 <= starts["c"] < 300
