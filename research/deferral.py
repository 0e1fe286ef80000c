"""The learned plan of ``agent=deferring``: its training, and its CO2 beside the rule and EASY on held-out months.

``python research/deferral.py train -o agents/deferring.json`` searches for weights by the CMA evolution strategy
(Hansen, The CMA Evolution Strategy: A Tutorial, 2016) on generated months: seeds 1001 to 1012 of 12 days first, then
2001 to 2016. Replays are one kernel, `replay`, for the engine takes seconds for a month;
`tests/agents/test_deferring.py` compares both, start by start. A generation has ten members on three or four months. A
member costs its CO2 beside the rule with gain 0.1 in %, 20 times what its mean wait is longer, 8 times that of the jobs
without slack, and 1 for each missed deadline. It takes two minutes of CPU.

``python research/deferral.py measure --months 16`` chooses the gain and margin of the rule that emit least on eight
months (seeds 4001 to 4008), replays months of 30 days from seed 5001 on with hdsim, and prints the figures of EASY, of
the rule as it comes, as chosen, and of the learned plan, with 95 % intervals of a bootstrap over months. A month takes
ten seconds.

The machine has 4 nodes of 4 cores; jobs are those of the Lublin-Feitelson model with run times and widths halved, at a
load of 0.35 (``--load``). A third of the work may be put off by 4 days (``--slack``). Forecasts look 4 days ahead, with
an error of 10 %. After the last submission there are 6 days without any, and then a last job, so that all runs of a
month have one end and do the same work.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hdsim
from hdsim.facility.model import Facility
from hdsim.kernels.compiling import kernel
from hdsim.report.statistics import bootstrap
from hdsim.scheduling.kernels.deferral import FEATURES, hold
from hdsim.workload.load import load_workload
from hdsim.workload.slack import slack_of, with_slack

DAY = 86400.0
CORES = 16
PLATFORM = hdsim.Platform.homogeneous(nodes=4, cores_per_node=4)
CARBON: dict[str, Any] = {
    "mean": 350,
    "daily": 0.35,
    "weekly": 0.1,
    "weather": 0.45,
    "memory": "24h",
    "floor": 0.05,
    "horizon": "96h",
    "error": 0.1,
}
#: Begins of months in turn.
BEGINS = tuple(f"2026-{month}-01T00:00Z" for month in ("01", "04", "07", "10"))
#: Seconds before its bound at which a job is due.
MARGIN = 6 * 3600.0
#: Gains and margins (h) of the rule among which the best one is chosen.
RULES = tuple((gain, hours) for hours in (6, 12, 24) for gain in (0.02, 0.05, 0.1, 0.2, 0.3))
METRICS = ("carbon_grams", "mean_waiting_time", "waiting_time_without_slack", "deadlines_missed")
_NONE = np.zeros(0)


@dataclass(frozen=True)
class Month:
    """Jobs and the settings of a facility."""

    jobs: hdsim.Workload
    facility: dict[str, Any]
    seed: int


def month(seed: int, days: float = 30.0, load: float = 0.35, slack: str = "96h", drain: float = 6.0) -> Month:
    """Generates the jobs of some days, a third of the work with slack, and a last one after the drain in days."""
    model = {"model": "lublin", "jobs": int(800 * days), "load": load, "runtime_factor": 0.5, "width_factor": 0.5}
    drawn = load_workload(model, PLATFORM, seed=seed)
    kept = int(np.searchsorted(drawn.submission_time, days * DAY))
    assert kept < len(drawn), "too few jobs"
    drawn = with_slack(drawn[:kept], 1 / 3, slack, seed=seed)
    times = slack_of(drawn)
    assert times is not None
    jobs = hdsim.Workload.from_columns(
        submission_time=np.append(drawn.submission_time, (days + drain) * DAY),
        runtime=np.append(drawn.runtime, 1.0),
        requested_time=np.append(drawn.requested_time, 1.0),
        requested_cores=np.append(drawn.requested_cores, 1),
        extra={"slack": np.append(times, np.nan)},
    )
    facility = {"begin": BEGINS[seed % len(BEGINS)], "pue": 1.3, "carbon": CARBON}
    facility["efficiency"] = [[0.1, 0.9], [0.3, 0.95], [0.5, 0.96], [1.0, 0.94]]
    return Month(jobs, facility, seed)


@kernel
def replay(
    submission: np.ndarray,
    runtime: np.ndarray,
    requested: np.ndarray,
    size: np.ndarray,
    flexible: np.ndarray,
    due: np.ndarray,
    begins: np.ndarray,
    values: np.ndarray,
    forecasts: np.ndarray,
    horizon: float,
    cores: int,
    gain: float,
    weights: np.ndarray,
    start: np.ndarray,
) -> None:
    """Starts jobs as ``agent=deferring`` does with EASY and the order fcfs, on cores of which any are alike.

    Args:
        submission: (J,) s, ascending.
        runtime, requested: (J,) s; no run time is longer than requested.
        size: (J,) cores.
        flexible: (J,) whether a job has slack.
        due: (J,) s, see :class:`hdsim.scheduling.deferral.Deferral`.
        begins: (T,) s of the steps of the signal.
        values, forecasts: (T,) of the signal.
        horizon: s of forecasts.
        cores: Cores of the machine.
        gain, weights: See :func:`hdsim.scheduling.kernels.deferral.hold`.
        start: (J,) written, s.
    """
    jobs, steps = len(submission), len(begins)
    # States of jobs: 0 is that of one with its own place in the queue.
    released, held, done = 1, 2, 3
    status = np.zeros(jobs, np.int8)
    ready, waiting = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    planned, order = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    n_ready = n_waiting = coming = n_running = 0
    running, widths = np.empty(cores, np.int64), np.empty(cores, np.int64)
    ends, expected, dates = np.empty(cores), np.empty(cores), np.empty(cores)
    knots, sums, slopes, means = np.empty(steps + 2), np.empty(steps + 2), np.empty(steps + 2), np.empty(steps + 2)
    features, holds = np.empty(FEATURES), np.empty(jobs, np.bool_)
    free, until, backlog = cores, -np.inf, 0.0
    while True:
        now = submission[coming] if coming < jobs else np.inf
        for k in range(n_running):
            now = min(now, ends[k])
        if n_waiting and until < now:
            now = until
        if now == np.inf:
            return
        k = 0
        while k < n_running:
            if ends[k] <= now:
                free += size[running[k]]
                n_running -= 1
                running[k], ends[k], expected[k] = running[n_running], ends[n_running], expected[n_running]
            else:
                k += 1
        # Jobs to plan: those that come, and at a change of the signal all that wait without their place in the queue.
        changes, count = now >= until, 0
        if changes:
            planned[:n_waiting] = waiting[:n_waiting]
            count, n_waiting, kept = n_waiting, 0, 0
            for k in range(n_ready):
                if status[ready[k]] == released:
                    planned[count] = ready[k]
                    count += 1
                else:
                    ready[kept] = ready[k]
                    kept += 1
            n_ready = kept
        while coming < jobs and submission[coming] <= now:
            if flexible[coming]:
                backlog += requested[coming] * size[coming]
                planned[count] = coming
                count += 1
            else:
                ready[n_ready] = coming
                n_ready += 1
            coming += 1
        place = np.searchsorted(begins, now, side="right")
        if changes or count:
            until = begins[place] if place < steps else np.inf
        if count:
            known, k, value = now + horizon, 0, values[place - 1]
            knots[0], sums[0] = now, 0.0
            while place < steps and begins[place] <= known:
                sums[k + 1], knots[k + 1] = sums[k] + value * (begins[place] - knots[k]), begins[place]
                value = forecasts[place]
                k, place = k + 1, place + 1
            if knots[k] < known:
                sums[k + 1], knots[k + 1] = sums[k] + value * (known - knots[k]), known
                k += 1
            some = planned[:count]
            work = requested[some] * size[some]
            length, idle = np.maximum(requested[some], 1.0), free / cores
            signal = knots[: k + 1], sums[: k + 1]
            hold(*signal, due[some], length, work, backlog, cores, idle, gain, weights, slopes, means, features, holds)
            for k in range(count):
                job = planned[k]
                if holds[k]:
                    status[job] = held
                    waiting[n_waiting] = job
                    n_waiting += 1
                    continue
                status[job] = released
                at = n_ready
                while at > 0 and ready[at - 1] > job:
                    ready[at] = ready[at - 1]
                    at -= 1
                ready[at] = job
                n_ready += 1
        if free == 0:
            continue
        # EASY: jobs with their own place first, in order of submission.
        count = 0
        for behind in (False, True):
            for k in range(n_ready):
                if (status[ready[k]] == released and now < due[ready[k]]) == behind:
                    order[count] = ready[k]
                    count += 1
        head, shadow, extra = -1, 0.0, 0
        for k in range(count):
            job, starts = order[k], False
            if head < 0 and size[job] > free:
                head = job
                for a in range(n_running):
                    date, b = max(expected[a], now), a
                    while b > 0 and dates[b - 1] > date:
                        dates[b], widths[b] = dates[b - 1], widths[b - 1]
                        b -= 1
                    dates[b], widths[b] = date, size[running[a]]
                extra = free - size[head]
                for a in range(n_running):
                    if extra >= 0 and dates[a] > shadow:
                        break
                    extra += widths[a]
                    shadow = dates[a]
            elif size[job] <= free:
                starts = head < 0 or now + requested[job] <= shadow
                if not starts and size[job] <= extra:
                    starts = True
                    extra -= size[job]
            if starts:
                start[job], status[job] = now, done
                running[n_running], ends[n_running] = job, now + runtime[job]
                expected[n_running] = now + requested[job]
                n_running += 1
                free -= size[job]
                if flexible[job]:
                    backlog -= requested[job] * size[job]
                if free == 0:
                    break
        kept = 0
        for k in range(n_ready):
            if status[ready[k]] != done:
                ready[kept] = ready[k]
                kept += 1
        n_ready = kept


class Training:
    """A month as arrays, whose replays take a tenth of a second."""

    def __init__(self, of: Month) -> None:
        jobs = of.jobs
        facility = Facility.of(of.facility, PLATFORM, jobs, of.seed)
        assert facility is not None and facility.carbon is not None
        self.facility, carbon, slack = facility, facility.carbon, slack_of(jobs)
        assert slack is not None
        self.submission, self.runtime, self.size, self.slack = (
            jobs.submission_time,
            jobs.runtime,
            jobs.requested_cores,
            slack,
        )
        self.flexible, self.size = ~np.isnan(slack), self.size.astype(np.int64)
        arrays = jobs.submission_time, jobs.runtime, jobs.requested_time
        self._jobs = [np.array(each, np.float64) for each in arrays]
        self._series = [np.array(each) for each in (carbon.begins, carbon.values, carbon.forecasts)]
        self._horizon = float(carbon.horizon)

    def starts(self, gain: float = 0.0, weights: np.ndarray = _NONE, margin: float = MARGIN) -> np.ndarray:
        """Returns the (J,) starts in s under the rule or under weights."""
        due = np.nan_to_num(self.submission + self.slack - np.minimum(margin, self.slack / 2))
        start = np.zeros(len(due))
        replay(*self._jobs, self.size, self.flexible, due, *self._series, self._horizon, CORES, gain, weights, start)
        return start

    def figures(self, start: np.ndarray) -> np.ndarray:
        """Returns gCO2 with jobs on as few nodes as hold them, mean waits (s) of all and others, missed deadlines."""
        changes = self._series[0]
        ends = start + self.runtime
        steps = changes[(changes > 0) & (changes < ends.max())]
        times = np.concatenate([[0.0], start, ends, steps])
        added = np.concatenate([[0], self.size, -self.size, np.zeros(len(steps), np.int64)])
        order = np.argsort(times, kind="stable")
        seconds, busy = np.diff(times[order]), np.cumsum(added[order])[:-1]
        nodes = -(-busy // 4)
        watts = 10.0 * (busy + 0.25 * (4 * nodes - busy) + 0.05 * (CORES - 4 * nodes))
        grams = float((self.facility.weights(times[order][:-1], watts)[3] * watts) @ seconds)
        wait = start - self.submission
        missed = np.count_nonzero(wait[self.flexible] > self.slack[self.flexible] + 1e-6)
        return np.array([grams, wait.mean(), wait[~self.flexible].mean(), missed])


def cost(found: np.ndarray, rule: np.ndarray) -> float:
    """Returns what (M, 4) figures of months cost beside those of the rule: CO2 in %, and penalties."""
    grams = 100 * float((found[:, 0] / rule[:, 0] - 1).mean())
    waits = np.maximum(found[:, 1:3].sum(axis=0) / rule[:, 1:3].sum(axis=0) - 1, 0.0)
    return grams + 20 * float(waits[0]) + 8 * float(waits[1]) + float(found[:, 3].sum())


def search(
    months: list[Training], start: np.ndarray, scale: np.ndarray, generations: int, batch: int, seed: int
) -> Any:
    """Returns the weights that the evolution strategy finds from a start, steps being in units of a scale."""
    rng, size = np.random.default_rng(seed), len(start)
    rule = np.array([one.figures(one.starts(gain=0.1)) for one in months])
    members, parents = 10, 5
    share = np.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
    share /= share.sum()
    mass = 1 / float(share @ share)
    c_step, c_path = (mass + 2) / (size + mass + 5), (4 + mass / size) / (size + 4 + 2 * mass / size)
    damping = 1 + c_step + 2 * max(0.0, np.sqrt((mass - 1) / (size + 1)) - 1)
    c_one = 2 / ((size + 1.3) ** 2 + mass)
    c_many = min(1 - c_one, 2 * (mass - 2 + 1 / mass) / ((size + 2) ** 2 + mass))
    usual = np.sqrt(size) * (1 - 1 / (4 * size) + 1 / (21 * size**2))
    mean, step, covariance = start / scale, 1.0, np.eye(size)
    path, path_step = np.zeros(size), np.zeros(size)
    for generation in range(generations):
        chosen = rng.choice(len(months), batch, replace=False)
        values, axes = np.linalg.eigh(covariance)
        lengths = np.sqrt(np.maximum(values, 1e-12))
        moves = rng.normal(size=(members, size)) @ (axes * lengths).T
        costs = []
        for move in moves:
            weights = (mean + step * move) * scale
            figures = [months[one].figures(months[one].starts(weights=weights)) for one in chosen]
            costs.append(cost(np.array(figures), rule[chosen]))
        best = moves[np.argsort(costs)[:parents]]
        towards = share @ best
        mean = mean + step * towards
        path_step = (1 - c_step) * path_step
        path_step += np.sqrt(c_step * (2 - c_step) * mass) * (axes @ ((axes.T @ towards) / lengths))
        length = float(np.linalg.norm(path_step))
        steady = length / np.sqrt(1 - (1 - c_step) ** (2 * (generation + 1))) < (1.4 + 2 / (size + 1)) * usual
        path = (1 - c_path) * path + steady * np.sqrt(c_path * (2 - c_path) * mass) * towards
        covariance = (
            (1 - c_one - c_many + (1 - steady) * c_one * c_path * (2 - c_path)) * covariance
            + c_one * np.outer(path, path)
            + c_many * (best.T * share) @ best
        )
        step *= np.exp((c_step / damping) * (length / usual - 1))
        print(f"generation {generation + 1}: least cost {min(costs):+.3f}, step {step:.2f}", flush=True)
    return mean * scale


def train(path: Path) -> None:
    """Searches in two stages and writes the weights."""
    weights = np.zeros(FEATURES + 1)
    # The rule, but for the scale of its gain.
    weights[0], weights[FEATURES] = 1.0, -0.1
    for first, count, generations, batch, scale in ((1001, 12, 40, 3, 0.08), (2001, 16, 30, 4, 0.05)):
        months = [Training(month(seed, days=12.0, drain=5.0)) for seed in range(first, first + count)]
        weights = search(months, weights, np.full(len(weights), scale), generations, batch, seed=first)
    path.write_text(json.dumps({"weights": weights.tolist()}) + "\n", encoding="utf-8")


def best_rule(load: float, slack: str) -> tuple[float, int]:
    """Returns the gain and the margin in hours of the rule that emits least on validation months."""
    months = [Training(month(seed, load=load, slack=slack)) for seed in range(4001, 4009)]
    grams = [sum(one.figures(one.starts(gain, margin=hours * 3600.0))[0] for one in months) for gain, hours in RULES]
    return RULES[int(np.argmin(grams))]


def measure(count: int, first: int, plan: str, load: float, slack: str) -> None:
    """Prints the figures of held-out months."""
    gain, hours = best_rule(load, slack)
    deferring = {"_target_": "hdsim.agents.deferring.DeferringAgent"}
    chosen = f"rule, gain {gain}, margin {hours} h"
    agents: dict[str, Any] = {
        "EASY": "easy",
        "rule": deferring,
        chosen: {**deferring, "gain": gain, "margin": f"{hours}h"},
    }
    agents["learned"] = {**deferring, "plan": plan}
    rows: dict[str, list[list[float]]] = {name: [] for name in agents}
    for seed in range(first, first + count):
        one = month(seed, load=load, slack=slack)
        for name, agent in agents.items():
            found = hdsim.simulate(PLATFORM, one.jobs, agent, facility=one.facility, seed=seed).metrics
            rows[name].append([found[key] for key in METRICS])
        told = " ".join(
            f"{name}: {100 * (found[-1][0] / rows['EASY'][-1][0] - 1):+.2f} %" for name, found in rows.items()
        )
        print(f"seed {seed}, {len(one.jobs):,} jobs, CO2 beside EASY: {told}", flush=True)
    figures = {name: np.array(found) for name, found in rows.items()}
    for name, found in figures.items():
        change = 100 * (found[:, 0].sum() / figures["EASY"][:, 0].sum() - 1)
        print(f"{name:28} CO2 {change:+.2f} %, mean wait {found[:, 1].mean():8,.0f} s, of jobs without slack ", end="")
        print(f"{found[:, 2].mean():6,.0f} s, deadlines missed {found[:, 3].sum():.0f}")
    for ours, theirs in (
        ("learned", chosen),
        ("learned", "rule"),
        ("learned", "EASY"),
        (chosen, "EASY"),
        ("rule", "EASY"),
    ):
        print(f"{ours} beside {theirs}:", end="")
        for column, word in enumerate(("CO2", "mean wait", "wait of jobs without slack")):
            middle = bootstrap(np.log(figures[ours][:, column] / figures[theirs][:, column]))
            low, value, high = (100 * np.expm1(one) for one in (middle.low, middle.value, middle.high))
            print(f" {word} {value:+.2f} % [{low:+.2f}, {high:+.2f}]", end="" if column < 2 else "\n")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("-o", "--output", type=Path, required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--months", type=int, default=16)
    measuring.add_argument("--first", type=int, default=5001)
    measuring.add_argument("--plan", default="learned")
    measuring.add_argument("--load", type=float, default=0.35)
    measuring.add_argument("--slack", default="96h")
    given = parser.parse_args()
    if given.command == "train":
        train(given.output)
    else:
        measure(given.months, given.first, given.plan, given.load, given.slack)


if __name__ == "__main__":
    main()
