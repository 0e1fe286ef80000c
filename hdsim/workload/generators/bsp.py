"""Conversion of rigid jobs to BSP jobs: supersteps of computation, messages and a barrier.

Cores and run time R of a job are those of the trace. The number S of supersteps, the share c of the run time for
messages, the pattern and the work of each task are drawn. The duration of a superstep is

    R / S = max_i w_i + h g + l        with h g = c R / S

as in Valiant's cost model (A bridging model for parallel computation, CACM 33 (8), 1990), with g the seconds per byte
of a node link. On an otherwise idle platform, a job with one task per node has the run time of the trace.
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
from hdsim.util.text import unused
from hdsim.workload.patterns import PATTERNS, make_pattern
from hdsim.workload.programs import MOST_STEPS, Compiler

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: A number, or the limits of a number that is drawn for each job.
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
    """Converts rigid jobs to BSP jobs with the same submission, cores, estimates and uncontended run times.

    Jobs of one core or zero run time, jobs shorter than a barrier, and jobs with a program or a fixed duration are
    unchanged. The draws of a job depend only on the seed and its id.

    Args:
        workload: The jobs.
        platform: Source of the reference speed and, by default, of g (its slowest node link).
        supersteps: Number of supersteps, at most as many as the barriers leave time for; log-uniform between limits.
        communication: Share of the run time for messages, in [0, 1); uniform between limits.
        pattern: Name of the pattern (:data:`hdsim.workload.patterns.PATTERNS`), several names, or names with weights.
        imbalance: Coefficient of variation of the work of the tasks of a job, which is gamma distributed; the task with
            most work determines the run time. At most 2; uniform between limits.
        latency: Duration of a barrier in seconds, Valiant's l.
        bandwidth: GB/s, the inverse of g, by default that of the slowest node link.
        seed: Seed of all draws.

    Raises:
        ConfigError: A setting is not allowed.
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
        computation = (1.0 - share) * runtime
        if tasks == 1 or not runtime or computation < latency or fixed or taken["program"][row] is not None:
            continue
        drawn = math.exp(_between((math.log(counts[0]), math.log(counts[1] + 1)), levels[0]))
        count = math.floor(min(max(drawn, counts[0]), counts[1], computation / latency if latency else math.inf))
        kind = names[int(np.searchsorted(weights, levels[3], side="right"))]
        unit = make_pattern(kind, tasks, 1.0).h
        if not unit:
            share, computation = 0.0, runtime
        work = _works(computation / count - latency, _between(spreads, levels[2]), tasks, rng) * operations
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
    """Draws (p,) work of the tasks of a job with maximum `longest`."""
    if not spread:
        return np.full(tasks, longest)
    drawn = rng.gamma(min(1.0 / spread / spread, 1e15), size=tasks)
    return np.asarray(longest * (drawn / drawn.max()), np.float64)


def _rng(seed: int, identity: Any) -> np.random.Generator:
    """Returns the random generator of a job, which depends only on the seed and its id."""
    digest = hashlib.sha256(str(identity).encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])


def _between(limits: tuple[float, float], level: float) -> float:
    return limits[0] + (limits[1] - limits[0]) * level


def _limits(key: str, given: Range, least: float, most: float, *, whole: bool = False) -> tuple[float, float]:
    """Returns the lower and the upper limit of a setting."""
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
    """Returns the names and the cumulative probabilities of all but the last."""
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
    """Returns the bandwidth for g in GB/s."""
    slowest = float(platform.local_bandwidth.min()) / _GIGA
    if given is None and slowest == math.inf:
        raise ConfigError(
            f"expected GB/s, as the links of {platform.name} have unlimited bandwidth",
            where="workload.bsp.bandwidth",
        )
    bandwidth = slowest if given is None else given
    if not 0 < bandwidth < math.inf:
        raise _fault("bandwidth", "a number of GB/s above 0", given)
    return bandwidth


def _fault(key: str, expected: str, got: Any) -> ConfigError:
    return ConfigError(f"expected {expected}, got {got!r}", where=f"workload.bsp.{key}")
