"""The panels of a report, one function each, from a run to plain charts. A new panel is a function in `PANELS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.cluster.state import FinalState
from hdsim.report import costs, distributions, gangs, jobs, learning, sites
from hdsim.report.charts import (
    BINS,
    POINTS,
    ROWS,
    STRETCHES,
    WINDOW,
    Axis,
    Blocks,
    Fact,
    Floats,
    Groups,
    Heat,
    Line,
    Lines,
    Panel,
    View,
    duration,
    spans,
    step_line,
)
from hdsim.report.colors import BLACK, BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, RED, RESERVED, ROSE, WAITS
from hdsim.report.lanes import nodes_of, processors_of, spans_of, strip_of
from hdsim.results import series
from hdsim.util.arrays import Ints
from hdsim.util.units import JOULES_PER_KWH

if TYPE_CHECKING:
    from hdsim.results.run_directory.reader import Run

#: Number of jobs, and of blocks of neighbouring cores, beyond which a heat map of busy cores replaces the Gantt chart.
MAX_JOBS = 2_000
MAX_BLOCKS = 250_000
#: Number of spans of oversubscribed bandwidth beyond which shares of time are drawn.
MAX_SPANS = 50_000
#: Waiting times in seconds that may part the colours of jobs.
_PARTS = (10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0, 30 * 86400.0)

_KILLED = (FinalState.COMPLETED_KILLED, FinalState.COMPLETED_WALLTIME_REACHED)


def pods(run: Run) -> Panel | None:
    """Pods created, bound, running and finished so far; None for a run that has had none."""
    if not run.pods:
        return None
    known = [column[~np.isnan(column)] for column in run.pods.values()]
    begin, end = min(column.min(initial=np.inf) for column in known), max(column.max(initial=0.0) for column in known)
    lines = []
    for name, color, column in zip(run.pods, (GREY, ORANGE, BLUE, GREEN), known, strict=True):
        times, counts = np.unique(np.append(column, begin), return_counts=True)
        counts[0] -= 1
        lines.append(step_line(name, series.StepFunction(times, counts.cumsum().astype(float), end), color))
    delay = run.pods["bound"] - run.pods["created"]
    note = f"{len(known[1]):,} of {len(delay):,} pods have got a node"
    if len(known[1]):
        low, high = np.nanpercentile(delay, (50, 99))
        note += f", half of them within {duration(low)} of their creation, 99 % within {duration(high)}"
    axis = Axis("Time since the begin of the run", "time", begin, max(end, begin + 1.0))
    return Panel("Pods", f"{note}.", (View("pods", "Pods", Lines(axis, Axis("Pods", "count"), tuple(lines))),))


def schedule(run: Run, longest: float | None = None) -> Panel:
    """Location and time of every job, or the share of busy cores of every node.

    The scale of colours ends with a wait of `longest` seconds, by default the longest of the run.
    """
    title = "Schedule"
    if not len(run.segments):
        return Panel(title, "No job that has started has ended.", ())
    shares = series.occupancy(run, BINS, ROWS)
    nodes = run.platform.n_nodes
    strip = strip_of(run.platform, np.arange(nodes + 1))
    heat = _heat(run, "node", nodes_of(run.platform, np.arange(nodes + 1)), shares, "busy cores")
    occupancy = View("occupancy", "Busy cores by node", replace(heat, strip=strip))
    if run.segments.amounts is not None:
        return Panel(title, "Share of the CPU of nodes that jobs hold.", (occupancy,))
    if len(run.segments) > MAX_JOBS or (blocks := _job_blocks(run, longest)) is None:
        note = "Share of busy cores"
        groups = len(shares[0])
        note += f", by groups of {-(-nodes // groups)} nodes at most." if groups < nodes else ", node by node."
        note += f" Single jobs are drawn up to {MAX_JOBS:,} jobs in {MAX_BLOCKS:,} blocks of neighbouring cores."
        return Panel(title, note, (occupancy,))
    # The same blocks; nodes of many and of few cores get the same height.
    cores, first_core = np.arange(run.platform.n_cores + 1), run.platform.node_first_core
    position = np.interp(cores, first_core, np.arange(nodes + 1)).astype(np.float32)
    by_node = replace(blocks, y=Axis("Node", "count", high=nodes), position=position, strip=strip)
    note = "The colour of a job is how long it waited. Blocks with room for it have the job's id. "
    note += "Drag to zoom, double-click to go back."
    return Panel(
        title,
        note,
        (
            View("gantt_cores", "Jobs by core", blocks),
            View("gantt_nodes", "Jobs by node", by_node),
            occupancy,
        ),
    )


def _heat(run: Run, lane: str, lanes: Groups, shares: tuple[Ints, Floats, Floats], label: str) -> Heat:
    """Shares of groups of neighbouring lanes over time, as functions of :mod:`hdsim.results.series` return them."""
    (first, bounds, share), count = shares, len(lanes.names)
    rows = np.append(first, count)
    return Heat(
        x=_time(run),
        y=Axis(lane.capitalize(), "count", high=count),
        times=bounds,
        lanes=rows,
        share=share,
        label=label,
        groups=lanes if len(first) == count else Groups(rows, list(spans_of(lane, first, count))),
    )


def longest_wait(runs: Iterable[Run]) -> float:
    """Returns the longest waiting time of the jobs that have started, in seconds; 0 without any."""
    return max((float(np.nanmax(run.jobs["waiting_time"], initial=0.0)) for run in runs), default=0.0)


def _by_wait(waits: Floats, longest: float) -> tuple[NDArray[np.uint8], list[str]]:
    """Indices in `WAITS`, and labels of the classes."""
    bounds = [1.0, *[part for part in _PARTS if part < longest][2 - len(WAITS) :]]
    labels = [*(f"under {duration(bound)}" for bound in bounds), f"{duration(bounds[-1])} or more"]
    return np.searchsorted(bounds, waits, side="right").astype(np.uint8), [f"waited {labels[0]}", *labels[1:]]


def _job_blocks(run: Run, longest: float | None) -> Blocks | None:
    """Every allocation segment as blocks of neighbouring cores; None when there are too many to draw."""
    ran = run.segments
    held, started = ran.held, ran.job
    if len(held.first) > MAX_BLOCKS:
        return None
    state = run.state[started]
    longest = longest_wait([run]) if longest is None else longest
    cut_short = "preempted" if run.outages is None else "interrupted by a failure"
    color, labels = _by_wait(run.jobs["waiting_time"][started], longest)
    colors = WAITS
    marks = list(zip(labels, WAITS, strict=False))
    for label, found, special in (
        ("killed", np.isin(state, _KILLED), RED),
        ("failed", state == FinalState.COMPLETED_FAILED, BLACK),
        (cut_short, ran.requeued, BROWN),
    ):
        color[found] = len(colors)
        colors = (*colors, special)
        marks.append((label, special))
    of = {name: column[started] for name, column in run.jobs.items()}
    words = [
        cut_short if again else jobs.OUTCOMES[FinalState(outcome)]
        for outcome, again in zip(state.tolist(), ran.requeued.tolist(), strict=True)
    ]
    facts = (
        Fact("job", [str(name) for name in of["job_id"].tolist()]),
        Fact("cores", ran.sizes, "number"),
        Fact("submitted", of["submission_time"], "time"),
        Fact("waited", of["waiting_time"], "duration"),
        Fact("started", ran.begin, "time"),
        Fact("ended", ran.end, "time"),
        Fact("ran", ran.end - ran.begin, "duration"),
        *(Fact(jobs.label_of(name), jobs.names_of(of[name])) for name in jobs.owner_columns(of)),
        Fact("state", words),
    )
    drawn = Blocks(
        x=_time(run),
        y=Axis("Core", "count", high=run.platform.n_cores),
        start=ran.begin,
        finish=ran.end,
        item=np.repeat(np.arange(len(held), dtype=np.int32), held.counts),
        low=held.first,
        high=held.last + 1,
        position=np.arange(run.platform.n_cores + 1, dtype=np.float32),
        color=color,
        colors=colors,
        legend=(),
        lane="core",
        groups=nodes_of(run.platform, run.platform.node_first_core),
        facts=facts,
        strip=strip_of(run.platform, run.platform.node_first_core),
        named=True,
    )
    drawn = _with_reservations(run, drawn)
    seen = {drawn.colors[place] for place in np.unique(drawn.color).tolist()}
    return replace(drawn, legend=tuple(mark for mark in (*marks, ("reserved", RESERVED)) if mark[1] in seen))


def _with_reservations(run: Run, drawn: Blocks) -> Blocks:
    """Adds the reservations of a site below the jobs, nodes next to each other in one block."""
    found = sites.reservations(run)
    if not found:
        return drawn
    item, low, high = [], [], []
    for number, one in enumerate(found):
        edges = np.flatnonzero(np.diff(one.nodes.astype(np.int8), prepend=0, append=0))
        low += run.platform.node_first_core[edges[::2]].tolist()
        high += run.platform.node_first_core[edges[1::2]].tolist()
        item += [number] * (len(edges) // 2)
    begin, end = np.array([one.begin for one in found]), np.array([one.end for one in found])
    told: dict[str, Any] = {
        "job": [f"reservation {one.name}" for one in found],
        "cores": np.array([run.platform.node_cpu_cores[one.nodes].sum() for one in found]),
        "started": begin,
        "ended": end,
        "ran": end - begin,
        "state": [f"reserved for {one.holders}" for one in found],
    }
    facts = []
    for fact in drawn.facts:
        usual = [""] * len(found) if fact.kind == "text" else np.full(len(found), np.nan)
        added = told.get(fact.label, usual)
        text = fact.kind == "text"
        facts.append(replace(fact, values=[*added, *fact.values] if text else np.append(added, fact.values)))
    count = len(found)
    return replace(
        drawn,
        start=np.append(begin, drawn.start),
        finish=np.append(end, drawn.finish),
        item=np.append(item, drawn.item + count).astype(np.int32),
        low=np.append(low, drawn.low).astype(np.int32),
        high=np.append(high, drawn.high).astype(np.int32),
        color=np.append([len(drawn.colors)] * count, drawn.color).astype(np.uint8),
        colors=(*drawn.colors, RESERVED),
        facts=tuple(facts),
    )


def utilization(run: Run) -> Panel | None:
    """Share of busy cores, and of busy GPUs, over time."""
    cores, gpus = _percent(series.utilization(run)), run.platform.n_gpus
    note = f"Share of the {run.platform.n_cpu_cores:,} cores that serve a job; {cores.mean():.1f} % on average."
    lines = [_curve("utilization", cores, BLUE, filled=True)]
    if gpus:
        devices = _percent(series.gpu_utilization(run))
        note += f" Of the {gpus:,} GPUs {devices.mean():.1f} % on average."
        lines = [_curve("cores", cores, BLUE, filled=True), _curve("GPUs", devices, GREEN)]
    if (reserved := sites.reserved_cores(run)) is not None:
        note += " Reserved are cores that only some jobs may use."
        lines.append(_curve("reserved", reserved, GREY))
    axis = Axis("Busy cores and GPUs (%)" if gpus else "Busy cores (%)", high=100)
    return _over_time(run, "utilization", "Utilization", note, axis, tuple(lines))


def _percent(steps: series.StepFunction) -> series.StepFunction:
    return series.StepFunction(steps.times, 100 * steps.values, steps.end)


def queue(run: Run) -> Panel | None:
    """Jobs that wait."""
    waiting = series.queue_length(run)
    note = f"At most {waiting.values.max():,.0f} jobs waited, {waiting.mean():,.1f} on average."
    line = _curve("waiting", waiting, ORANGE, filled=True)
    return _over_time(run, "queue", "Queue length", note, Axis("Jobs", "count"), (line,))


def running(run: Run) -> Panel | None:
    """Jobs that run, on an axis of their own: a long queue would hide them."""
    steps = series.running_jobs(run)
    note = f"At most {steps.values.max():,.0f} jobs ran at once, {steps.mean():,.1f} on average."
    line = _curve("running", steps, BLUE, filled=True)
    return _over_time(run, "running", "Running jobs", note, Axis("Jobs", "count"), (line,))


def power(run: Run) -> Panel | None:
    """Power of the machine and of the facility, with the cap, and price or carbon intensity beside it.

    None where cores have no ids, or the platform has no powers.
    """
    if run.platform.kind == "quantities" or not run.platform.power.any():
        return None
    steps = series.power(run)
    unit, size = next(
        (name, watts)
        for name, watts in (("MW", 1e6), ("kW", 1e3), ("W", 1.0))
        if steps.values.max() >= watts or watts == 1
    )
    watts = series.StepFunction(steps.times, steps.values / size, steps.end)
    joules = steps.integral()
    energy = f"{joules / JOULES_PER_KWH:,.1f} kWh" if joules >= JOULES_PER_KWH else f"{joules:,.0f} J"
    note = f"All cores together, idle ones included: {watts.mean():,.3g} {unit} on average, {energy} in all."
    facility, signals = costs.of_facility(run, size)
    if facility:
        kwh = run.metrics["facility_energy_kwh"]
        note += f" With losses and cooling the facility takes {kwh:,.5g} kWh."
    lines = [_curve("machine" if facility or signals else "power", watts, PURPLE, filled=True), *facility]
    if run.cap is not None:
        found = series.StepFunction(
            run.cap.times, np.where(run.cap.watts < np.inf, run.cap.watts / size, np.nan), steps.end
        )
        lines.append(step_line("cap of the machine" if run.cap.hard else "soft cap of the machine", found, RED))
    beside = [
        ("power" if not place else f"power_{label}", label.capitalize(), line, axis)
        for place, (label, line, axis) in enumerate(signals)
    ]
    return _over_time(run, "power", "Power", note, Axis(f"Power ({unit})"), tuple(lines), beside)


def node_states(run: Run) -> Panel | None:
    """Nodes by power state over time; None where none was ever switched off."""
    if run.node_states is None or not len(run.node_states):
        return None
    found = series.nodes_by_state(run)
    colors = {"on": BLUE, "idle": GREEN, "going_down": BROWN, "off": GREY, "booting": ORANGE, "down": RED}
    shown = {name: steps for name, steps in found.items() if steps.values.any()}
    means = ", ".join(f"{steps.mean():,.1f} {name.replace('_', ' ')}" for name, steps in shown.items())
    lines = tuple(_curve(name.replace("_", " "), steps, colors[name]) for name, steps in shown.items())
    note = f"Nodes that serve jobs are on. On average {means}."
    return _over_time(run, "node_states", "Nodes by power state", note, Axis("Nodes", "count"), lines)


def outages(run: Run) -> Panel | None:
    """Outages of nodes over time."""
    found = run.outages
    if found is None:
        return None
    title = "Nodes that are down"
    if not len(found):
        return Panel(title, "No node failed.", ())
    count, down = run.platform.n_nodes, series.down_nodes(run)
    lost = run.metrics.get("lost_work", np.nan)
    work = f"{lost / 3600:,.1f} core hours" if lost >= 3600 else f"{lost:,.0f} core seconds"
    note = (
        f"{len(found):,} outages on {len(np.unique(found.node)):,} of {count:,} nodes, "
        f"at most {down.values.max():,.0f} at once. "
        f"{run.metrics.get('restarts', np.nan):,.0f} times a job was started again; {work} were lost."
    )
    axis = Axis("Nodes", "count")
    views: tuple[View, ...] = (
        View("down_nodes", "Number", Lines(_time(run), axis, (step_line("down", down, GREY, filled=True),))),
    )
    if len(found) <= MAX_SPANS:
        until = np.minimum(found.up, run.end_time)
        nodes = nodes_of(run.platform, np.arange(count + 1))
        chart = _spans(run, "node", nodes, found.node.astype(np.int32), found.down, until, BLACK)
        views = (View("outages", "Spans", chart), *views)
    return Panel(title, note, views)


def oversubscribed_spans(run: Run) -> Panel | None:
    """Spans of oversubscribed memory bandwidth per processor; None where cores have no ids."""
    if run.platform.kind == "quantities":
        return None
    title = "Oversubscribed memory bandwidth"
    processor, begins, ends = run.oversubscribed
    if not len(processor):
        return Panel(title, "No processor was oversubscribed.", ())
    count = run.platform.n_processors
    lanes, shares = processors_of(run.platform), series.oversubscription(run, BINS, ROWS)
    heat = _heat(run, "processor", lanes, shares, "time oversubscribed")
    views: tuple[View, ...] = (View("oversubscription_shares", "Share of time", heat),)
    if len(processor) <= MAX_SPANS:
        chart = _spans(run, "processor", lanes, processor, begins, ends, ROSE)
        views = (View("oversubscription", "Spans", chart), *views)
    touched = len(np.unique(processor))
    note = (
        f"Jobs on a processor ask together for more than its bandwidth, and slow each other down if contention is "
        f"modelled. {len(processor):,} span{'s' * (len(processor) != 1)} on {touched:,} of {count:,} processors."
    )
    return Panel(title, note, views)


def _spans(
    run: Run, lane: str, lanes: Groups, of: NDArray[np.int32], begins: Floats, ends: Floats, color: str
) -> Blocks:
    """Spans of time on lanes; `of` has the lane of each span."""
    y = Axis(lane.capitalize(), "count", high=len(lanes.names))
    facts = (Fact("from", begins, "time"), Fact("to", ends, "time"), Fact("for", ends - begins, "duration"))
    return spans(_time(run), y, begins, ends, of, lanes, facts, colors=(color,), name=lane)


def oversubscribed_processors(run: Run) -> Panel | None:
    """Number of oversubscribed processors over time."""
    if not len(run.oversubscribed[0]):
        return None
    steps = series.oversubscribed_processors(run)
    note = f"Out of {run.platform.n_processors:,}; at most {steps.values.max():,.0f}, {steps.mean():,.1f} on average."
    lines = (_curve("oversubscribed", steps, RED, filled=True),)
    return _over_time(
        run,
        "oversubscribed_processors",
        "Processors with oversubscribed bandwidth",
        note,
        Axis("Processors", "count"),
        lines,
    )


def contention(run: Run) -> Panel | None:
    """Speed lost to contention for memory bandwidth."""
    steps = series.lost_cores(run)
    if not steps.values.any():
        return None
    title = "Speed lost to contention"
    loss = run.metrics.get("contention_loss", np.nan)
    note = (
        "Cores' worth of speed that busy cores lose because jobs compete for memory bandwidth: "
        f"{loss / run.end_time:,.3g} cores on average, at most {steps.values.max():,.4g}."
    )
    return _over_time(run, "contention", title, note, Axis("Cores"), (_curve("lost", steps, RED, filled=True),))


def communication(run: Run) -> Panel | None:
    """Tasks that exchange messages."""
    steps = series.exchanging_tasks(run)
    if not steps.values.any():
        return None
    title = "Tasks exchanging messages"
    note = (
        "Tasks in the communication of a superstep, one a core, while messages are on the network; at most "
        f"{steps.values.max():,.0f}. Jobs spend {100 * run.metrics.get('communication_share', np.nan):.3g} % of "
        "their core time in messages."
    )
    lines = (_curve("exchanging", steps, GREEN, filled=True),)
    return _over_time(run, "communication", title, note, Axis("Tasks", "count"), lines)


def progress(run: Run) -> Panel | None:
    """Jobs submitted and jobs that ended so far."""
    lines = (
        step_line("submitted", series.submitted_jobs(run), GREY),
        step_line("ended", series.ended_jobs(run), GREEN),
    )
    note = "Jobs so far. The gap between the curves consists of waiting, running and rejected jobs."
    return _over_time(run, "progress", "Jobs submitted and ended", note, Axis("Jobs", "count"), lines)


PANELS: tuple[Callable[[Run], Panel | None], ...] = (
    learning.scores,
    learning.rewards,
    learning.losses,
    learning.preferences,
    pods,
    schedule,
    gangs.of_replay,
    utilization,
    queue,
    running,
    power,
    node_states,
    costs.hours_of_days,
    sites.reserved,
    outages,
    oversubscribed_spans,
    oversubscribed_processors,
    contention,
    communication,
    progress,
    distributions.waiting_times,
    distributions.slowdowns,
    distributions.slowdown_factors,
    distributions.barriers,
    jobs.reasons,
    costs.payers,
    *jobs.OWNERS,
    jobs.table,
)


def panels(run: Run) -> list[Panel]:
    """All panels that a run has something to show for."""
    return [panel for make in PANELS if (panel := make(run)) is not None]


def _time(run: Run) -> Axis:
    return Axis("Time since first submission", "time", 0.0, run.end_time if run.end_time > 0 else 1.0)


def _curve(label: str, steps: series.StepFunction, color: str, *, filled: bool = False) -> Line:
    """Returns a step function as a curve; one of more than POINTS steps as a moving mean with a band."""
    if len(steps.times) <= POINTS:
        return step_line(label, steps, color, filled=filled)
    begins, means, low, high = steps.stretches(STRETCHES)
    window = np.ones(WINDOW)
    mean = np.convolve(means, window, "same") / np.convolve(np.ones(STRETCHES), window, "same")
    mean, low, high = (np.append(column, column[-1]) for column in (mean, low, high))
    return Line(label, np.append(begins, steps.end), mean, color, low=low, high=high)


def _over_time(
    run: Run,
    key: str,
    title: str,
    note: str,
    y: Axis,
    lines: tuple[Line, ...],
    beside: Sequence[tuple[str, str, Line, Axis]] = (),
) -> Panel | None:
    """Returns curves over the period of a run, None if no job has ended.

    Each curve `beside` them makes a view of its own, of a key and a label, with its axis at the right.
    """
    if not len(run.jobs["job_id"]):
        return None
    if any(line.low is not None for line in lines):
        span = run.end_time / STRETCHES
        note += (
            f" The line is a moving mean over {duration(WINDOW * span)}, the band spans the values of {duration(span)}."
        )
    x = _time(run)
    views = [View(own, label, Lines(x, y, (*lines, line), axis)) for own, label, line, axis in beside]
    return Panel(title, note, tuple(views or [View(key, title, Lines(x, y, lines))]))
