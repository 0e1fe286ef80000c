"""Turns the rigid jobs of a trace into BSP jobs: supersteps of computation, messages and a barrier.

A trace says how many cores a job had and how long it ran. What it did meanwhile is drawn: a number S of supersteps, a
share c of the run time R that goes into messages, a pattern, and the work of every task. A superstep then takes

    R / S = max_i w_i + h g + l        with h g = c R / S

which is Valiant's cost (A bridging model for parallel computation, CACM 33 (8), 1990) with g the time that a node's
link takes for a byte. So a job that has the platform for itself, with one task a node, runs as long as in the trace.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import ConfigError, nearest
from hdsim.workload.patterns import PATTERNS, make_pattern
from hdsim.workload.programs import MOST_STEPS, Compiler
from hdsim.workload.raw import unused

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: A number, or the limits between which one is drawn for each job.
Range = float | Sequence[float]

_GIGA = 1e9


def with_supersteps(
    workload: Workload,
    platform: Platform,
    *,
    supersteps: Range,
    communication: Range = 0.2,
    pattern: str | Sequence[str] | Mapping[str, float] = "h_relation",
    imbalance: Range = 0.0,
    latency: float = 0.0,
    bandwidth: float | None = None,
    seed: int = 0,
) -> Workload:
    """Makes BSP jobs of rigid ones; submission, cores, estimates and run times alone stay.

    Jobs of one core or of no run time, those too short for one barrier, and those that have a program or a fixed
    duration already stay as they are. What is drawn for a job depends on the seed and on its id, not on the jobs
    beside it, nor on the other settings.

    Args:
        workload: The jobs.
        platform: Its reference speed turns seconds into operations, its slowest node link gives g.
        supersteps: Number of supersteps; between limits it is drawn log-uniformly. No more than leave time for their
            barriers.
        communication: Share of the run time that goes into messages, 0 or more and below 1; between limits uniform.
        pattern: Name of the pattern (:data:`hdsim.workload.patterns.PATTERNS`), several names, or names with weights.
        imbalance: Coefficient of variation of the work of a job's tasks, which has a gamma distribution; the one that
            has most determines the run time. At most 2; between limits uniform.
        latency: s that a barrier takes, Valiant's l.
        bandwidth: GB/s that g is the inverse of, by default that of the slowest node link.
        seed: Of all draws.

    Raises:
        ConfigError: A setting is impossible.
    """
    counts = _limits("supersteps", supersteps, 1.0, MOST_STEPS, whole=True)
    shares = _limits("communication", communication, 0.0, math.nextafter(1.0, 0.0))
    spreads = _limits("imbalance", imbalance, 0.0, 2.0)
    names, weights = _patterns(pattern)
    if not 0 <= latency < math.inf:
        raise _fault("latency", "a finite number of 0 s or more", latency)
    gap = 1.0 / (_bandwidth(platform, bandwidth) * _GIGA)
    operations = platform.reference_gflops * _GIGA
    profiles, taken = dict(workload.profiles), {"runtime": workload.runtime.tolist()}
    taken |= {key: getattr(workload, key).tolist() for key in ("profile", "program")}
    compiler = Compiler(profiles, platform.reference_gflops, workload.source)
    rows = zip(
        *(getattr(workload, key).tolist() for key in ("job_id", "requested_cores", "runtime", "fixed_duration")),
        strict=True,
    )
    for row, (identity, tasks, runtime, fixed) in enumerate(rows):
        rng = _rng(seed, identity)
        levels = rng.random(4).tolist()
        share = _between(shares, levels[1])
        room = (1.0 - share) * runtime
        if tasks == 1 or not runtime or room < latency or fixed or taken["program"][row] is not None:
            continue
        drawn = math.exp(_between((math.log(counts[0]), math.log(counts[1] + 1)), levels[0]))
        count = math.floor(min(max(drawn, counts[0]), counts[1], room / latency if latency else math.inf))
        kind = names[int(np.searchsorted(weights, levels[3], side="right"))]
        unit = make_pattern(kind, tasks, 1.0).h
        if not unit:
            share, room = 0.0, runtime
        work = _works(room / count - latency, _between(spreads, levels[2]), tasks, rng) * operations
        name = unused(f"bsp_{identity}", profiles)
        profiles[name] = {
            "type": "bsp",
            "supersteps": count,
            "cpu": work.tolist() if (work != work[0]).any() else float(work[0]),
            "com": share * runtime / count / gap / unit if unit else 0.0,
            "pattern": kind,
            "g": gap,
            "l": latency,
            "req_time": float(workload.requested_time[row]),
            "mem": float(workload.memory[row]),
            "mem_bw": float(workload.memory_bandwidth[row]),
        }
        if workload.return_code[row]:
            profiles[name]["ret"] = int(workload.return_code[row])
        program = compiler.program(name, tasks)
        for key, value in (("profile", name), ("program", program), ("runtime", program.runtime)):
            taken[key][row] = value
    return dataclasses.replace(
        workload.replaced(**taken), profiles=profiles, reference_gflops=platform.reference_gflops
    )


def _works(longest: float, spread: float, tasks: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(p,) work of the tasks of a job, of which the largest is `longest`."""
    if not spread:
        return np.full(tasks, longest)
    drawn = rng.gamma(min(1.0 / spread / spread, 1e15), size=tasks)
    return np.asarray(longest * (drawn / drawn.max()), np.float64)


def _rng(seed: int, identity: Any) -> np.random.Generator:
    """Draws for one job of that id, which are the same whatever part of a trace it is in."""
    digest = hashlib.sha256(str(identity).encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])


def _between(limits: tuple[float, float], level: float) -> float:
    return limits[0] + (limits[1] - limits[0]) * level


def _limits(key: str, given: Range, least: float, most: float, *, whole: bool = False) -> tuple[float, float]:
    """The two ends of what is drawn."""
    numbers: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    if len(numbers) == 1:
        numbers *= 2
    good = len(numbers) == 2 and all(
        isinstance(number, int | float)
        and not isinstance(number, bool)
        and least <= number <= most
        and (not whole or number == int(number))
        for number in numbers
    )
    if not good or numbers[0] > numbers[1]:
        kind = "a whole number" if whole else "a number"
        top = "below 1" if most < 1 else f"at most {most:,g}"
        raise _fault(key, f"{kind} of at least {least:g} and {top}, or two of them, the smaller one first", given)
    return float(numbers[0]), float(numbers[1])


def _patterns(given: str | Sequence[str] | Mapping[str, float]) -> tuple[list[str], NDArray[np.float64]]:
    """Names, and the cumulated probabilities of all of them but the last."""
    if isinstance(given, str):
        given = [given]
    weights = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given, 1.0)
    for name in weights:
        if name not in PATTERNS:
            raise ConfigError(
                f"expected names out of {', '.join(PATTERNS)}, got {name!r}{nearest(str(name), PATTERNS)}",
                where="workload.bsp.pattern",
            )
    numbers = [weight for weight in weights.values() if isinstance(weight, int | float) and 0 < weight < math.inf]
    if not weights or len(numbers) < len(weights):
        raise _fault("pattern", "a name, a list of names, or names with weights above 0", given)
    cumulated = np.cumsum(numbers)
    return list(weights), cumulated[:-1] / cumulated[-1]


def _bandwidth(platform: Platform, given: float | None) -> float:
    """GB/s."""
    slowest = float(platform.local_bandwidth.min()) / _GIGA
    if given is None and slowest == math.inf:
        raise ConfigError(
            f"expected GB/s, as {platform.name} says nothing about the bandwidth of its links",
            where="workload.bsp.bandwidth",
        )
    bandwidth = slowest if given is None else given
    if not 0 < bandwidth < math.inf:
        raise _fault("bandwidth", "a number of GB/s above 0", given)
    return bandwidth


def _fault(key: str, expected: str, got: Any) -> ConfigError:
    return ConfigError(f"expected {expected}, got {got!r}", where=f"workload.bsp.{key}")
