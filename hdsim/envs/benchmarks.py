"""Gymnasium environments of the benchmarks: episodes on their training traces."""

from __future__ import annotations

from typing import Any

from hdsim.envs.scheduling import SchedulingEnv
from hdsim.envs.vector import SchedulingVectorEnv
from hdsim.simulation.benchmarks import read_benchmark


def benchmark_env(benchmark: str, traces: int = 10, **changes: Any) -> SchedulingEnv:
    """Makes the environment of a benchmark.

    Args:
        benchmark: Its name.
        traces: Training traces of each source; more of them are further ones of the training split.
        **changes: Arguments of :class:`hdsim.envs.scheduling.SchedulingEnv` in place of those of the benchmark's file.
    """
    return SchedulingEnv(**_settings(benchmark, traces, changes))


def benchmark_vector_env(num_envs: int, benchmark: str, traces: int = 10, **changes: Any) -> SchedulingVectorEnv:
    """Makes environments of a benchmark that are stepped together; see :func:`benchmark_env`."""
    return SchedulingVectorEnv(num_envs, **_settings(benchmark, traces, changes))


def _settings(name: str, traces: int, changes: dict[str, Any]) -> dict[str, Any]:
    benchmark = read_benchmark(name)
    given = {"platform": benchmark.environment["platform"], "workload": benchmark.training_traces(traces)}
    return {**given, **benchmark.environment["settings"], **changes}
