"""Costs by job, user, account and hour, against a slow reference that looks at every node at every instant."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_node_power import sleeping, suspend

import hdsim
from hdsim.errors import ConfigError
from hdsim.results.costs import QUANTITIES, Costs
from hdsim.results.result import Result
from hdsim.results.run_directory.reader import read

BEGIN = "2026-03-28T22:10:00+01:00"
CURVES = {"pue": [[0.0, 2.0], [0.4, 1.5], [1.0, 1.2]], "efficiency": [[0.1, 0.8], [0.5, 0.96], [1.0, 0.93]]}
SERIES = {
    "price": {"mean": 0.1, "daily": 0.5, "weather": 1.0, "step": "15min", "floor": -3.0},
    "carbon": {"mean": 300, "daily": 0.3, "weather": 0.3, "step": "30min", "floor": 0.0},
}
FULL = {"begin": BEGIN, "timezone": "Europe/Berlin", **CURVES, **SERIES}


def jobs(seed: int, count: int = 60) -> hdsim.Workload:
    rng = np.random.default_rng(seed)
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.uniform(0, 40_000, count)).round(),
        runtime=rng.exponential(3000, count).round() + 1,
        requested_cores=rng.integers(1, 8, count),
        requested_time=40_000,
        user=rng.integers(0, 4, count),
        group=rng.integers(-1, 2, count),
        names={"user": {0: "ann", 1: "bob", 2: "eve", 3: "zoe"}},
    )


def replayed(seed: int, agent: str = "easy", **options: Any) -> Result:
    machine = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4)
    return hdsim.simulate(options.pop("platform", machine), jobs(seed), agent, facility=FULL, **options)


def costs_of(result: Result) -> Costs:
    assert result.costs is not None
    return result.costs


def reference(result: Result) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Amounts of each job, of none and of all, by looking at each node between any two changes; see `QUANTITIES`."""
    facility, machine, held = costs_of(result).facility, result.platform, result.segments
    end = float(np.nanmax(result.finish_time))
    series = [one for one in (facility.price, facility.carbon) if one is not None]
    changes = [held.begin, held.end, *(one.begins for one in series), [0.0, end]]
    if result.outages is not None:
        changes += [result.outages.down, result.outages.up]
    times = np.unique(np.concatenate(changes))
    times = times[(times >= 0) & (times <= end)]
    jobs, idle = np.zeros((4, len(result.state))), np.zeros(4)
    owner = machine.core_processor
    core_watts = machine.power[owner]
    for begin, until in itertools.pairwise(times):
        middle = (begin + until) / 2
        user = np.full(machine.n_cores, -1)
        for row in np.flatnonzero((held.begin <= begin) & (held.end >= until)):
            first = int(held.sizes[:row].sum())
            user[held.cores[first : first + held.sizes[row]]] = held.job[row]
        down = np.zeros(machine.n_nodes, bool)
        if result.outages is not None:
            for node, gone, back in zip(result.outages.node, result.outages.down, result.outages.up, strict=True):
                down[node] |= gone <= begin and back >= until
        watts = np.where(user >= 0, core_watts, 0.0)
        for core in np.flatnonzero(user < 0):
            beside = bool((user[owner == owner[core]] >= 0).any())
            watts[core] = core_watts[core] * (0.25 if beside else 0.05)
            if down[machine.processor_node[owner[core]]]:
                watts[core] = 0.0
        total = watts.sum()
        load = total / (machine.power @ machine.cores_per_processor)
        (at, pue), (places, efficiency) = (np.array(CURVES[key]).T for key in ("pue", "efficiency"))
        factor = np.interp(load, at, pue) / np.interp(load, places, efficiency)
        assert facility.price is not None and facility.carbon is not None
        price, carbon = (float(one.at(np.array([middle]))[0]) for one in (facility.price, facility.carbon))
        weights = np.array([1, factor, factor * price, factor * carbon]) * (until - begin) / 3.6e6
        for node in range(machine.n_nodes):
            cores = np.flatnonzero(machine.processor_node[owner] == node)
            busy = cores[user[cores] >= 0]
            rest = watts[cores].sum() - watts[busy].sum()
            if not len(busy):
                idle += rest * weights
            for core in busy:
                jobs[:, user[core]] += watts[core] * (1 + rest / watts[busy].sum()) * weights
    return jobs, idle, jobs.sum(axis=1) + idle


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("agent", ["easy", "fcfs-spread"])
def test_amounts_are_those_of_the_reference(seed: int, agent: str) -> None:
    result = replayed(seed, agent)
    costs = costs_of(result)
    of_jobs, idle, total = reference(result)
    assert costs.jobs == pytest.approx(of_jobs, rel=1e-9)
    assert costs.idle == pytest.approx(idle, rel=1e-9)
    assert costs.total == pytest.approx(total, rel=1e-9)
    assert costs.total[0] == pytest.approx(result.energy_joules / 3.6e6, rel=1e-12)
    assert costs.jobs[0] * 3.6e6 == pytest.approx(reference(result)[0][0] * 3.6e6)
    assert result.metrics["cost_eur"] == pytest.approx(total[2])
    assert result.metrics["effective_pue"] == pytest.approx(total[1] / total[0])


@pytest.mark.parametrize("machine", ["teaching", "accelerated"])
def test_amounts_on_nodes_of_several_processors(machine: str) -> None:
    result = hdsim.simulate(machine, jobs(7, 40), "easy", facility=FULL)
    costs = costs_of(result)
    of_jobs, idle, total = reference(result)
    assert costs.jobs == pytest.approx(of_jobs, rel=1e-9)
    assert costs.total == pytest.approx(total, rel=1e-9)
    assert costs.idle == pytest.approx(idle, rel=1e-9)


def test_amounts_with_nodes_that_fail() -> None:
    failures = {"_target_": "hdsim.failures.Exponential", "mtbf": "4h", "mttr": "30min"}
    result = replayed(5, failures=failures)
    assert result.metrics["restarts"] > 0
    of_jobs, idle, total = reference(result)
    assert costs_of(result).total == pytest.approx(total, rel=1e-9)
    assert costs_of(result).jobs == pytest.approx(of_jobs, rel=1e-9)
    assert costs_of(result).idle == pytest.approx(idle, rel=1e-9)


def test_shares_by_hand() -> None:
    # A node of 4 cores of 10 W: job 0 holds 1 core for 200 s, job 1 holds 2 cores from 100 s to 200 s. Idle cores
    # take 2.5 W beside busy ones.
    machine = hdsim.Platform.homogeneous(nodes=2, cores_per_node=4, power_per_core=10.0)
    work = hdsim.Workload.from_columns(submission_time=[0, 100], runtime=[200, 100], requested_cores=[1, 2])
    result = hdsim.simulate(machine, work, "fcfs-pack", facility={"price": 3.6})
    costs = costs_of(result)
    assert costs.jobs[0] * 3.6e6 == pytest.approx([100 * 17.5 + 100 * (10 + 2.5 / 3), 100 * (20 + 2 * 2.5 / 3)])
    assert costs.idle[0] * 3.6e6 == pytest.approx(200 * 4 * 0.5)
    assert result.jobs["cost_eur"] == pytest.approx(costs.jobs[0] * 3.6)
    assert costs.known == ("energy_kwh", "facility_kwh", "cost_eur")
    assert "carbon_grams" not in result.metrics and "carbon_grams" not in result.jobs
    assert result.metrics["facility_peak_watts"] == 30 + 2.5 + 2.0


def test_constant_series_are_products() -> None:
    result = hdsim.simulate("teaching", jobs(1), "easy", facility={"pue": 1.4, "efficiency": 0.7, "carbon": 100})
    kwh = result.energy_joules / 3.6e6
    assert result.metrics["facility_energy_kwh"] == pytest.approx(2 * kwh)
    assert result.metrics["carbon_grams"] == pytest.approx(200 * kwh)


def test_an_outside_temperature_rules_the_cooling(tmp_path: Path) -> None:
    file = tmp_path / "outside.csv"
    file.write_text("time,temperature\n2026-03-28T21:10Z,10\n2026-03-28T21:20Z,30\n2026-03-28T23:10Z,-5\n")
    machine = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1, power_per_core=100.0)
    work = hdsim.Workload.from_columns(submission_time=[0], runtime=[1200], requested_cores=[1])
    settings = {"begin": BEGIN, "temperature": str(file), "pue_by_temperature": [[0, 1.1], [20, 1.3], [40, 1.9]]}
    result = hdsim.simulate(machine, work, "fcfs", facility=settings)
    assert result.metrics["facility_energy_kwh"] == pytest.approx(0.1 / 6 * (1.2 + 1.6))
    assert result.metrics["facility_peak_watts"] == pytest.approx(160)


def test_hours_are_those_of_the_clock_and_add_up() -> None:
    result = replayed(0)
    costs = costs_of(result)
    hours = costs.hours()
    assert hours.amounts.sum(axis=1) == pytest.approx(costs.total)
    assert hours.dates[:2] == ["2026-03-28T22:10:00+01:00", "2026-03-28T23:00:00+01:00"]
    # The clock passes over the hour from 2:00 to 3:00.
    assert [text[11:] for text in hours.dates[3:5]] == ["01:00:00+01:00", "03:00:00+02:00"]
    assert hours.peak_watts.max() == result.metrics["facility_peak_watts"]
    assert costs.facility.price is not None
    quarters = costs.facility.price.at(hours.begins[5] + np.array([0.0, 900, 1800, 2700]))
    assert hours.price[5] == pytest.approx(quarters.mean())


def rows(path: Path) -> Iterable[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_tables_add_up_to_the_total(tmp_path: Path) -> None:
    result = replayed(2)
    result.save(tmp_path / "run")
    owners = rows(tmp_path / "run/costs_by_owner.csv")
    (total,) = (row for row in owners if row["by"] == "total")
    for name in QUANTITIES:
        idle = sum(float(row[name]) for row in owners if row["by"] == "idle")
        paid = sum(float(row[name]) for row in rows(tmp_path / "run/costs_by_job.csv"))
        by_hour = sum(float(row[name]) for row in rows(tmp_path / "run/costs_by_hour.csv"))
        for by in ("user", "account"):
            of_owners = sum(float(row[name]) for row in owners if row["by"] == by)
            assert of_owners == pytest.approx(paid, rel=1e-7)
        assert paid + idle == pytest.approx(float(total[name]), rel=1e-7)
        assert by_hour == pytest.approx(float(total[name]), rel=1e-7)
    assert [row["name"] for row in owners if row["by"] == "user"] == ["ann", "bob", "eve", "zoe"]
    assert [row["name"] for row in owners if row["by"] == "account"] == ["", "0", "1"]
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    assert metrics["carbon_grams"] == pytest.approx(float(total["carbon_grams"]), rel=1e-8)
    assert 0 < metrics["idle_energy_share"] < 1
    assert read(tmp_path / "run").metrics["cost_eur"] == pytest.approx(result.metrics["cost_eur"])


def test_peaks_of_users_are_those_of_their_cores() -> None:
    result = replayed(3)
    costs, held = costs_of(result), result.segments
    users = result.workload.user[held.job]
    watts = held.sizes * float(result.platform.power[0])
    for owner in costs.owners():
        if owner.by == "user":
            own = (np.array(["ann", "bob", "eve", "zoe"])[users]) == owner.name
            at = [float(watts[own & (held.begin <= t) & (held.end > t)].sum()) for t in held.begin[own]]
            assert owner.peak_watts == pytest.approx(max(at))
    assert costs.job_peaks == pytest.approx(result.workload.requested_cores * float(result.platform.power[0]))


def test_after_the_end_of_a_series_nothing_is_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "p.csv"
    file.write_text("time,price\n2026-03-28T21:10Z,1\n2026-03-28T22:10Z,2\n")
    machine = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1, power_per_core=100.0)
    work = hdsim.Workload.from_columns(submission_time=[0, 7100], runtime=[3600, 7200], requested_cores=[1, 1])
    result = hdsim.simulate(machine, work, "fcfs", facility={"begin": BEGIN, "price": str(file)})
    assert math.isnan(result.metrics["cost_eur"]) and result.metrics["facility_energy_kwh"] > 0
    assert result.jobs["cost_eur"][0] == pytest.approx(0.1)
    assert math.isnan(result.jobs["cost_eur"][1])
    told = [one.message for one in caplog.records if "covers the run" in one.message]
    assert len(told) == 1 and "what depends on it is null" in told[0]


def test_a_facility_changes_no_schedule_and_a_run_without_one_has_no_costs() -> None:
    plain = hdsim.simulate(hdsim.Platform.homogeneous(nodes=4, cores_per_node=4), jobs(0), "easy")
    assert plain.costs is None and "energy_kwh" not in plain.jobs and "facility" not in plain.config
    assert replayed(0).starting_time.tolist() == plain.starting_time.tolist()


def test_nodes_of_quantities_are_refused() -> None:
    machine = hdsim.Platform.homogeneous(nodes=2, cores_per_node=4).of_kind("quantities")
    with pytest.raises(ConfigError, match="facility: expected a platform of kind cores"):
        hdsim.simulate(machine, jobs(0), "greedy", facility={"price": 1})


class Watching(hdsim.Agent):
    """Starts jobs in order and notes what it sees of the facility."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float, float]] = []

    def decide(self, cluster: Any) -> None:
        outlook = cluster.facility
        self.seen.append((cluster.now, outlook.price.value, outlook.factor(1000.0)))
        for job in list(cluster.queue):
            if cluster.fits(job):
                cluster.start(job)


def test_schedulers_see_the_present() -> None:
    agent = Watching()
    machine = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4)
    result = hdsim.simulate(machine, jobs(4), agent, facility=FULL)
    times, prices, factors = np.array(agent.seen).T
    facility = costs_of(result).facility
    assert facility.price is not None
    assert prices.tolist() == facility.price.at(times).tolist()
    assert factors == pytest.approx(facility.factor(times, np.full(len(times), 1000.0)))
    simulation = hdsim.Simulation(machine, jobs(4), "fcfs", facility=FULL, check=True)
    simulation.run_until(5000.0)
    copy = simulation.fork()
    copy.run_until(9000.0)
    assert simulation.cluster.facility.price.value == facility.price.at(np.array([5000.0]))[0]
    assert copy.cluster.facility.price.value == facility.price.at(np.array([9000.0]))[0]


@pytest.mark.ci
def test_nodes_that_sleep_are_nobodys_and_the_total_is_the_energy() -> None:
    work = jobs(6, 30)
    machine = sleeping(nodes=8)
    result = hdsim.simulate(machine, work, "easy", power=suspend(suspend_time=200), facility=FULL)
    assert result.metrics["boots"] > 0
    costs = costs_of(result)
    assert costs.total[0] * 3.6e6 == pytest.approx(result.energy_joules, rel=1e-9)
    # The rest of nodes, of all states, is that of the machine without what busy nodes draw.
    own = result.jobs["consumed_energy"]
    assert (costs.jobs[0] * 3.6e6 >= own * (1 - 1e-9)).all()
    assert costs.idle[0] * 3.6e6 == pytest.approx(result.energy_joules - costs.jobs[0].sum() * 3.6e6)
    assert (costs.idle > 0).all()


def test_a_run_of_centuries_has_costs_but_none_by_hour(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its local times end with year 9999."""
    machine = hdsim.Platform.homogeneous(nodes=1, cores_per_node=1)
    work = hdsim.Workload.from_columns(submission_time=[0, 9e11], runtime=[10, 10], requested_cores=[1, 1])
    result = hdsim.simulate(machine, work, "fcfs", facility={"begin": BEGIN, "price": 0.2})
    run = result.save(tmp_path / "run")
    assert (run / "costs_by_owner.csv").is_file() and not (run / "costs_by_hour.csv").exists()
    assert "costs_by_hour.csv is left out: the run is longer than 100 years" in caplog.text
    assert costs_of(result).facility.dates.local(9e11).year == 9999
