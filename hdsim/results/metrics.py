"""Metrics of a replay, one function an idea. Times are seconds; only jobs that ended count unless said otherwise.

Means over jobs and over time, of both functions, leave out the warm-up and the cool-down (:mod:`hdsim.results.period`).

`summary` holds what every replay tells at once; `full` adds what takes a pass over the whole schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import UNFINISHED, FinalState
from hdsim.platform.node_state import NodeState
from hdsim.platform.power import IDLE_PACKAGE, PSTATES, state_energy
from hdsim.scheduling.rules import TAU
from hdsim.util.arrays import distinct
from hdsim.workload.slack import slack_of

if TYPE_CHECKING:
    from hdsim.results.replay import FullReplay

Floats = NDArray[np.float64]

#: A job starves that waits longer than this many times its requested time.
STARVATION_FACTOR = 10.0
#: Rounding of times in seconds.
_LATE = 1e-6
#: Share of the makespan cut off at each end for `steady_utilization`.
STEADY_CUT = 0.1


class Direction(IntEnum):
    """Which values of a metric are better, as the sign of the difference of a better value to a worse one."""

    LOWER = -1
    NEITHER = 0
    HIGHER = 1

    def __str__(self) -> str:
        return f"{self.name.lower()} is better" if self else ""


class Metric(NamedTuple):
    """Properties of a metric beside its value."""

    unit: str  # empty for a pure number
    direction: Direction
    description: str


_LOWER, _NEITHER, _HIGHER = Direction.LOWER, Direction.NEITHER, Direction.HIGHER
#: Statistics of a quantity of jobs, each of which is a metric ``STATISTIC_QUANTITY``.
STATISTICS = ("mean", "median", "p95", "p99", "max")
#: Quantities of jobs.
QUANTITIES = (
    "waiting_time",
    "turnaround_time",
    "slowdown",
    "bounded_slowdown",
    "per_processor_slowdown",
    "user_slowdown",
    "reference_slowdown",
    "execution_time",
    "slowdown_factor",
)
#: Power states of nodes, see :class:`hdsim.platform.node_state.NodeState`, in words, and where they are known.
_STATES = {
    "on": "that serve a job",
    "idle": "that are up and idle",
    "going_down": "that go down",
    "off": "that are off",
    "booting": "that boot",
}
_SLEEP = "where nodes sleep"
#: All metrics by name, those of :func:`statistics` by the name of the quantity.
METRICS: dict[str, Metric] = {
    "makespan": Metric("s", _LOWER, "last finish minus first submission"),
    "waiting_time": Metric("s", _LOWER, "start minus submission"),
    "turnaround_time": Metric("s", _LOWER, "finish minus submission"),
    "execution_time": Metric("s", _LOWER, "finish minus start"),
    "slowdown": Metric("", _LOWER, "turnaround / execution, at least 1; an execution of 0 s counts as 1 s"),
    "bounded_slowdown": Metric("", _LOWER, "max(1, turnaround / max(execution, 10 s))"),
    "per_processor_slowdown": Metric("", _LOWER, "max(1, turnaround / (cores x max(execution, 10 s)))"),
    "user_slowdown": Metric("", _LOWER, "turnaround / requested time"),
    "reference_slowdown": Metric("", _LOWER, "max(1, turnaround / max(run time at the reference speed, 10 s))"),
    "slowdown_factor": Metric(
        "", _LOWER, "execution time / time of the same on the same cores undisturbed, at least 1"
    ),
    "utilization": Metric("", _HIGHER, "busy core-seconds / (cores x makespan)"),
    "steady_utilization": Metric("", _HIGHER, "utilization without the first and the last tenth of the makespan"),
    "exploitation": Metric("", _HIGHER, "operations of completed jobs / (peak operations a second x makespan)"),
    "load_imbalance": Metric("", _LOWER, "standard deviation over nodes of the share of CPU in use, mean over time"),
    "peak_load_imbalance": Metric("", _LOWER, "the same while jobs hold most CPU"),
    "loss_of_capacity": Metric("", _LOWER, "integral of min(idle cores, cores queued for) / (cores x period)"),
    "throughput": Metric("jobs/h", _HIGHER, "ended jobs / makespan"),
    "energy_joules": Metric("J", _LOWER, "energy of all cores from the first submission to the last finish"),
    "edp": Metric("J s", _LOWER, "energy x makespan"),
    "ed2p": Metric("J s^2", _LOWER, "energy x makespan squared"),
    "peak_power_watts": Metric("W", _LOWER, "highest power at any instant"),
    "facility_energy_kwh": Metric("kWh", _LOWER, "energy that the facility takes, losses and cooling included"),
    "facility_peak_watts": Metric("W", _LOWER, "highest power of the facility at any instant; with a facility"),
    "effective_pue": Metric("", _LOWER, "energy of the facility / energy of the machine; with a facility"),
    "idle_energy_share": Metric("", _LOWER, "share of the energy of the machine that no job pays; with a facility"),
    "cost_eur": Metric("EUR", _LOWER, "integral of power of the facility x price; with facility.price"),
    "carbon_grams": Metric("g", _LOWER, "integral of power of the facility x carbon intensity; with facility.carbon"),
    "deadlines_missed": Metric("", _LOWER, "jobs with slack that started later than that; where jobs have slack"),
    "waiting_time_without_slack": Metric("s", _LOWER, "mean wait of the jobs without slack; where jobs have slack"),
    "gpu_hours": Metric("GPU h", _NEITHER, "GPUs held by jobs, integrated over time; on platforms with GPUs"),
    "gpu_utilization": Metric("", _HIGHER, "busy GPU-seconds / (GPUs x makespan); on platforms with GPUs"),
    "jain_fairness": Metric("", _HIGHER, "Jain's index of the users' mean bounded slowdowns"),
    "worst_user_ratio": Metric("", _LOWER, "highest mean bounded slowdown of a user / mean over users"),
    "gini": Metric("", _LOWER, "Gini coefficient of the users' mean bounded slowdowns"),
    "starved_jobs": Metric("", _LOWER, "jobs that waited more than 10 times their requested time (at least 10 s)"),
    "jobs_completed": Metric("", _HIGHER, "jobs that ended successfully"),
    "jobs_failed": Metric("", _LOWER, "jobs that ended with a failure"),
    "jobs_killed": Metric("", _LOWER, "jobs killed by the scheduler or at their walltime"),
    "jobs_rejected": Metric("", _LOWER, "jobs rejected"),
    "jobs_unfinished": Metric("", _LOWER, "jobs that had not ended when the replay did"),
    "nodes": Metric("", _NEITHER, "nodes that a job has cores on"),
    "node_spread": Metric("", _LOWER, "nodes that a job has cores on / fewest nodes with as many cores"),
    "communication_share": Metric(
        "", _LOWER, "communication time x cores / execution time x cores; where a job has a program"
    ),
    "barrier_waiting_share": Metric(
        "", _LOWER, "barrier waiting time x cores / execution time x cores; where a job has a program"
    ),
    "contention_loss": Metric(
        "core s", _LOWER, "core-seconds lost to contention for memory bandwidth; where a job has a program"
    ),
    "availability": Metric("", _HIGHER, "node-seconds up / (nodes x period); where nodes fail"),
    "failures": Metric("", _NEITHER, "failures of nodes; where nodes fail"),
    "restarts": Metric("", _LOWER, "restarts of jobs after a failure; where nodes fail"),
    "lost_work": Metric("core s", _LOWER, "core-seconds of running undone by failures; where nodes fail"),
    "goodput": Metric("", _HIGHER, "share of the core-seconds held by jobs that was not lost; where nodes fail"),
    **{
        f"node_hours_{state}": Metric("h", _NEITHER, f"hours of nodes {what}; {_SLEEP}")
        for state, what in _STATES.items()
    },
    **{
        f"joules_{state}": Metric("J", _NEITHER, f"energy of nodes {what}; {_SLEEP}") for state, what in _STATES.items()
    },
    "boots": Metric("", _NEITHER, f"boots of nodes; {_SLEEP}"),
    "failed_boots": Metric("", _LOWER, f"boots of nodes that did not come up; {_SLEEP}"),
    "seconds_above_cap": Metric("s", _LOWER, "time above a limit on power, summed over limits; with a cap"),
    "joules_above_cap": Metric("J", _LOWER, "energy above a limit on power, likewise; with a cap"),
    "jobs_per_second": Metric("jobs/s of wall time", _HIGHER, "ended jobs / wall time of the replay"),
}
#: Metrics of `hdsim bsp`; where several gangs share a machine, their means.
GANG_METRICS: dict[str, Metric] = {
    "duration": Metric("s", _LOWER, "sum of the durations of the supersteps"),
    "checkpoints": Metric("", _LOWER, "changes of the shares after the first superstep"),
    "total": Metric("s", _LOWER, "duration + penalty x checkpoints"),
    "rmse": Metric("", _LOWER, "root mean squared error of the forecasts, in workload sizes; of hdsim bsp forecast"),
    "coverage": Metric("", _NEITHER, "part of the values between the outermost quantiles; of hdsim bsp forecast"),
    "points": Metric("", _NEITHER, "measured durations; of hdsim bsp profile"),
    "variation": Metric("", _LOWER, "mean coefficient of variation of the tries; of hdsim bsp profile"),
    "lower_bound": Metric("s", _NEITHER, "total that no plan falls below; after hdsim bsp plan"),
    "predicted_duration": Metric("s", _NEITHER, "duration by the profile, for the shares and sizes of a real run"),
    "prediction_error": Metric("", _LOWER, "median over supersteps of abs(predicted - measured) / measured duration"),
    "repetitions": Metric("", _LOWER, "attempts of supersteps that a fault ended"),
    "elapsed": Metric("s", _LOWER, "from the first start of a real run to the end of its last superstep"),
}

#: Metrics of users by name, as :mod:`hdsim.results.own_metrics` and manifests describe them.
_OWN: dict[str, Metric] = {}


def unit(name: str) -> str:
    """Unit of a metric, empty for a pure number."""
    return _entry(name).unit


def direction(name: str) -> Direction:
    """Which values of a metric are better; neither for an unknown one."""
    return _entry(name).direction


def is_built_in(name: str) -> bool:
    """Whether a name is that of a metric or a quantity of hdsim itself."""
    return _entry_in(GANG_METRICS | METRICS, name) is not None


def is_own(name: str) -> bool:
    """Whether a name is that of a registered metric of a user."""
    return not is_built_in(name) and _entry_in(_OWN, name) is not None


def register(metrics: Mapping[str, Metric]) -> None:
    """Makes metrics of users known to :func:`unit` and :func:`direction`; of one name the latest counts."""
    _OWN.update(metrics)


def _entry(name: str) -> Metric:
    return _entry_in(_OWN | GANG_METRICS | METRICS, name) or Metric("", Direction.NEITHER, "")


def _entry_in(known: Mapping[str, Metric], name: str) -> Metric | None:
    statistic, _, quantity = name.partition("_")
    return known.get(name) or (known.get(quantity) if statistic in STATISTICS else None)


def families(metrics: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Returns quantities of which all statistics are defined, and the other defined metrics, in their order."""
    names = [name for name, value in metrics.items() if not math.isnan(value)]
    kinds: dict[str, set[str]] = {}
    for name in names:
        statistic, _, quantity = name.partition("_")
        if statistic in STATISTICS:
            kinds.setdefault(quantity, set()).add(statistic)
    whole = [quantity for quantity, found in kinds.items() if len(found) == len(STATISTICS)]
    members = {f"{statistic}_{quantity}" for statistic in STATISTICS for quantity in whole}
    return whole, [name for name in names if name not in members]


def slowdown(turnaround: Floats, execution: Floats) -> Floats:
    """Turnaround over execution time, (J,) s, at least 1; an execution of 0 s (a coarse clock's) counts as 1 s."""
    return np.maximum(turnaround / np.where(execution == 0, 1.0, execution), 1.0)


def bounded_slowdown(turnaround: Floats, execution: Floats, tau: float = TAU) -> Floats:
    """max(1, turnaround / max(execution, tau)), Feitelson et al. (JSSPP 1997)."""
    return np.maximum(turnaround / np.maximum(execution, tau), 1.0)


def per_processor_slowdown(turnaround: Floats, execution: Floats, cores: Floats, tau: float = TAU) -> Floats:
    """max(1, turnaround / (cores max(execution, tau))), Zotkin and Keleher (HPDC 1999)."""
    return np.maximum(turnaround / (cores * np.maximum(execution, tau)), 1.0)


def percentiles(values: Floats, percents: Sequence[float]) -> list[float]:
    """Percentiles by linear interpolation, equal to the byte to those of ``np.percentile``, whose calls take longer.

    Differences are taken from the nearer value, as NumPy does.
    """
    last, found = len(values) - 1, []
    places = [divmod(percent / 100 * last, 1) for percent in percents]
    pairs = [(int(low), min(int(low) + 1, last)) for low, _ in places]
    parted = np.partition(values, sorted({place for pair in pairs for place in pair}))
    for (low, high), (_, share) in zip(pairs, places, strict=True):
        below, above = float(parted[low]), float(parted[high])
        found.append(below + (above - below) * share if share < 0.5 else above - (above - below) * (1 - share))
    return found


def statistics(name: str, values: Floats) -> dict[str, float]:
    """Mean, median, 95th and 99th percentile and maximum, as ``mean_NAME`` and so on; NaN of no value."""
    if not len(values):
        return {f"{kind}_{name}": float("nan") for kind in STATISTICS}
    numbers = (values.mean(), *percentiles(values, (50, 95, 99)), values.max())
    return {f"{kind}_{name}": float(number) for kind, number in zip(STATISTICS, numbers, strict=True)}


#: Metrics of :func:`full` that are not defined where cores have no ids, beside energy.
_OF_CORES = ("exploitation", "loss_of_capacity", "peak_power_watts", "mean_node_spread")


def summary(result: FullReplay) -> dict[str, float]:
    """The metrics that every replay tells at once, by name; :data:`METRICS` describes them.

    Those of :func:`balance` are among them where cores have no ids, of :func:`accelerators` where there are GPUs, of
    :func:`reliability` where nodes fail, of a facility where there is one, and of :func:`gangs` where there are gangs.
    """
    ended, counted = ~np.isnan(result.finish_time), result.counted
    start, finish = result.starting_time[counted], result.finish_time[counted]
    submission = result.workload.submission_time[counted]
    turnaround, execution = finish - submission, finish - start
    makespan = float(result.finish_time[ended].max(initial=0.0))
    energy = result.energy_joules
    counts = np.bincount(result.state, minlength=len(FinalState))
    killed = counts[FinalState.COMPLETED_KILLED] + counts[FinalState.COMPLETED_WALLTIME_REACHED]
    return {
        "makespan": makespan,
        **statistics("waiting_time", start - submission),
        **statistics("turnaround_time", turnaround),
        **statistics("slowdown", slowdown(turnaround, execution)),
        **statistics("bounded_slowdown", bounded_slowdown(turnaround, execution)),
        "utilization": _utilization(result, result.period.begin, min(result.period.end, makespan)),
        "energy_joules": energy,
        "edp": energy * makespan,
        "ed2p": energy * makespan**2,
        "jobs_completed": float(counts[FinalState.COMPLETED_SUCCESSFULLY]),
        "jobs_failed": float(counts[FinalState.COMPLETED_FAILED]),
        "jobs_killed": float(killed),
        "jobs_rejected": float(counts[FinalState.REJECTED]),
        "jobs_unfinished": float(counts[list(UNFINISHED)].sum()),
        **({} if result.latest.amounts is None else balance(result)),
        **({} if result.platform.n_gpus == 0 else accelerators(result, makespan)),
        **({} if result.outages is None else reliability(result)),
        **({} if result.costs is None else result.costs.metrics),
        **({} if result.node_states is None else node_states(result)),
        **(above_caps(result) if result.caps else {}),
        **deferral(result),
        **(gangs(result) if result.gangs else {}),
        "jobs_per_second": float(ended.sum() / result.wall_seconds) if result.wall_seconds > 0 else 0.0,
    }


def balance(result: FullReplay) -> dict[str, float]:
    """Evenness of the load of nodes: ``load_imbalance`` and ``peak_load_imbalance``."""
    from hdsim.results import series

    deviation = series.load_imbalance(result).within(result.period)
    load = series.busy_cores(result).within(result.period)
    held = load.at(deviation.times)
    seconds = deviation.seconds * (held >= held.max() * (1 - 1e-9))
    peak = float(deviation.values @ seconds / seconds.sum()) if seconds.sum() > 0 else 0.0
    return {"load_imbalance": deviation.mean(), "peak_load_imbalance": peak}


def accelerators(result: FullReplay, makespan: float) -> dict[str, float]:
    """Usage of GPUs until the last finish: ``gpu_hours``, and ``gpu_utilization`` in the period."""
    platform, held = result.platform, result.segments

    def seconds(low: float, high: float) -> float:
        return float(held.gpus @ (np.clip(held.end, low, high) - np.clip(held.begin, low, high)))

    low, high = result.period.begin, min(result.period.end, makespan)
    return {
        "gpu_hours": seconds(0.0, makespan) / 3600.0,
        "gpu_utilization": seconds(low, high) / (platform.n_gpus * (high - low)) if high > low else 0.0,
    }


def reliability(result: FullReplay) -> dict[str, float]:
    """Effects of failures: ``availability`` in the period, ``failures``, ``restarts``, ``lost_work``, ``goodput``."""
    outages, held = result.outages, result.segments
    assert outages is not None
    nodes, end = result.platform.n_nodes, result.end_time
    begin, until = result.period.begin, min(result.period.end, end)
    down, span = float(outages.seconds(nodes, until).sum() - outages.seconds(nodes, begin).sum()), until - begin
    used, lost = float(held.core_seconds.sum()), float(held.lost_core_seconds.sum())
    return {
        "availability": 1 - down / (nodes * span) if span > 0 else 1.0,
        "failures": float(len(outages)),
        "restarts": float(held.restarts(len(result.workload)).sum()),
        "lost_work": lost,
        "goodput": 1 - lost / used if used > 0 else 1.0,
    }


def node_states(result: FullReplay) -> dict[str, float]:
    """Hours and joules of nodes by power state, ``boots`` and ``failed_boots``; the joules add up to the energy."""
    platform, spans, seconds = result.platform, result.node_states, result.state_seconds
    assert spans is not None
    asleep = PSTATES[IDLE_PACKAGE].power * platform.cores_per_processor * platform.power
    idle = np.add.reduceat(asleep, platform.node_first_processor[:-1]) @ seconds[NodeState.IDLE]
    joules = state_energy(platform, seconds)
    joules[NodeState.IDLE] += idle
    joules[NodeState.ON] = result.energy_joules - joules[NodeState.IDLE :].sum()
    boots, outages, failed = spans.state == NodeState.BOOTING, result.outages, 0
    if outages is not None:
        begins = set(zip(outages.node.tolist(), outages.down.tolist(), strict=True))
        ends = zip(spans.node[boots].tolist(), spans.end[boots].tolist(), strict=True)
        failed = sum(end in begins for end in ends)
    return {
        **{f"node_hours_{name}": float(seconds[row].sum()) / 3600.0 for row, name in enumerate(_STATES)},
        **{f"joules_{name}": float(joules[row]) for row, name in enumerate(_STATES)},
        "boots": float(boots.sum()),
        "failed_boots": float(failed),
    }


def above_caps(result: FullReplay) -> dict[str, float]:
    """``seconds_above_cap`` and ``joules_above_cap``, sums over the caps."""
    from hdsim.results import series

    curves = [series.above(result, cap) for cap in result.caps]
    curves = [curve for curve in curves if curve.values.any()]
    seconds = sum((float(curve.seconds[curve.values > 0].sum()) for curve in curves), 0.0)
    return {"seconds_above_cap": seconds, "joules_above_cap": sum((curve.integral() for curve in curves), 0.0)}


def deferral(result: FullReplay) -> dict[str, float]:
    """Effects on jobs with slack and on the others: ``deadlines_missed``, ``waiting_time_without_slack``."""
    slack = slack_of(result.workload)
    if slack is None:
        return {}
    wait = result.starting_time - result.workload.submission_time
    late = (wait > slack + _LATE) & result.counted
    others = wait[np.isnan(slack) & result.counted]
    return {
        "deadlines_missed": float(late.sum()),
        "waiting_time_without_slack": float(others.mean()) if len(others) else math.nan,
    }


def gangs(result: FullReplay) -> dict[str, float]:
    """Returns the metrics of a gang (:data:`GANG_METRICS`), means over the gangs that statistics count."""
    runs = [run.metrics for job, run in result.gangs.items() if result.counted[job]]
    return {name: float(np.mean([run[name] for run in runs])) for name in runs[0]} if runs else {}


def full(result: FullReplay) -> dict[str, float]:
    """All metrics: those of :func:`summary` and those that need another pass over the schedule."""
    from hdsim.results import series

    workload = result.workload
    counted, period, makespan = result.counted, result.period, result.metrics["makespan"]
    start, finish = result.starting_time[counted], result.finish_time[counted]
    cores, requested = workload.requested_cores[counted], workload.requested_time[counted]
    turnaround = finish - workload.submission_time[counted]
    bounded = bounded_slowdown(turnaround, finish - start)
    span = min(period.end, makespan) - period.begin
    metrics = {
        **result.metrics,
        **statistics("per_processor_slowdown", per_processor_slowdown(turnaround, finish - start, cores.astype(float))),
        **statistics("user_slowdown", turnaround / np.where(requested > 0, requested, 1.0)),
        **statistics("reference_slowdown", bounded_slowdown(turnaround, workload.runtime[counted])),
        "steady_utilization": steady_utilization(result),
        "exploitation": exploitation(result),
        "loss_of_capacity": loss_of_capacity(result),
        "throughput": 3600.0 * float(period.has(result.finish_time).sum()) / span if span > 0 else 0.0,
        **fairness(workload.user[counted], bounded),
        "starved_jobs": float(
            (start - workload.submission_time[counted] > STARVATION_FACTOR * np.maximum(requested, TAU)).sum()
        ),
        "peak_power_watts": float(series.power(result).values.max(initial=0.0)),
        **statistics("execution_time", finish - start),
        **execution_metrics(result),
        **({} if "load_imbalance" in result.metrics else balance(result)),
        **({} if result.costs is None else {"idle_energy_share": result.costs.idle_share}),
    }
    if result.segments.amounts is not None:
        metrics |= dict.fromkeys(_OF_CORES, math.nan)
    return metrics


def execution_metrics(result: FullReplay) -> dict[str, float]:
    """Execution of jobs: slow-down and nodes; messages, barriers and contention where jobs have programs."""
    from hdsim.results import series

    jobs, cores, counted = result.jobs, result.workload.requested_cores, result.counted

    def mean(values: Floats) -> float:
        return float(values.mean()) if len(values) else float("nan")

    def share(seconds: Floats) -> float:
        held = float(cores[counted] @ jobs["execution_time"][counted])
        return float(cores[counted] @ seconds[counted]) / held if held > 0 else 0.0

    metrics = statistics("slowdown_factor", jobs["slowdown_factor"][counted])
    metrics |= {f"mean_{name}": mean(jobs[name][counted]) for name in ("nodes", "node_spread")}
    if result.time_breakdown is not None:
        metrics["communication_share"] = share(jobs["communication_time"])
        metrics["barrier_waiting_share"] = share(jobs["barrier_waiting_time"])
        metrics["contention_loss"] = series.lost_cores(result).integral()
    return metrics


def steady_utilization(result: FullReplay, cut: float = STEADY_CUT) -> float:
    """Utilisation without the first and the last `cut` of the makespan, where the machine fills and drains."""
    makespan = result.metrics["makespan"]
    return _utilization(result, cut * makespan, (1 - cut) * makespan)


def _utilization(result: FullReplay, low: float, high: float) -> float:
    span = result.platform.n_cpu_cores * (high - low)
    return _core_seconds(result, low, high) / span if span > 0 else 0.0


def _core_seconds(result: FullReplay, low: float, high: float) -> float:
    """Core-seconds held between two times by jobs that ended and by attempts that failures have cut short."""
    last, earlier, unfinished = result.latest, result.earlier, np.isnan(result.finish_time)
    # Of a job that still runs, neither the last segment nor those before it in the same attempt count.
    attempt = np.full(len(unfinished), np.iinfo(np.int64).max)
    runs, total = unfinished[last.job], 0.0
    attempt[last.job[runs]] = last.attempt[runs]
    for held, counts in ((last, ~runs), (earlier, earlier.attempt < attempt[earlier.job])):
        total += float((held.cpu_cores * counts) @ (np.clip(held.end, low, high) - np.clip(held.begin, low, high)))
    return total


def exploitation(result: FullReplay) -> float:
    """Operations executed by completed jobs over the operations the platform could have executed (IRMaSim)."""
    platform, workload = result.platform, result.workload
    done = (result.state == FinalState.COMPLETED_SUCCESSFULLY) & ~workload.fixed_duration
    executed = float(workload.requested_cores[done] @ workload.runtime[done]) * platform.reference_gflops
    peak = platform.n_cpu_cores * platform.reference_gflops * result.metrics["makespan"]
    return executed / peak if peak > 0 else 0.0


def loss_of_capacity(result: FullReplay) -> float:
    """Share of the capacity that idles while queued jobs ask for it, after Leung, Sabin and Sadayappan (2010).

    The integral over time of min(idle cores, cores asked for by queued jobs), over cores x period.
    """
    from hdsim.results import series

    busy, queued, down = series.busy_cores(result), series.queued_cores(result), series.down_cores(result)
    times = distinct(busy.times, queued.times, down.times)
    idle = np.minimum(result.platform.n_cpu_cores - busy.at(times) - down.at(times), queued.at(times))
    lost = series.StepFunction(times, idle, result.end_time).within(result.period)
    capacity = result.platform.n_cpu_cores * (lost.end - lost.times[0])
    return float(lost.integral() / capacity) if capacity > 0 else 0.0


#: Metrics of :func:`fairness`.
FAIRNESS = ("jain_fairness", "worst_user_ratio", "gini")


def fairness(user: NDArray[np.int64], values: Floats) -> dict[str, float]:
    """Evenness of a cost over users, by their means: Jain's index, the worst user's share, Gini's coefficient.

    Both arrays are (J,); the cost of a job is for example its bounded slowdown.
    """
    if not len(values):
        return dict(zip(FAIRNESS, (1.0, 1.0, 0.0), strict=True))
    _, owner = np.unique(user, return_inverse=True)
    means = np.sort(np.bincount(owner, values) / np.bincount(owner))
    n, total = len(means), float(means.sum())
    ranks = np.arange(1, n + 1)
    jain = total**2 / (n * float((means**2).sum()))
    gini = float(2 * (ranks @ means) / (n * total) - (n + 1) / n)
    return dict(zip(FAIRNESS, (jain, float(means[-1]) * n / total, gini), strict=True))
