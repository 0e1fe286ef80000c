"""Programs of jobs: steps of computation and messages, compiled from Batsim profiles.

A rigid job that only computes has no program. Work is in reference seconds, volumes are in bytes.

Profiles follow Batsim (https://batsim.readthedocs.io/en/latest/input-workload.html); type ``bsp`` is hdsim's own and
follows Valiant, A bridging model for parallel computation, CACM 33 (8), 1990.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import chain
from typing import Any

from hdsim.errors import WorkloadError, nearest
from hdsim.util.copies import itself
from hdsim.util.text import shown
from hdsim.workload.patterns import Pattern, make_pattern

#: Profile types, in the order in which messages list them.
TYPES = ("delay", "parallel", "parallel_homogeneous", "parallel_homogeneous_total", "composed", "sequence", "bsp")
#: Keys of profiles of type ``bsp``; those from ``req_time`` on are keys of all types.
_BSP_KEYS = ("type", "supersteps", "cpu", "com", "pattern", "g", "l", "req_time", "req_ops", "mem", "mem_bw", "ret")
#: Upper limit for the steps of a job, which catches mistakes in `repeat`.
MOST_STEPS = 1_000_000
_GIGA = 1e9
#: Limit of numbers, since JSON has integers that no float can represent.
_HUGE = 1e300


class StepType(IntEnum):
    """Synchronisation of the tasks in a step."""

    #: A fixed duration that does not depend on the speed of the cores.
    DELAY = 0
    #: Computations and messages progress at one common rate (parallel task of SimGrid).
    PARALLEL_TASK = 1
    #: Tasks compute at individual speeds, then exchange messages, then wait at a barrier.
    SUPERSTEP = 2


@dataclass(frozen=True, eq=False)
class Step:
    """The work and the messages of the tasks of a job up to the next synchronisation."""

    __deepcopy__ = itself

    kind: StepType  # see :class:`StepType`
    work: tuple[float, ...]  # reference seconds of each task, or one number for all tasks
    pattern: Pattern | None = None  # messages, None for none
    gap: float = 0.0  # Valiant's g in seconds per byte, used if the network is not simulated
    latency: float = 0.0  # Valiant's l in seconds: duration of the barrier after the last message

    @cached_property
    def longest(self) -> float:
        """Reference seconds of the task with the most work."""
        return max(self.work)


@dataclass(frozen=True, eq=False)
class Program:
    """The consecutive steps of a job with `tasks` tasks, one per core; equal steps are one object."""

    __deepcopy__ = itself

    tasks: int
    steps: tuple[Step, ...]

    @cached_property
    def runtime(self) -> float:
        """Seconds on cores of the reference speed without messages and barriers."""
        return math.fsum(step.longest for step in self.steps)

    @cached_property
    def supersteps(self) -> int:
        """Number of supersteps."""
        return sum(step.kind == StepType.SUPERSTEP for step in self.steps)

    @cached_property
    def fingerprint(self) -> bytes:
        """Digest that is equal for equal programs."""
        number: dict[Step, int] = {}
        order = [number.setdefault(step, len(number)) for step in self.steps]
        digest = hashlib.sha256(repr((self.tasks, order)).encode())
        for step in number:
            digest.update(repr((int(step.kind), step.work, step.gap, step.latency)).encode())
            if step.pattern is not None:
                pattern = step.pattern
                digest.update(repr((pattern.exchange, len(pattern.volumes))).encode())
                for ends in (pattern.sources, pattern.targets, pattern.volumes):
                    digest.update(ends.tobytes())
        return digest.digest()

    @property
    def is_rigid(self) -> bool:
        """Whether all tasks only compute, with equal work, so that `runtime` describes the program."""
        step = self.steps[0]
        parallel = step.kind == StepType.PARALLEL_TASK
        return len(self.steps) == 1 and parallel and len(step.work) == 1 and step.pattern is None


def parts_of(names: Iterable[str], profiles: Mapping[str, Any]) -> dict[str, Any]:
    """Selects profiles by known names with all profiles that they are composed of, in the order of `profiles`."""
    needed, new = set(), [name for name in names if name in profiles]
    while new:
        name = new.pop()
        if name not in needed:
            needed.add(name)
            parts = profiles[name].get("seq") if isinstance(profiles[name], Mapping) else None
            new += [part for part in parts if part in profiles] if isinstance(parts, list) else []
    return {name: profile for name, profile in profiles.items() if name in needed}


def steps_of(name: str, profiles: Mapping[str, Any]) -> int:
    """Returns the number of steps of a job with a profile."""
    profile = profiles[name]
    if profile["type"] == "bsp":
        return int(profile.get("supersteps", 1))
    if profile["type"] in ("composed", "sequence"):
        return int(profile.get("repeat", 1)) * sum(steps_of(part, profiles) for part in profile["seq"])
    return 1


def progress_of(name: str, profiles: Mapping[str, Any], done: int, share: float) -> dict[str, Any]:
    """Returns the progress of a job with a profile in the format of Batsim's event JOB_KILLED.

    `done` steps are completed, and a share (0..1) of the current one.
    """
    profile = profiles[name]
    if profile["type"] not in ("composed", "sequence"):
        return {"profile_name": name, "progress": (done + share) / steps_of(name, profiles)}
    parts = [(part, steps_of(part, profiles)) for part in profile["seq"]]
    repeated, done = divmod(done, sum(steps for _, steps in parts))
    index = 0
    while done >= parts[index][1]:
        done -= parts[index][1]
        index += 1
    return {
        "profile_name": name,
        "current_task_index": repeated * len(parts) + index,
        "current_task": progress_of(parts[index][0], profiles, done, share),
    }


class Compiler:
    """Compiles Batsim profiles to programs; equal arguments give the same object.

    The reference speed in GFLOP/s converts operations to seconds, None if unknown; `where` is the origin of the
    profiles.
    """

    def __init__(self, profiles: Mapping[str, Any], reference_gflops: float | None, where: str) -> None:
        self._profiles = profiles
        self._reference = reference_gflops
        self._where = where
        self._programs: dict[tuple[str, int], Program] = {}
        self._steps: dict[tuple[str, int], tuple[Step, ...]] = {}

    def program(self, name: str, tasks: int) -> Program:
        """Returns the program of a job.

        Raises:
            WorkloadError: The profile, or one that it is composed of, is malformed or for another number of tasks.
        """
        key = (name, tasks)
        if key not in self._programs:
            self._programs[key] = Program(tasks, self._steps_of(name, tasks, ()))
        return self._programs[key]

    def _steps_of(self, name: str, tasks: int, within: tuple[str, ...]) -> tuple[Step, ...]:
        key = (name, tasks)
        if key in self._steps:
            return self._steps[key]
        profile = self._profiles.get(name)
        if not isinstance(profile, Mapping):
            raise self._fault(f"expected an object, got {shown(profile)}", name)
        kind = profile.get("type")
        if kind in ("composed", "sequence"):
            steps = self._sequence(name, profile, tasks, within)
        elif kind == "bsp":
            steps = self._supersteps(name, profile, tasks)
        elif kind == "delay":
            steps = (Step(StepType.DELAY, (self._number(profile.get("delay"), name, "delay"),)),)
        elif kind == "parallel":
            steps = (self._parallel(name, profile, tasks),)
        elif kind in ("parallel_homogeneous", "parallel_homogeneous_total"):
            steps = (self._homogeneous(name, profile, tasks, total=kind != "parallel_homogeneous"),)
        else:
            raise self._fault(
                f"profile type {shown(kind)} is not supported{nearest(str(kind), TYPES)}; allowed: {', '.join(TYPES)}",
                name,
                "type",
            )
        self._steps[key] = steps
        return steps

    def _sequence(self, name: str, profile: Mapping[str, Any], tasks: int, within: tuple[str, ...]) -> tuple[Step, ...]:
        if name in within:
            raise self._fault(f"profile '{name}' contains itself", name, "seq")
        parts = profile.get("seq")
        if not isinstance(parts, list) or not parts:
            raise self._fault(f"expected a list of names of profiles, got {shown(parts)}", name, "seq")
        for index, part in enumerate(parts):
            if not isinstance(part, str) or part not in self._profiles:
                raise self._fault(
                    f"expected the name of a profile in 'profiles', got {shown(part)}"
                    f"{nearest(str(part), self._profiles)}",
                    name,
                    f"seq[{index}]",
                )
        repeat = self._count(profile.get("repeat", 1), name, "repeat")
        pieces = [self._steps_of(part, tasks, (*within, name)) for part in parts]
        total = repeat * sum(map(len, pieces))
        if total > MOST_STEPS:
            raise self._fault(f"expected at most {MOST_STEPS:,} steps, got {total:,}", name, "repeat")
        return tuple(chain.from_iterable(pieces)) * repeat

    def _supersteps(self, name: str, profile: Mapping[str, Any], tasks: int) -> tuple[Step, ...]:
        count = self._count(profile.get("supersteps", 1), name, "supersteps")
        if count > MOST_STEPS:
            raise self._fault(f"expected at most {MOST_STEPS:,} supersteps, got {count:,}", name, "supersteps")
        for key in profile:
            if key not in _BSP_KEYS:
                raise self._fault(f"unknown key{nearest(key, _BSP_KEYS)}; allowed: {', '.join(_BSP_KEYS)}", name, key)
        volume = self._number(profile.get("com", 0), name, "com")
        try:
            pattern = make_pattern(profile.get("pattern", "h_relation"), tasks, volume)
        except WorkloadError as error:
            raise self._fault(error.message, name, "pattern") from error
        gap = self._number(profile.get("g", 0), name, "g")
        latency = self._number(profile.get("l", 0), name, "l")
        cpu = profile.get("cpu", 0)

        def step(work: tuple[float, ...]) -> Step:
            return Step(StepType.SUPERSTEP, work, _unless_empty(pattern), gap, latency)

        if isinstance(cpu, list) and cpu and isinstance(cpu[0], list):
            if len(cpu) != count:
                raise self._fault(f"expected a row for each of {count} supersteps, got {len(cpu)}", name, "cpu")
            return tuple(step(self._works(row, name, f"cpu[{index}]", tasks)) for index, row in enumerate(cpu))
        if isinstance(cpu, list):
            return (step(self._works(cpu, name, "cpu", tasks)),) * count
        return (step((self._seconds(cpu, name, "cpu"),)),) * count

    def _parallel(self, name: str, profile: Mapping[str, Any], tasks: int) -> Step:
        cpu, com = profile.get("cpu"), profile.get("com")
        work = (0.0,) if cpu is None and com is not None else self._works(cpu, name, "cpu", tasks)
        # Batsim's workloads also write 0 for no communication.
        if com is None or com == 0:
            return Step(StepType.PARALLEL_TASK, work)
        if not isinstance(com, list) or len(com) != tasks * tasks:
            got = f"{len(com)} numbers" if isinstance(com, list) else shown(com)
            raise self._fault(f"expected {tasks} x {tasks} volumes in one list, got {got}", name, "com")
        values = [self._number(value, name, f"com[{index}]") for index, value in enumerate(com)]
        return Step(StepType.PARALLEL_TASK, work, _unless_empty(make_pattern(values, tasks)))

    def _homogeneous(self, name: str, profile: Mapping[str, Any], tasks: int, *, total: bool) -> Step:
        work = self._seconds(profile.get("cpu", 0), name, "cpu")
        volume = self._number(profile.get("com", 0), name, "com")
        if total:
            # As in Batsim: the total volume is divided among the tasks.
            work /= tasks
            volume /= tasks
        return Step(StepType.PARALLEL_TASK, (work,), _unless_empty(make_pattern("all_to_all", tasks, volume)))

    def _works(self, values: Any, name: str, key: str, tasks: int) -> tuple[float, ...]:
        if not isinstance(values, list) or len(values) != tasks:
            got = f"{len(values)} numbers" if isinstance(values, list) else shown(values)
            raise self._fault(f"expected {tasks} numbers, one per core of the job, got {got}", name, key)
        works = tuple(self._seconds(value, name, f"{key}[{index}]") for index, value in enumerate(values))
        return works[:1] if works.count(works[0]) == tasks else works

    def _seconds(self, operations: Any, name: str, key: str) -> float:
        count = self._number(operations, name, key)
        if self._reference is None:
            raise WorkloadError(
                "the profile counts operations: expected a platform (platform=, --platform), "
                "whose reference speed converts them to seconds",
                where=f"{self._where}: profiles.{name}",
            )
        return count / (self._reference * _GIGA)

    def _number(self, value: Any, name: str, key: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _HUGE:
            raise self._fault(f"expected a finite number of at least 0, got {shown(value)}", name, key)
        return float(value)

    def _count(self, value: Any, name: str, key: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._fault(f"expected a whole number of at least 1, got {shown(value)}", name, key)
        return value

    def _fault(self, message: str, name: str, key: str = "") -> WorkloadError:
        return WorkloadError(message, where=f"{self._where}: profiles.{name}" + (f".{key}" if key else ""))


def _unless_empty(pattern: Pattern) -> Pattern | None:
    return pattern if pattern.h else None
