"""Benchmarks with frozen names such as ``hdsim/Home-v1``: cases, splits, and test seeds that follow from the agent.

A benchmark is a file in ``conf/bench``, which never changes after its release; another version is another file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError, not_one_of
from hdsim.platform.load import load_platform
from hdsim.results.run_directory.inputs import digest
from hdsim.simulation.simulation import simulate
from hdsim.simulation.windows import Window, metric_of, windows
from hdsim.util.inputs import read_yaml
from hdsim.util.resources import bundled, resolve
from hdsim.util.rules import NULL, POSITIVE, TEXT, TEXTS, Rule, check_keys, integers_from, require
from hdsim.workload.load import load_workload

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.scheduling.agent import Agent
    from hdsim.util.arrays import Floats
    from hdsim.workload.model import Workload

#: Namespace of the names, as Gymnasium has it.
NAMESPACE = "hdsim/"
#: Digits of a sha256 that make a seed.
_DIGITS = 12
#: Generators whose traces have a number of jobs and a split.
_WITH_SPLITS = ("family", "kind")


@dataclass(frozen=True)
class BenchmarkCase:
    """Traces of one source on one machine.

    Attributes:
        name: Its name.
        generate: Settings of a generator, see :func:`hdsim.workload.load.load_workload`.
        platform: Name of a bundled platform; None: as many interchangeable cores as each trace is for.
        contention: Contention model.
        baseline: The plain scheduler with the best mean on the validation windows.
    """

    name: str
    generate: Mapping[str, Any]
    platform: str | None
    contention: str
    baseline: str


@dataclass(frozen=True)
class Benchmark:
    """A benchmark.

    Attributes:
        id: Its name, such as ``hdsim/Home-v1``.
        sha256: Digest of its file and of those of the kinds of load that it names.
        about: A sentence.
        metric: Metric that agents are judged by; lower is better.
        jobs: Jobs of a window; None: all of a trace.
        warmup: Jobs before each window, which EASY schedules.
        validation: Validation windows of each case, each of another trace.
        test: Test windows of each case.
        seconds: Most CPU seconds of the process for the windows of a case.
        plain: Plain schedulers, of which the baselines are the best ones.
        agents: Further agents of the table of baselines.
        cases: The cases.
        environment: Arguments of the Gymnasium environment: `platform`, `traces` (settings of generators), `settings`.
    """

    id: str
    sha256: str
    about: str
    metric: str
    jobs: int | None
    warmup: int
    validation: int
    test: int
    seconds: float
    plain: tuple[str, ...]
    agents: tuple[str, ...]
    cases: tuple[BenchmarkCase, ...]
    environment: Mapping[str, Any]

    def seeds(self, split: str, case: str, count: int, agent: str = "") -> list[int]:
        """Returns the seeds of the first traces of a case.

        Seed i is the number of the first 12 hexadecimal digits of the sha256 of ``ID SPLIT CASE i`` in UTF-8, and for
        test windows of ``ID test CASE i DEFINITION AGENT``, with the digests of the benchmark and of the agent. The
        test windows of an agent follow from its code and weights, so it cannot have been trained on them.
        """
        ends = f" {self.sha256} {agent}" if split == "test" else ""
        texts = (f"{self.id} {split} {case} {i}{ends}" for i in range(count))
        return [int(hashlib.sha256(text.encode()).hexdigest()[:_DIGITS], 16) for text in texts]

    def windows(self, case: BenchmarkCase, split: str, count: int, agent: str = "") -> list[BenchmarkWindow]:
        """Returns windows of a case, each of another trace; `agent` is the digest of the agent for test windows."""
        made = []
        for number, seed in enumerate(self.seeds(split, case.name, count, agent)):
            trace = self._trace(case.generate, split, seed, case.platform, case.contention)
            jobs = len(trace) - self.warmup if self.jobs is None else self.jobs
            platform = None if case.platform is None else _platform(case.platform)
            window = windows(trace, 1, jobs, warmup=self.warmup, number=number, platform=platform)[0]
            made.append(BenchmarkWindow(window, case.contention))
        return made

    def training_traces(self, count: int) -> list[Workload]:
        """Returns `count` traces of each source to learn from, for the platform of the environment."""
        environment = self.environment
        contention = environment["settings"].get("contention", "none")
        return [
            self._trace(spec, "train", seed, environment["platform"], contention)
            for place, spec in enumerate(environment["traces"])
            for seed in self.seeds("train", str(place), count)
        ]

    def _trace(
        self, generate: Mapping[str, Any], split: str, seed: int, platform: str | None, contention: str
    ) -> Workload:
        with_split = generate["model"] in _WITH_SPLITS
        spec = {**generate, **({"split": split, "jobs": self.warmup + (self.jobs or 0)} if with_split else {})}
        bandwidth = "none" if contention == "none" else "draw"
        return load_workload(
            spec, None if platform is None else _platform(platform), seed=seed, memory_bandwidth=bandwidth
        )


@dataclass(frozen=True)
class BenchmarkWindow:
    """A window and the contention model that it is replayed with."""

    window: Window
    contention: str

    @property
    def digest(self) -> str:
        """The sha256 of the jobs and of how they begin."""
        window = self.window
        text = f"{window.warmup} {window.base} {digest(window.workload)} {self.contention}"
        return hashlib.sha256(text.encode()).hexdigest()

    def score(self, agent: Agent, metric: str) -> tuple[float, Floats]:
        """Returns a metric of the jobs of the window under an agent, and their (J,) waiting times in seconds.

        Raises:
            ConfigError: The agent leaves jobs waiting.
        """
        window = self.window
        if window.platform is None:
            start, finish = window.starts(agent)
            waited = start - window.workload.submission_time[window.warmup :]
            return metric_of(metric, waited, finish - start), waited
        result = simulate(window.platform, window.workload, agent, contention=self.contention)
        if np.isnan(result.finish_time).any():
            raise ConfigError(
                "expected an agent that starts every job, got one that leaves jobs waiting", where="agent"
            )
        return float(result.metrics[metric]), result.starting_time - window.workload.submission_time


def benchmarks() -> dict[str, Benchmark]:
    """Returns the benchmarks by name."""
    return {NAMESPACE + name: read_benchmark(NAMESPACE + name) for name in bundled("benchmarks")}


def read_benchmark(name: str) -> Benchmark:
    """Returns the benchmark of a name, ``hdsim/Home-v1`` or ``Home-v1``.

    Raises:
        ConfigError: There is none of this name.
    """
    known = bundled("benchmarks")
    short = name.removeprefix(NAMESPACE)
    if short not in known:
        raise ConfigError(not_one_of(name, [NAMESPACE + each for each in known]), where="hdsim bench")
    return _read(known[short])


@lru_cache(maxsize=32)
def _read(path: Path) -> Benchmark:
    document = read_yaml(path, ConfigError, "YAML")
    where = str(path)
    check_keys(where, document, _RULES)
    require(where, _RULES, {key: document.get(key) for key in _RULES})
    cases = tuple(
        BenchmarkCase(
            str(name), given["generate"], given.get("platform"), given.get("contention", "none"), given["baseline"]
        )
        for name, given in document["cases"].items()
    )
    given = {key: document[key] for key in _RULES if key not in ("cases", "plain", "agents")}
    given |= {"plain": tuple(document["plain"].split()), "agents": tuple(document["agents"])}
    specs = [*(case.generate for case in cases), *document["environment"]["traces"]]
    kinds = [resolve("kinds", spec["kind"]) for spec in specs if "kind" in spec]
    sha256 = hashlib.sha256(b"".join(file.read_bytes() for file in (path, *kinds))).hexdigest()
    return Benchmark(id=NAMESPACE + path.stem, sha256=sha256, cases=cases, **given)


_MAPPING = Rule("a mapping", lambda value: isinstance(value, Mapping) and bool(value))
_RULES = {
    "about": TEXT,
    "metric": TEXT,
    "jobs": integers_from(1) | NULL,
    "warmup": integers_from(0),
    "validation": integers_from(1),
    "test": integers_from(1),
    "seconds": POSITIVE,
    "plain": TEXT,
    "agents": TEXTS,
    "cases": _MAPPING,
    "environment": _MAPPING,
}


@lru_cache(maxsize=8)
def _platform(name: str) -> Platform:
    return load_platform(resolve("platforms", name))
