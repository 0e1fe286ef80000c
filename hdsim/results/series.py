"""Curves over time, as step functions made from the starts and ends of a replay: exact, not sampled.

Every function takes a :class:`hdsim.results.result.Result`, or a :class:`hdsim.results.run_directory.reader.Run` read
back from a run directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.platform.node_state import NodeState
from hdsim.platform.power import IDLE_PACKAGE, PSTATES, busy_nodes_after, power_after
from hdsim.results.segments import powered_until
from hdsim.util.arrays import distinct

if TYPE_CHECKING:
    from hdsim.platform.states import Cap
    from hdsim.results.period import Period
    from hdsim.results.replay import Replay
    from hdsim.results.segments import Segments

Floats = NDArray[np.float64]
#: Segments whose cores are looked at together.
_SEGMENTS = 2**16


@dataclass(frozen=True)
class StepFunction:
    """A step function from `times[0]` to `end`.

    Attributes:
        times: (T,) s, strictly ascending.
        values: (T,) what holds from the time beside it until the next one, the last until `end`.
        end: End of the last step in seconds.
    """

    times: Floats
    values: Floats
    end: float

    @property
    def seconds(self) -> Floats:
        """(T,) s, how long each value holds."""
        return np.diff(self.times, append=max(self.end, float(self.times[-1])))

    def integral(self) -> float:
        """Integral over the whole period, in units of the values times s."""
        return float(np.dot(self.values, self.seconds))

    def mean(self) -> float:
        """Mean over time; the only value of an empty period."""
        seconds = self.seconds
        span = float(seconds.sum())
        return float(np.dot(self.values, seconds)) / span if span > 0 else float(self.values[-1])

    def at(self, times: Floats) -> Floats:
        """Values at the given times (N,) in seconds, those before the first step taken as the first."""
        if times is self.times:
            return self.values
        return self.values[np.maximum(np.searchsorted(self.times, times, side="right") - 1, 0)]

    def within(self, period: Period) -> StepFunction:
        """The part in a period; empty at its begin if the function ends before."""
        if period.begin <= self.times[0] and period.end >= self.end:
            return self
        begin, end = max(period.begin, float(self.times[0])), min(period.end, self.end)
        inside = (self.times > begin) & (self.times < end)
        times = np.append(begin, self.times[inside])
        return StepFunction(times, self.at(times), max(begin, end))

    def thinned(self, points: int) -> StepFunction:
        """Fewer steps that look the same at a width of `points` / 4 pixels.

        Of each stretch of that width the first, the lowest, the highest and the last step are kept (M4, Jugel et al.,
        VLDB 2014), so that no peak is lost. `points` is at least 4.
        """
        if len(self.times) <= points:
            return self
        stretches = points // 4
        begin, span = self.times[0], self.times[-1] - self.times[0]
        stretch = np.minimum(((self.times - begin) * (stretches / span)).astype(np.int64), stretches - 1)
        first = np.flatnonzero(np.diff(stretch, prepend=-1))
        last = np.append(first[1:], len(stretch)) - 1
        by_value = np.lexsort((self.values, stretch))
        kept = distinct(first, by_value[first], by_value[last], last)
        return StepFunction(self.times[kept], self.values[kept], self.end)

    def stretches(self, count: int) -> tuple[Floats, Floats, Floats, Floats]:
        """Mean, lowest and highest value of C stretches of equal length, of a period longer than 0.

        Returns:
            Begins of the stretches in seconds, exact means over time, lowest and highest values, each (C,).
        """
        begins = np.linspace(self.times[0], self.end, count + 1)[:-1]
        times = distinct(self.times, begins)
        values, first = self.at(times), np.searchsorted(times, begins)
        seconds = np.diff(times, append=max(self.end, float(times[-1])))
        means = np.add.reduceat(values * seconds, first) / np.add.reduceat(seconds, first)
        return begins, means, np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)


def accumulate(times: Floats, changes: Floats, end: float, *, initial: float = 0.0) -> StepFunction:
    """The step function that starts with `initial` at 0 and changes at given times, in any order, up to `end`.

    Times are (E,) s of at least 0, with a change each.
    """
    order = np.argsort(times, kind="stable")
    return _steps(times[order], initial + np.cumsum(changes[order]), end, initial)


def _steps(times: Floats, values: Floats, end: float, initial: float) -> StepFunction:
    """The step function with a value after each of some times, ascending; the last of several at one time counts."""
    times, values = _changes(times, values[None], end, np.array([initial]))
    return StepFunction(times, values[0], end)


def _changes(times: Floats, values: Floats, end: float, initial: Floats) -> tuple[Floats, Floats]:
    """Times at which any of F step functions changes, (T,), the first at 0, and their values (F, T).

    See `_steps` for the arguments, which are of all functions: (F, E) values and (F,) initial ones.
    """
    last_of_instant = np.append(times[1:] != times[:-1], True) & (times <= end) if len(times) else np.zeros(0, bool)
    times, values = times.compress(last_of_instant), values.compress(last_of_instant, axis=1)
    if not len(times) or times[0] > 0:
        times, values = np.append(0.0, times), np.append(initial[:, None], values, axis=1)
    # Without the steps that change nothing, such as one job taking the cores of another.
    changed = np.append(True, (values[:, 1:] != values[:, :-1]).any(axis=0))
    return times.compress(changed), values.compress(changed, axis=1)


def _between(begins: Floats, ends: Floats, amounts: Floats | float, end: float) -> StepFunction:
    """Sum of what each span contributes while it lasts."""
    amounts = np.broadcast_to(amounts, begins.shape)
    return accumulate(np.concatenate([begins, ends]), np.concatenate([amounts, -amounts]), end)


def busy_cores(result: Replay) -> StepFunction:
    """Cores that serve a job."""
    return _busy(result, result.segments.cpu_cores)


def busy_gpus(result: Replay) -> StepFunction:
    """GPUs that serve a job."""
    return _busy(result, result.segments.gpus)


def busy_resources(result: Replay) -> StepFunction:
    """Cores and GPUs that serve a job."""
    return _busy(result, result.segments.resources)


def _busy(result: Replay, amounts: NDArray[Any]) -> StepFunction:
    held = result.segments
    return _between(held.begin, held.end, amounts.astype(np.float64), result.end_time)


def utilization(result: Replay) -> StepFunction:
    """Share of the cores that serve a job, 0..1."""
    busy = busy_cores(result)
    return StepFunction(busy.times, busy.values / result.platform.n_cpu_cores, busy.end)


def gpu_utilization(result: Replay) -> StepFunction:
    """Share of the GPUs that serve a job, 0..1; of a platform that has some."""
    busy = busy_gpus(result)
    return StepFunction(busy.times, busy.values / result.platform.n_gpus, busy.end)


def load_imbalance(result: Replay) -> StepFunction:
    """Standard deviation over the nodes of the share of their CPU, or of their cores, that jobs hold."""
    held, platform = result.segments, result.platform
    if not len(held):
        return StepFunction(np.zeros(1), np.zeros(1), result.end_time)
    segment, node, taken = _held_on_nodes(held, gpus=False)
    capacity = platform.node_cpu_cores if held.amounts is None else platform.node_cpu
    share = taken / np.where(capacity > 0, capacity, 1)[node]
    times = np.concatenate([held.begin[segment], held.end[segment]])
    node, change = np.tile(node, 2), np.concatenate([share, -share])
    order = np.lexsort((times, node))
    times, change = times[order], change[order]
    # One running sum serves all nodes, because the changes of each add up to nothing.
    after = np.cumsum(change)
    mean = accumulate(times, change / len(capacity), result.end_time)
    square = accumulate(times, change * (2 * after - change) / len(capacity), result.end_time)
    times = distinct(mean.times, square.times)
    variance = square.at(times) - mean.at(times) ** 2
    rounding = 8 * np.finfo(float).eps * np.sqrt(len(change))  # of running sums
    return StepFunction(times, np.sqrt(np.where(variance > rounding, variance, 0.0)), result.end_time)


def running_jobs(result: Replay) -> StepFunction:
    """Jobs that run."""
    return _between(result.segments.begin, result.segments.end, 1.0, result.end_time)


def down_nodes(result: Replay) -> StepFunction:
    """Nodes that are down."""
    return _down(result, np.ones(result.platform.n_nodes))


def down_cores(result: Replay) -> StepFunction:
    """Cores of nodes that are down."""
    return _down(result, result.platform.node_cpu_cores.astype(np.float64))


def down_resources(result: Replay) -> StepFunction:
    """Cores and GPUs of nodes that are down."""
    platform = result.platform
    return _down(result, (platform.node_cpu_cores + platform.node_gpus).astype(np.float64))


def away_resources(result: Replay, state: NodeState) -> StepFunction:
    """Cores and GPUs of nodes in a power state other than up."""
    platform = result.platform
    return _away(result, state, (platform.node_cpu_cores + platform.node_gpus).astype(np.float64))


def _down(result: Replay, amounts: Floats) -> StepFunction:
    """Sum of an amount a node over the nodes that are down."""
    outages = result.outages
    if outages is None:
        return accumulate(np.zeros(0), np.zeros(0), result.end_time)
    return _between(outages.down, outages.up, amounts[outages.node], result.end_time)


def nodes_by_state(result: Replay) -> dict[str, StepFunction]:
    """Nodes in each :class:`NodeState`, by its name in small letters; ``down`` is by failures."""
    nodes, end = float(result.platform.n_nodes), result.end_time
    ran = result.segments
    times = np.concatenate([ran.begin, ran.end])
    events = np.argsort(times, kind="stable")
    busy = busy_nodes_after(result.platform, ran.held, events, np.ones(result.platform.n_nodes))
    found = {"on": _steps(times[events], busy, end, 0.0)}
    for state in (NodeState.GOING_DOWN, NodeState.OFF, NodeState.BOOTING):
        found[state.name.lower()] = _away(result, state, np.ones(result.platform.n_nodes))
    found["down"] = down_nodes(result)
    times = distinct(*(steps.times for steps in found.values()))
    idle = np.full(len(times), nodes)
    for steps in found.values():
        idle -= steps.at(times)
    return {"on": found.pop("on"), "idle": StepFunction(times, idle, end), **found}


def _away(result: Replay, state: NodeState, amounts: Floats) -> StepFunction:
    """Sum of an amount a node (N,) over the nodes in a state other than up."""
    spans = result.node_states
    if spans is None:
        return accumulate(np.zeros(0), np.zeros(0), result.end_time)
    here = spans.state == state
    return _between(spans.begin[here], spans.end[here], amounts[spans.node[here]], result.end_time)


def queue_length(result: Replay) -> StepFunction:
    """Jobs that wait. Rejected jobs never count: when they were refused is not recorded."""
    return _waiting(result, np.ones(len(result.state)))


def queued_cores(result: Replay) -> StepFunction:
    """Cores that the waiting jobs ask for."""
    cores = result.jobs["requested_number_of_resources"] - result.jobs["requested_gpus"]
    return _waiting(result, cores.astype(np.float64))


def _waiting(result: Replay, amounts: Floats) -> StepFunction:
    queued = result.state != FinalState.REJECTED
    ran = result.segments.attempts
    amounts = np.where(queued, amounts, 0.0)
    back = ran.requeued
    times = np.concatenate([result.jobs["submission_time"], ran.end[back], ran.begin])
    changes = np.concatenate([amounts, amounts[ran.job[back]], -amounts[ran.job]])
    return accumulate(times, changes, result.end_time)


def submitted_jobs(result: Replay) -> StepFunction:
    """Jobs submitted so far."""
    return accumulate(result.jobs["submission_time"], np.ones(len(result.state)), result.end_time)


def ended_jobs(result: Replay) -> StepFunction:
    """Jobs that ended so far."""
    finish = result.finish_time[~np.isnan(result.finish_time)]
    return accumulate(finish, np.ones(len(finish)), result.end_time)


def oversubscribed_processors(result: Replay) -> StepFunction:
    """Processors whose memory bandwidth is oversubscribed."""
    _, begins, ends = result.oversubscribed
    return _between(begins, ends, 1.0, result.end_time)


def lost_cores(result: Replay) -> StepFunction:
    """Cores' worth of speed that contention for memory bandwidth takes from jobs; 0 where they have no programs."""
    return _contention(result, 1)


def exchanging_tasks(result: Replay) -> StepFunction:
    """Tasks that exchange messages over the network at the end of a superstep."""
    return _contention(result, 2)


def _contention(result: Replay, column: int) -> StepFunction:
    changes = result.contention[result.contention[:, column] != 0]
    steps = accumulate(changes[:, 0], changes[:, column], result.end_time)
    # Sums of fractions that cancel out leave a rest.
    return StepFunction(steps.times, np.round(steps.values, 9) + 0.0, steps.end)


def power(result: Replay, nodes: NDArray[np.bool_] | None = None) -> StepFunction:
    """Power of all nodes together in W, or of some (N,); an idle core draws more beside a busy one of its processor.

    Its integral is the energy of the replay.
    """
    end = powered_until(result.finish_time, result.end_time, result.segments)
    platform, ran = result.platform, result.segments.until(end)
    chosen = np.ones(platform.n_nodes) if nodes is None else nodes.astype(np.float64)
    of_core = platform.power * chosen[platform.processor_node]
    times = np.concatenate([ran.begin, ran.end])
    events = np.argsort(times, kind="stable")
    asleep = PSTATES[IDLE_PACKAGE].power * platform.cores_per_processor * of_core
    watts = np.nan_to_num(platform.state_watts) * chosen
    # W of the cores, and of the nodes beside them, where all are up.
    base, more = float(watts[NodeState.IDLE].sum()), watts[NodeState.ON] - watts[NodeState.IDLE]
    values = power_after(platform, ran.held, events, of_core, more)
    values[1] += base
    times, columns = _changes(times[events], values, end, np.array([float(asleep.sum()), base]))
    # A node that is down draws nothing, and one that is not up what its state says.
    idle, parts = np.add.reduceat(asleep, platform.node_first_processor[:-1]), []
    if watts[NodeState.IDLE].any():
        idle = idle + watts[NodeState.IDLE]
    if result.outages is not None:
        parts.append(_down(result, -idle))
    if ran.ghz is not None:
        used = ran.usage
        ghz_watts = ran.core_watts * chosen[platform.processor_node[used.processor]]
        parts.append(_counted(ran.begin[used.segment], ran.end[used.segment], ghz_watts, end, used.cores))
    if result.node_states:
        spans = result.node_states.until(end)
        parts.append(_counted(spans.begin, spans.end, (watts - idle)[spans.state, spans.node], end))
    cores, beside = (StepFunction(times, column, end) for column in columns)
    if parts:
        times = distinct(times, *(part.times for part in parts))
        times = times[times <= end]
    total = cores.at(times)
    for part in (*parts, beside):
        total = total + part.at(times)
    return StepFunction(times, total, end)


def above(result: Replay, cap: Cap) -> StepFunction:
    """Power in W by which some nodes exceed a limit, 0 below it; a thousandth of a millionth of it is rounding."""
    found = power(result, None if cap.nodes.all() else cap.nodes)
    times, most = found.times, cap.watts
    if len(cap.times) > 1:
        times = distinct(times, cap.times[cap.times < found.end])
        most = StepFunction(cap.times, cap.watts, found.end).at(times)
    values = found.at(times)
    return StepFunction(times, np.where(values > most * (1 + 1e-9), values - most, 0.0), found.end)


def _counted(begins: Floats, ends: Floats, amounts: Floats, end: float, times_each: Any = None) -> StepFunction:
    """Sum of what each span contributes, as counts of equal amounts, which leave no rest of rounding.

    `times_each` are whole numbers, how many times its amount each span contributes, by default once.
    """
    counts = np.ones(len(amounts)) if times_each is None else np.asarray(times_each, np.float64)
    total = accumulate(np.zeros(0), np.zeros(0), end)
    for amount in np.unique(amounts).tolist():
        here = amounts == amount
        number = _between(begins[here], ends[here], counts[here], end)
        times = distinct(total.times, number.times)
        total = StepFunction(times, total.at(times) + amount * number.at(times), end)
    return total


def _held_on_nodes(held: Segments, *, gpus: bool) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    """Segments, a node of each, and the cores that it holds there, with or without GPUs; its CPU without ids."""
    if held.amounts is None:
        used = held.usage
        kept = np.ones(len(used.segment), bool) if gpus else ~held.platform.is_gpu[used.processor]
        return used.segment[kept], held.platform.processor_node[used.processor[kept]], used.cores[kept]
    segment = np.repeat(np.arange(len(held)), [len(amounts.nodes) for amounts in held.amounts])
    node, taken = (np.concatenate(part) for part in zip(*((one.nodes, one.cpu) for one in held.amounts), strict=True))
    return segment, node, taken


def occupancy(result: Replay, bins: int, rows: int) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Share of busy cores, GPUs included, by at most `rows` groups of neighbouring nodes and `bins` stretches of time.

    It is the share of the CPU where cores have no ids.

    Returns:
        First node of each group (G,), bounds of the stretches (bins + 1,) in seconds, and the (G, bins) shares, 0..1.
    """
    platform, ran = result.platform, result.segments
    first_node, bounds = _grid(result, platform.n_nodes, bins, rows)
    group_of_node = np.searchsorted(first_node, np.arange(platform.n_nodes), side="right") - 1
    of_node = np.diff(platform.node_first_core) if ran.amounts is None else platform.node_cpu_cores
    used = np.zeros((len(first_node), len(bounds) - 1))
    for first in range(0, len(ran), _SEGMENTS):
        # A job on many processors takes many rows.
        part = ran.rows(np.arange(first, min(first + _SEGMENTS, len(ran))))
        segment, node, taken = _held_on_nodes(part, gpus=True)
        used += _binned(group_of_node[node], part.begin[segment], part.end[segment], taken, len(first_node), bounds)
    cores = np.add.reduceat(of_node, first_node)
    return first_node, bounds, np.clip(used / (cores[:, None] * np.diff(bounds)), 0.0, 1.0)


def oversubscription(result: Replay, bins: int, rows: int) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Share of time with oversubscribed memory bandwidth, by groups of processors and stretches as in `occupancy`.

    Returns:
        First processor of each group (G,), bounds of the stretches in seconds (bins + 1,), and (G, bins) shares, 0..1.
    """
    processors = result.platform.n_processors
    first, bounds = _grid(result, processors, bins, rows)
    processor, begins, ends = result.oversubscribed
    group = np.searchsorted(first, processor, side="right") - 1
    used = _binned(group, begins, ends, np.ones(len(group)), len(first), bounds)
    members = np.diff(first, append=processors)
    return first, bounds, np.clip(used / (members[:, None] * np.diff(bounds)), 0.0, 1.0)


def _grid(result: Replay, lanes: int, bins: int, rows: int) -> tuple[NDArray[np.int64], Floats]:
    """First lane of each of at most `rows` groups of neighbours, and the bounds of `bins` stretches of time."""
    groups = min(rows, lanes)
    end = result.end_time if result.end_time > 0 else 1.0
    return np.arange(groups) * lanes // groups, np.linspace(0.0, end, bins + 1)


def _binned(
    row: NDArray[np.int64], begins: Floats, ends: Floats, amounts: NDArray, rows: int, bounds: Floats
) -> Floats:
    """Integral of what the spans contribute, by row and stretch of time (rows, bins), without a loop over the spans."""
    bins = len(bounds) - 1
    time = np.concatenate([begins, ends])
    change = np.concatenate([amounts, -amounts]).astype(np.float64)
    # Each change adds change x (T - time) to the integral up to every later bound T.
    cell = np.concatenate([row, row]) * bins + np.clip(np.searchsorted(bounds, time, side="left") - 1, 0, bins - 1)
    level = np.cumsum(np.bincount(cell, change, rows * bins).reshape(rows, bins), axis=1)
    moment = np.cumsum(np.bincount(cell, change * time, rows * bins).reshape(rows, bins), axis=1)
    return np.diff(level * bounds[1:] - moment, axis=1, prepend=0.0)
