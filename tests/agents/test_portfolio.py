"""The portfolio: its choices against replays of the slow reference, and that it knows only the past."""

import bisect
import copy
import itertools
import math
from typing import Any

import numpy as np
import pytest
import reference as ref

import hdsim
from hdsim.agents import portfolio
from hdsim.agents.portfolio import CANDIDATES, ENOUGH, Portfolio
from hdsim.errors import ConfigError

CORES = 16
WEEK = 5000.0
PERIOD, WINDOW = 16, 32
EACH = {"period": PERIOD, "window": WINDOW, "trusted": 2, "margin": 0, "scenarios": 0}
ORDERS = ("fcfs", "sjf", "saf", "smallest")
SCHEDULERS = {"none": ref.strict, "easy": ref.easy}


def workload_of(seed: int, number: int = 100) -> hdsim.Workload:
    rng = np.random.default_rng(seed)
    runtime = rng.integers(1, 1200, number)
    return hdsim.Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 3 * WEEK, number)),
        runtime=runtime,
        requested_time=runtime + rng.integers(0, 900, number),
        requested_cores=rng.integers(1, CORES + 1, number),
    )


def platform() -> hdsim.Platform:
    return hdsim.Platform.homogeneous(nodes=CORES, cores_per_node=1)


class Noting(Portfolio):
    """Notes what each order would have cost at each choice, by the slow reference, and the choice."""

    def begin(self, cluster: Any) -> None:
        super().begin(cluster)
        self.choices: list[tuple[int, str]] = []
        self.expected: list[str] = []

    def _choose(self, cluster: Any) -> None:
        assert self.rules is not None
        before = self.rules.order.name
        rng = copy.deepcopy(cluster.rng)
        super()._choose(cluster)
        assert self.chosen == self.rules.order.name
        self.choices.append((self._came, self.rules.order.name))
        past = self.past(cluster, rng)
        costs = {order: self.cost(past, order) for order in ORDERS if len(past) >= ENOUGH}
        futures = self.futures(cluster, rng) if costs else []
        for order, jobs in itertools.product(costs, futures):
            costs[order] *= self.cost(jobs, order) ** (1 / len(futures))
        if futures:
            costs = {order: math.sqrt(cost) for order, cost in costs.items()}
        keeps = not costs or costs[before] == min(costs.values())
        best = before if keeps else min(costs, key=lambda order: costs[order])
        for trusted in sorted(ORDERS[:2], key=lambda order: (costs[order], order != before) if costs else 0)[:1]:
            if costs and costs[trusted] <= costs[best] * (1 + self._margin):
                best = trusted
        self.expected.append(best)

    def cost(self, past: list[ref.Job], order: str) -> float:
        assert self.rules is not None
        starts = ref.replay_counts(past, CORES, SCHEDULERS[self.rules.backfill], ref.SCORES[order])
        found = [ref.bounded_slowdown(job, start, job.runtime) for job, start in zip(past, starts, strict=True)]
        return float(np.mean(found))

    def past(self, cluster: Any, rng: np.random.Generator) -> list[ref.Job]:
        jobs, now = cluster.workload, cluster.now
        begin, end, requested = cluster.starting_time, cluster.finish_time, jobs.requested_time.tolist()
        dates = jobs.submission_time[jobs.submission_time <= now]
        since = float(dates[-WINDOW]) if len(dates) > WINDOW else 0.0
        ended = sorted((requested[job], end[job], job) for job in range(len(jobs)) if end[job] <= now)
        factors = [(each, (finish - begin[job]) / each) for each, finish, job in ended]
        known = [job for job in range(len(dates)) if not end[job] <= since]
        ran, others = ([job for job in known if (begin[job] < since) is before] for before in (True, False))
        known = ran + others[-2 * WINDOW :]
        present = [job for job in known if begin[job] == begin[job] and end[job] != end[job]]
        present += [job for job in known if begin[job] != begin[job]]
        length = {job: end[job] - begin[job] for job in known}
        for job, uniform in zip(present, rng.random(len(present)).tolist() if ended else present, strict=True):
            worked = now - begin[job] if begin[job] == begin[job] else 0.0
            length[job] = max(lasting(uniform, requested[job], worked, factors), worked + TICK)
        found = []
        for job in known:
            gone = since - begin[job] if job in ran else 0.0
            submitted = 0.0 if job in ran else max(jobs.submission_time[job] - since, 0.0) + 1
            left = max(requested[job] - gone, length[job] - gone) if job in ran else requested[job]
            found.append(ref.Job(submitted, length[job] - gone, int(jobs.requested_cores[job]), left))
        return found

    def futures(self, cluster: Any, rng: np.random.Generator) -> list[list[ref.Job]]:
        jobs, now = cluster.workload, cluster.now
        begin, end, requested = cluster.starting_time, cluster.finish_time, jobs.requested_time.tolist()
        dates, cores = jobs.submission_time.tolist(), jobs.requested_cores.tolist()
        came = [job for job in range(len(jobs)) if dates[job] <= now]
        ended = sorted((requested[job], end[job], job) for job in came if end[job] <= now)
        factors = [(each, (finish - begin[job]) / each) for each, finish, job in ended]
        running = [job for job in came if begin[job] <= now and not end[job] <= now]
        queued = [job for job in came if not begin[job] <= now][-2 * WINDOW :]
        shape = self._scenarios, len(running) + len(queued)
        uniform = rng.random(shape).tolist() if ended else np.zeros(shape).tolist()
        first = rng.integers(len(came) - 1, size=self._scenarios).tolist() if self._arrivals else []
        found = []
        for s in range(self._scenarios):
            length, scenario = {}, []
            for job, number in zip([*running, *queued], uniform[s], strict=True):
                worked = now - begin[job] if job in running else 0.0
                length[job] = lasting(number, requested[job], worked, factors)
                left = max(length[job] - worked, TICK)
                expected = max(requested[job] - worked, left) if job in running else requested[job]
                scenario.append(ref.Job(0.0 if job in running else 1.0, left, cores[job], expected))
            date, place = 0.0, first[s] + 1 if first else 0
            for _ in range(self._arrivals):
                job = came[place]
                date += dates[job] - dates[came[place - 1]]
                seconds = end[job] - begin[job] if end[job] <= now else length.get(job, requested[job])
                seconds = max(math.ceil(seconds / TICK) * TICK, TICK)
                scenario.append(ref.Job(max(date, TICK) + 1, seconds, cores[job], requested[job]))
                place = place % (len(came) - 1) + 1
            found.append(scenario)
        return found


TICK = 2.0**-10


def lasting(uniform: float, requested: float, worked: float, ended: list[tuple[float, float]]) -> float:
    """Returns a run time like those of the ended jobs, at most 64, whose requested times are nearest in rank."""
    alike = min(64, len(ended))
    times = [each for each, _ in ended]
    middle = bisect.bisect_left(times, requested) + bisect.bisect_right(times, requested)
    first = min(max((middle - alike) // 2, 0), len(ended) - alike)
    factors = sorted(factor for _, factor in ended[first : first + alike] if factor * requested > worked)
    factor = factors[int(uniform * len(factors))] if factors else 1.0
    return math.ceil(factor * requested / TICK) * TICK


@pytest.mark.parametrize("backfill", list(SCHEDULERS))
@pytest.mark.parametrize("margin", [0, 0.2])
@pytest.mark.parametrize(("scenarios", "arrivals"), [(0, 0), (2, 0), (2, 40)], ids=["past", "present", "future"])
@pytest.mark.parametrize(("number", "factor"), [(100, 1), (300, 0.02)], ids=["few_wait", "most_wait"])
def test_the_best_order_of_past_and_scenarios_is_chosen(
    backfill: str, margin: float, number: int, factor: float, scenarios: int, arrivals: int
) -> None:
    changes = {"margin": margin, "scenarios": scenarios, "arrivals": arrivals}
    agent = Noting(candidates=ORDERS, **EACH | changes, backfill=backfill)
    hdsim.simulate(platform(), workload_of(1, number).scaled_arrivals(factor), agent)
    counts, names = zip(*agent.choices, strict=True)
    assert names == tuple(agent.expected)
    assert set(names) != {ORDERS[0]}
    # The first pass behind each period.
    assert [count // PERIOD for count in counts] == list(range(1, len(counts) + 1))


@pytest.mark.parametrize("machine", ["equal_cores", "gaia"])
def test_a_choice_is_a_compiled_replay_of_each_candidate_whose_length_no_queue_changes(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays = []

    def counted(*arguments: Any) -> hdsim.Result:
        result = hdsim.simulate(*arguments)
        replays.append((len(arguments[1]), result.engine["mode"]))
        return result

    monkeypatch.setattr(portfolio, "simulate", counted)
    where, jobs = platform() if machine == "equal_cores" else hdsim.load_platform(machine), 160
    # One job runs, all others wait.
    workload = workload_of(1, jobs).replaced(submission_time=np.arange(jobs), requested_cores=where.n_cpu_cores)
    hdsim.simulate(where, workload, Portfolio(**EACH))
    lengths, modes = zip(*replays, strict=True)
    assert len(replays) == jobs // PERIOD * len(CANDIDATES)
    assert set(modes) == {"compiled"}
    assert max(lengths) == 2 * WINDOW + 1


def test_candidates_have_rules_of_their_own() -> None:
    """Each serves as it does by itself, and the one whose rule did best in the past is chosen."""
    workload, names = workload_of(1), ("lcfs", "conservative-ljf", "greedy-saf", "easy-sjf")
    for name in names:
        alone = hdsim.simulate(platform(), workload, Portfolio(candidates=[name]))
        np.testing.assert_array_equal(alone.starting_time, hdsim.simulate(platform(), workload, name).starting_time)
    agent = Portfolio(candidates=names, **EACH)
    chosen = set()
    simulation = hdsim.Simulation(platform(), workload, agent)
    while simulation.step():
        chosen.add(agent.chosen)
    assert len(chosen) > 1 and chosen <= set(names)


def test_where_it_takes_over_it_chooses_at_once() -> None:
    simulation = hdsim.Simulation(platform(), workload_of(1), "lcfs")
    simulation.run_until(2 * WEEK)
    changes = ({}, {"trusted": 1, "margin": 1e9})
    agents = [Portfolio(candidates=["largest", "saf"], **EACH | change) for change in changes]
    for agent, chosen in zip(agents, ("saf", "largest"), strict=True):
        fork = simulation.fork(agent)
        fork.run_until(2 * WEEK)
        assert agent.chosen == chosen
    assert CANDIDATES[0] == "easy-learned"


def test_one_candidate_is_a_classic_agent() -> None:
    workload = workload_of(2)
    for backfill in ("none", "greedy", "easy"):
        alone = Portfolio(candidates=["saf"], **EACH, backfill=backfill)
        classic = hdsim.simulate(platform(), workload, {"job_policy": "saf", "backfill": backfill})
        np.testing.assert_array_equal(hdsim.simulate(platform(), workload, alone).starting_time, classic.starting_time)


@pytest.mark.parametrize("estimates", ["requested", "last_two"])
def test_only_the_past_is_known_and_forks_carry_it(estimates: str) -> None:
    settings = {"candidates": ORDERS, **EACH, "backfill": "none", "estimates": estimates}
    workload, agent = workload_of(3).replaced(user=1), Portfolio(**settings)
    simulation = hdsim.Simulation(platform(), workload, agent)
    simulation.run_until(2.5 * WEEK)
    whole = simulation.run().starting_time
    # Later jobs, and run times of jobs that end later, change nothing before.
    unknown = ~(simulation.cluster.finish_time <= np.float64(2.5 * WEEK))
    other = workload.replaced(runtime=np.where(unknown, workload.runtime * 3, workload.runtime))
    changed = hdsim.simulate(platform(), other, Portfolio(**settings)).starting_time
    early = whole <= 2.5 * WEEK
    np.testing.assert_array_equal(changed[early], whole[early])
    again = hdsim.Simulation(platform(), workload, Portfolio(**settings))
    again.run_until(2.5 * WEEK)
    fork = again.fork(runtimes="actual", arrivals="actual")
    np.testing.assert_array_equal(fork.run().starting_time, whole)


def test_on_nodes_of_several_speeds_and_for_pods() -> None:
    settings = {"_target_": "hdsim.agents.portfolio.Portfolio", **EACH}
    for rules in ({"backfill": "greedy", "candidates": ORDERS, "core_policy": "low_power"}, {}):
        result = hdsim.simulate(
            "gaia", hdsim.load_workload("lublin_4000", jobs=80), {**settings, **rules}, contention="threshold"
        )
        assert not np.isnan(result.finish_time).any()
    eight = hdsim.load_platform("eight_nodes").of_kind("quantities")
    for rules in ({"backfill": "greedy", "candidates": ORDERS}, {}):
        result = hdsim.simulate(eight, workload_of(4, 60), {**settings, **rules})
        assert (result.state == result.state[0]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": "saf"}, r"agent.candidates: portfolio: expected a list of schedulers, got 'saf'"),
        ({"candidates": ["safe"]}, r"got 'safe'"),
        ({"candidates": ["safe"], "backfill": "easy"}, r"got 'safe' \(did you mean 'saf'\?\)"),
        ({"candidates": ["void"]}, r"agent.candidates: portfolio: expected schedulers that start jobs, got void"),
        ({"period": 0}, r"agent.period: expected a whole number >= 1, got 0"),
        ({"window": 15}, r"agent.window: expected a whole number >= 16, got 15"),
        ({"margin": -1}, r"agent.margin: expected a number >= 0, got -1"),
        ({"objective": "jobs"}, r"agent.objective: portfolio: expected a metric"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Portfolio(**settings)
