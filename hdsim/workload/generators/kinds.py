"""Kinds of machines and loads: traces by a declarative file, which others can send (docs/workload.md).

A kind has classes of jobs. Users of a class open sessions, whose starts follow a renewal process on a clock with the
cycles of day and week; a session has submissions, each after the submission or after the end of the one before it; a
submission has one or several jobs. The clock of the trace begins on Monday at 0:00.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError, WorkloadError
from hdsim.kernels.heap import make_heap
from hdsim.util.arrays import Floats, Ints
from hdsim.util.inputs import read_yaml
from hdsim.util.resources import bundled, resolve
from hdsim.util.rules import (
    FLAG,
    NOT_NEGATIVE,
    POSITIVE,
    TEXT,
    Rule,
    ascends,
    check_keys,
    integers_from,
    lists_of,
    numbers_between,
    require,
)
from hdsim.util.units import LONGEST_TIME
from hdsim.workload.generators.base import SPLITS, Generator, require_split, seed_in
from hdsim.workload.generators.distributions import Distribution, distribution
from hdsim.workload.kernels.feedback import Submissions, submitted
from hdsim.workload.model import Workload

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

#: Version of the format of files.
VERSION = 1
HOUR, DAY, WEEK = 3600, 86400, 604800
#: Relative rates of the hours of a day.
DAYS: Mapping[str, Sequence[float]] = {
    "flat": [1.0] * 24,
    "office": [
        *(0.3, 0.25, 0.2, 0.2, 0.2, 0.25, 0.4, 0.7, 1.2, 1.8, 2.0, 2.0),
        *(1.7, 1.8, 2.0, 2.0, 1.9, 1.7, 1.3, 1.0, 0.8, 0.7, 0.6, 0.4),
    ],
    "night": [2.0] * 6 + [1.0, 0.5] + [0.25] * 10 + [0.5, 1.0] + [1.5, 2.0, 2.0, 2.0],
}
#: Relative rates of the days of a week, from Monday.
WEEKS: Mapping[str, Sequence[float]] = {
    "flat": [1.0] * 7,
    "working": [1.2, 1.3, 1.3, 1.3, 1.1, 0.45, 0.35],
}
#: Requests of jobs: what `of` is, "" where there is none.
REQUESTS = {
    "exact": "",
    "limit": "",
    "factor": "requested time / run time",
    "drawn": "requested time in seconds",
}
#: Rounds after which the span of the jobs is accepted, and its accepted relative error.
_ROUNDS, _CLOSE = 25, 0.002


@dataclass(frozen=True)
class LoadClass:
    """Jobs of one class; see docs/workload.md for the keys of the file.

    Attributes:
        name: Its name, which is that of its queue.
        share: Its share of the jobs, relative to those of the other classes.
        users: Number of its users.
        activity: Exponent of Zipf's law of their sessions; 0: all have as many.
        gaps: Gaps between the starts of sessions, up to a factor.
        rates: (168,) relative rates of the hours of a week, with mean 1.
        submissions: Submissions of a session.
        think: Seconds between two submissions of a session.
        waits: Whether `think` begins when all jobs of the submission have ended.
        repeat: Probability that a submission has the cores, and nearly the run time, of the user's one before it.
        spread: Standard deviation of the logarithm of run times of repeated submissions.
        jobs: Jobs of a submission.
        job_gap: Seconds between two of them.
        job_spread: Standard deviation of the logarithm of their run times.
        cores: Cores, or shares of the machine.
        of_machine: Whether `cores` are shares of the machine.
        multiple: Cores are rounded up to multiples of this.
        runtime: Run time in seconds.
        scaling: Exponent of the cores in a factor of the run time.
        limit: Longest run time and requested time in seconds; longer jobs end there.
        request: One of :data:`REQUESTS`.
        request_of: See :data:`REQUESTS`.
        rounds: Requested times are rounded up to one of these; the last one is the longest.
        under: Requested times may be below run times.
        failures: Share of jobs that fail.
        after: Seconds after which they fail, if they have not ended by then.
    """

    name: str
    share: float
    users: int
    activity: float
    gaps: Distribution
    rates: Floats
    submissions: Distribution
    think: Distribution
    waits: bool
    repeat: float
    spread: float
    jobs: Distribution
    job_gap: Distribution
    job_spread: float
    cores: Distribution
    of_machine: bool
    multiple: int
    runtime: Distribution
    scaling: float
    limit: float
    request: str
    request_of: Distribution | None
    rounds: Floats
    under: bool
    failures: float
    after: Distribution


@dataclass(frozen=True)
class LoadKind:
    """A kind of machine and load.

    Attributes:
        name: Name of its file.
        about: A sentence.
        held_out: Agents of hdsim are tested on it and never trained.
        cores: Sizes of the machine, equally likely.
        load: Least and greatest offered load of a trace, see :attr:`hdsim.workload.model.Workload.offered_load`.
        classes: Classes of jobs.
    """

    name: str
    about: str
    held_out: bool
    cores: tuple[int, ...]
    load: tuple[float, float]
    classes: tuple[LoadClass, ...]


class Kind(Generator):
    """Jobs of a kind of machine and load, a file or a bundled name (`kind`); docs/workload.md explains the file."""

    def __init__(
        self,
        kind: str,
        jobs: int = 10_000,
        split: str | None = None,
        load: float | None = None,
        processors: int | None = None,
    ) -> None:
        """Reads the file.

        Args:
            kind: The file, or a bundled name.
            jobs: Number of jobs.
            split: ``train``, ``validation`` or ``test``, whose traces have other seeds; None: those of ``train``.
            load: Offered load, by default that of the kind.
            processors: Size of the machine, by default that of the platform, or else of the kind.
        """
        where = "workload.generate"
        rules = {"jobs": integers_from(1), "load": POSITIVE, "processors": integers_from(1)}
        given = {"jobs": jobs, "load": load, "processors": processors}
        require(where, rules, {key: value for key, value in given.items() if value is not None})
        self._kind, self._jobs, self._split = read_kind(kind), int(jobs), require_split(split or SPLITS[0])
        self._load, self._cores = load, None if processors is None else int(processors)

    def generate(self, platform: Platform | None, seed: int) -> Workload:
        own = seed_in(self._split, seed)
        cores = self._cores or (platform.n_cpu_cores if platform else None)
        trace = draw_kind(self._kind, self._jobs, own, load=self._load, cores=cores)
        told = f"{trace.source[1:-1]}, {self._split} {seed}"
        return replace(trace, source=f"<{told}>", header={**trace.header, "Note": f"{told}: {trace.header['Note']}"})


def draw_kind(
    kind: LoadKind,
    jobs: int,
    seed: int | np.random.SeedSequence,
    *,
    load: float | None = None,
    cores: int | None = None,
) -> Workload:
    """Draws a trace of a kind; equal arguments give equal traces.

    Users, queues (classes) and failures (SWF status 0) are columns. ``Workload.further`` has ``session`` and
    ``submission``, numbers that the jobs of a session or submission share, and ``think_time``, the seconds between a
    submission and what it waited for, -1 for the first of a session.

    Raises:
        WorkloadError: The jobs would be submitted over more than 10^12 s.
    """
    root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    sources = root.spawn(1 + len(kind.classes))
    rng = np.random.default_rng(sources[0])
    size = int(rng.choice(kind.cores)) if cores is None else cores
    drawn_load, phase = rng.uniform(*kind.load), HOUR * int(rng.integers(WEEK // HOUR))
    target = drawn_load if load is None else load
    parts = [
        _drawn(each, count, size, np.random.default_rng(source))
        for each, count, source in zip(kind.classes, _counts(kind.classes, jobs), sources[1:], strict=True)
        if count
    ]
    whole = _joined(parts)
    times = _placed(whole, size, target, phase)
    classes = [each.name for each in kind.classes]
    return Workload.from_columns(
        job_id=np.argsort(np.argsort(times, kind="stable"), kind="stable") + 1,
        submission_time=times,
        original_submission_time=times + phase,
        runtime=whole.runtime,
        requested_time=whole.requested,
        requested_cores=whole.size,
        user=whole.user,
        queue=np.array([classes.index(part.name) for part in parts])[whole.part],
        status=np.where(whole.failed, 0, 1),
        return_code=whole.failed.astype(np.int64),
        names={"queue": dict(enumerate(classes))},
        further={"session": whole.session, "submission": whole.submission, "think_time": whole.think},
        source=f"<kind {kind.name}>",
        header={
            "Version": "2.2",
            "Information": f"Kind {kind.name}: {kind.about}",
            "MaxProcs": str(size),
            "Note": f"load {target:g}, cores {size}",
        },
    )


@dataclass(frozen=True)
class _Part:
    """Jobs of one class in order of sessions and submissions; J jobs, S submissions, V sessions."""

    name: str
    rates: Floats
    place: Floats  # (V,) place of the start of each session in the span of the trace, from 0 to 1
    session_of: Ints  # (S,) session of each submission
    pause: Floats  # (S,) seconds after what it waits for, -1 for the first of a session
    waits: bool
    submission_of: Ints  # (J,)
    offset: Floats  # (J,) seconds after the begin of the submission
    user: Ints
    size: Ints
    runtime: Floats
    requested: Floats
    failed: np.ndarray


@dataclass(frozen=True)
class _Whole:
    """Jobs of all classes, one class after the other."""

    parts: Sequence[_Part]
    part: Ints
    session: Ints
    submission: Ints
    think: Floats
    user: Ints
    size: Ints
    runtime: Floats
    requested: Floats
    failed: np.ndarray


def _counts(classes: Sequence[LoadClass], jobs: int) -> list[int]:
    """Numbers of jobs of the classes: those of the shares, rounded such that the sum is right."""
    shares = np.array([each.share for each in classes])
    ends = np.round(np.cumsum(shares) / shares.sum() * jobs).astype(int)
    counts: list[int] = np.diff(ends, prepend=0).tolist()
    return counts


def _drawn(each: LoadClass, count: int, cores: int, rng: np.random.Generator) -> _Part:
    """Draws `count` jobs of a class."""
    # No more sessions and submissions than jobs are needed; each quantity has a generator of its own.
    streams = iter(rng.spawn(14))
    most = max(count, 1)
    lengths = np.clip(np.round(each.submissions.draw(next(streams), count)), 1, most).astype(np.int64)
    sizes = np.clip(np.round(each.jobs.draw(next(streams), count)), 1, most).astype(np.int64)
    submissions = int(np.searchsorted(np.cumsum(sizes), count)) + 1
    sizes = sizes[:submissions]
    sizes[-1] -= sizes.sum() - count
    sessions = int(np.searchsorted(np.cumsum(lengths), submissions)) + 1
    session_of = np.repeat(np.arange(sessions), lengths[:sessions])[:submissions]
    begins = np.diff(session_of, prepend=-1) > 0
    gaps = np.cumsum(each.gaps.draw(next(streams), sessions + 1))
    place = gaps[:-1] / gaps[-1] if gaps[-1] > 0 else np.zeros(sessions)
    weights = np.arange(1.0, each.users + 1) ** -each.activity
    user = next(streams).choice(each.users, sessions, p=weights / weights.sum())[session_of]
    asked = each.cores.draw(next(streams), submissions) * (cores if each.of_machine else 1)
    asked = np.ceil(np.round(asked, 6) / each.multiple) * each.multiple if each.multiple > 1 else np.round(asked)
    wide = np.clip(asked, 1, cores).astype(np.int64)
    level = each.runtime.draw(next(streams), submissions) * wide.astype(float) ** each.scaling
    again = next(streams).random(submissions) < each.repeat
    factor = np.exp(each.spread * next(streams).standard_normal(submissions))
    last: dict[int, int] = {}
    for row, one in enumerate(user.tolist()):
        if again[row] and one in last:
            wide[row], level[row] = wide[last[one]], level[last[one]] * factor[row]
        last[one] = row
    pause = np.where(begins, -1.0, np.round(each.think.draw(next(streams), submissions)))
    submission_of = np.repeat(np.arange(submissions), sizes)
    within = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    apart = np.round(each.job_gap.draw(next(streams), count))
    total = np.cumsum(np.where(within > 0, apart, 0.0))
    offset = total - total[np.cumsum(sizes) - sizes][submission_of]
    size = wide[submission_of]
    spread = np.exp(each.job_spread * next(streams).standard_normal(count))
    runtime = np.clip(np.round(level[submission_of] * spread), 1.0, each.limit)
    requested = _requested(each, level, submission_of, runtime, next(streams))
    fails = next(streams).random(count) < each.failures
    after = np.maximum(np.round(each.after.draw(next(streams), count)), 1.0)
    failed = fails & (after < runtime)
    return _Part(
        each.name,
        each.rates,
        place,
        session_of,
        pause,
        each.waits,
        submission_of,
        offset,
        user[submission_of],
        size,
        np.where(failed, after, runtime),
        requested,
        failed,
    )


def _requested(
    each: LoadClass, level: Floats, submission_of: Ints, runtime: Floats, rng: np.random.Generator
) -> Floats:
    """(J,) requested times: one for all jobs of a submission, unless they are exact, and not below the run time."""
    if each.request == "exact":
        requested = runtime
    elif each.request == "limit":
        requested = np.full(len(runtime), each.limit)
    else:
        assert each.request_of is not None
        drawn = each.request_of.draw(rng, len(level))
        requested = (drawn * level if each.request == "factor" else drawn)[submission_of]
    requested = np.ceil(np.minimum(requested, each.limit))
    if not each.under:
        requested = np.maximum(requested, runtime)
    if len(each.rounds):
        requested = each.rounds[np.minimum(np.searchsorted(each.rounds, requested), len(each.rounds) - 1)]
    return np.maximum(requested, 1.0)


def _joined(parts: Sequence[_Part]) -> _Whole:
    def joined(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    sessions = np.cumsum([0, *(len(part.place) for part in parts)])
    submissions = np.cumsum([0, *(len(part.session_of) for part in parts)])
    # Users of a class are no users of another one.
    users = np.cumsum([1, *(int(part.user.max()) + 1 for part in parts)])
    return _Whole(
        parts,
        np.repeat(np.arange(len(parts)), [len(part.size) for part in parts]),
        np.concatenate(
            [part.session_of[part.submission_of] + first for part, first in zip(parts, sessions, strict=False)]
        ),
        np.concatenate([part.submission_of + first for part, first in zip(parts, submissions, strict=False)]),
        np.concatenate([part.pause[part.submission_of] for part in parts]),
        np.concatenate([part.user + first for part, first in zip(parts, users, strict=False)]),
        joined("size"),
        joined("runtime"),
        joined("requested"),
        joined("failed"),
    )


def _placed(whole: _Whole, cores: int, load: float, phase: float) -> Floats:
    """(J,) submission times in whole seconds, from 0 on, such that the offered load is the one asked for."""
    work = float(whole.size @ whole.runtime)
    target = work / (cores * load)
    if target > LONGEST_TIME / 4:
        raise WorkloadError(f"expected jobs that arrive within 10^12 s, got {target:g} s", where="workload.generate")
    span, best, least = target, np.zeros(len(whole.size)), math.inf
    for _ in range(_ROUNDS):
        times = _submitted(whole, cores, span, phase)
        times -= times.min()
        got = float(times.max())
        error = abs(got / target - 1)
        if error < least:
            best, least = times, error
        # Submissions are whole seconds; where they wait for jobs the span may stay longer than asked for.
        if least <= _CLOSE or got <= 0:
            break
        span *= min(max(target / got, 0.5), 2.0)
    return best


def _submitted(whole: _Whole, cores: int, span: float, phase: float) -> Floats:
    """(J,) submission times if sessions start within `span` seconds."""
    found, begins, pauses, following, offsets = [], [], [], [], []
    feedback, count = any(part.waits for part in whole.parts), 0
    for part in whole.parts:
        start = _on_clock(part.place, part.rates, span, phase)[part.session_of]
        first = part.pause < 0
        if part.waits:
            begin, after = np.where(first, start, math.inf), np.append(~first[1:], False)
        else:
            # Sessions that would end after the span are under way at its begin.
            paused = np.where(first, 0.0, part.pause)
            total = np.cumsum(paused)
            since = total - total[np.flatnonzero(first)][part.session_of - part.session_of[0]]
            begin, after = (start + since) % span, np.zeros(len(first), bool)
        if not feedback:
            found.append(np.floor(begin[part.submission_of] + part.offset))
            continue
        begins.append(begin)
        pauses.append(np.maximum(part.pause, 0.0))
        following.append(np.where(after, np.arange(len(first)) + count + 1, -1))
        offsets.append(part.offset)
        count += len(first)
    if not feedback:
        return np.concatenate(found)
    edges = np.searchsorted(whole.submission, np.arange(count + 1))
    plan = Submissions(
        np.concatenate(begins),
        np.concatenate(pauses),
        np.concatenate(following),
        edges.astype(np.int64),
        np.concatenate(offsets),
        whole.runtime,
        whole.size,
    )
    return submitted(plan, cores, make_heap(len(whole.size)), make_heap(len(whole.size)))


def _on_clock(place: Floats, rates: Floats, span: float, phase: float) -> Floats:
    """(V,) seconds of places from 0 to 1 in a span, which begins `phase` seconds after Monday, under hourly rates."""
    hours = np.append(np.arange(0.0, span, HOUR), span)
    weights = rates[((phase + hours[:-1]) // HOUR).astype(np.int64) % len(rates)]
    ends = np.cumsum(weights * np.diff(hours))
    if ends[-1] <= 0:
        return place * span
    u = place * ends[-1]
    which = np.minimum(np.searchsorted(ends, u, side="right"), len(ends) - 1)
    since = u - (ends[which] - weights[which] * np.diff(hours)[which])
    return np.minimum(hours[which] + since / np.where(weights[which] > 0, weights[which], 1.0), span)


def kinds() -> dict[str, LoadKind]:
    """Returns the bundled kinds by name."""
    return {name: read_kind(path) for name, path in bundled("kinds").items()}


def is_kind(source: str) -> bool:
    """Whether a text is the name of a bundled kind, or a YAML file."""
    return source in bundled("kinds") or source.endswith((".yaml", ".yml"))


def read_kind(name_or_path: str | Path) -> LoadKind:
    """Reads a kind from a YAML file, or the bundled one of a name.

    Raises:
        ConfigError: There is none, or it is wrong.
    """
    path = resolve("kinds", name_or_path, where="workload.kind").resolve()
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _read(path: Path, changed: int) -> LoadKind:
    document = read_yaml(path, ConfigError, "YAML")
    if not isinstance(document, Mapping):
        raise ConfigError("expected a mapping with version, about, machine, load and classes", where=str(path))
    return kind_of(document, path.stem, str(path))


_SHARE = numbers_between(0, 1)
_RANGE = POSITIVE | lists_of(POSITIVE, "[low, high] of such", 2, lambda ends: ends[0] <= ends[1])
_SIZES = integers_from(1) | lists_of(integers_from(1), "a list of such")
_ROUND = lists_of(POSITIVE, "a list of ascending numbers > 0", holds=ascends)
_DISTRIBUTION = Rule("a distribution", lambda value: True)


def _hours(names: Mapping[str, Sequence[float]], count: int) -> Rule:
    named = Rule(", ".join(names), lambda value: isinstance(value, str) and value in names)
    return named | lists_of(NOT_NEGATIVE, f"{count} numbers >= 0, one above 0", count, any)


_TOP = {
    "version": Rule(f"{VERSION}", lambda value: value == VERSION),
    "about": TEXT,
    "held_out": FLAG,
    "machine": Rule("a mapping with cores", lambda value: isinstance(value, Mapping)),
    "load": _RANGE,
    "classes": Rule("a mapping of classes by name", lambda value: isinstance(value, Mapping) and bool(value)),
}
#: A number of users; a draw takes memory for each.
_USERS = Rule("a whole number from 1 to 10,000,000", lambda value: integers_from(1).accepts(value) and value <= 10**7)
#: Keys of a class, those of its groups as mappings; every value has a default but those of `_REQUIRED`.
_CLASS: Mapping[str, Any] = {
    "share": POSITIVE,
    "users": {"number": _USERS, "activity": NOT_NEGATIVE},
    "arrivals": {"gaps": _DISTRIBUTION, "day": _hours(DAYS, 24), "week": _hours(WEEKS, 7)},
    "session": {
        "submissions": _DISTRIBUTION,
        "think": _DISTRIBUTION,
        "after": Rule("submission or end", lambda value: value in ("submission", "end")),
        "repeat": _SHARE,
        "spread": NOT_NEGATIVE,
    },
    "array": {"jobs": _DISTRIBUTION, "gap": _DISTRIBUTION, "spread": NOT_NEGATIVE},
    "cores": _DISTRIBUTION,
    "machine_share": _DISTRIBUTION,
    "multiple": integers_from(1),
    "runtime": _DISTRIBUTION,
    "scaling": numbers_between(-2, 2),
    "limit": POSITIVE,
    "request": {
        "shape": Rule(", ".join(REQUESTS), lambda value: value in REQUESTS),
        "of": _DISTRIBUTION,
        "round": _ROUND,
        "under": FLAG,
    },
    "failures": {"share": _SHARE, "after": _DISTRIBUTION},
}


def kind_of(document: Mapping[str, Any], name: str, where: str) -> LoadKind:
    """Makes a kind of the content of a file; `where` is the place for errors.

    Raises:
        ConfigError: A key is missing or unknown, or a value is not allowed.
    """
    check_keys(where, document, _TOP)
    for key in ("version", "about", "machine", "load", "classes"):
        if key not in document:
            raise ConfigError(f"expected {_TOP[key].expected}, got none", where=f"{where}.{key}")
    require(where, _TOP, document)
    machine = document["machine"]
    check_keys(f"{where}.machine", machine, ("cores",))
    require(f"{where}.machine", {"cores": _SIZES}, {"cores": machine.get("cores")})
    cores, load = machine["cores"], document["load"]
    return LoadKind(
        name,
        " ".join(document["about"].split()),
        document.get("held_out", False),
        tuple(map(int, cores)) if isinstance(cores, list | tuple) else (int(cores),),
        (load[0], load[1]) if isinstance(load, list | tuple) else (load, load),
        tuple(_class_of(key, value, f"{where}.classes.{key}") for key, value in document["classes"].items()),
    )


def _class_of(name: str, given: Any, where: str) -> LoadClass:
    if not isinstance(given, Mapping):
        raise ConfigError(f"expected a mapping with {', '.join(_CLASS)}", where=where)
    check_keys(where, given, _CLASS)
    flat: dict[str, Any] = {}
    for key, rule in _CLASS.items():
        if not isinstance(rule, Mapping):
            if key in given:
                require(where, {key: rule}, given)
                flat[key] = given[key]
            continue
        group = given.get(key, {})
        if not isinstance(group, Mapping):
            raise ConfigError(f"expected a mapping with {', '.join(rule)}, got {group!r}", where=f"{where}.{key}")
        check_keys(f"{where}.{key}", group, rule)
        require(f"{where}.{key}", rule, group)
        flat |= {f"{key}.{part}": value for part, value in group.items()}

    def drawn(key: str, default: Any = None) -> Distribution:
        if key not in flat and default is None:
            raise ConfigError("expected a distribution, got none", where=f"{where}.{key}")
        return distribution(flat.get(key, default), f"{where}.{key}")

    if ("cores" in flat) == ("machine_share" in flat):
        raise ConfigError("expected cores or machine_share, one of them", where=where)
    shape = flat.get("request.shape", "exact")
    if (REQUESTS[shape] != "") != ("request.of" in flat):
        told = f"expected a distribution ({REQUESTS[shape]})" if REQUESTS[shape] else "expected none"
        raise ConfigError(f"{told} with shape {shape}", where=f"{where}.request.of")
    if shape == "limit" and "limit" not in flat:
        raise ConfigError("expected a number > 0 with the request's shape limit, got none", where=f"{where}.limit")
    day, week = flat.get("arrivals.day", "flat"), flat.get("arrivals.week", "flat")
    rates = np.outer(WEEKS[week] if isinstance(week, str) else week, DAYS[day] if isinstance(day, str) else day)
    return LoadClass(
        name=str(name),
        share=flat.get("share", 1.0),
        users=int(flat.get("users.number", 1)),
        activity=flat.get("users.activity", 0.0),
        gaps=drawn("arrivals.gaps", {"exponential": {"mean": 1}}),
        rates=rates.ravel() / rates.mean(),
        submissions=drawn("session.submissions", 1),
        think=drawn("session.think", 0),
        waits=flat.get("session.after", "submission") == "end",
        repeat=flat.get("session.repeat", 0.0),
        spread=flat.get("session.spread", 0.0),
        jobs=drawn("array.jobs", 1),
        job_gap=drawn("array.gap", 0),
        job_spread=flat.get("array.spread", 0.0),
        cores=drawn("cores" if "cores" in flat else "machine_share"),
        of_machine="cores" not in flat,
        multiple=int(flat.get("multiple", 1)),
        runtime=drawn("runtime"),
        scaling=flat.get("scaling", 0.0),
        limit=min(flat.get("limit", 1e9), *flat.get("request.round", [1e9])[-1:]),
        request=shape,
        request_of=drawn("request.of") if "request.of" in flat else None,
        rounds=np.array(flat.get("request.round", []), float),
        under=flat.get("request.under", False),
        failures=flat.get("failures.share", 0.0),
        after=drawn("failures.after", 0) if not flat.get("failures.share") else drawn("failures.after"),
    )
