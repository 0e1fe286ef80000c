"""Training to schedule jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.backends.base import Backend, make_backend
from hdsim.backends.sim import Sim
from hdsim.decisions import DecisionProblem
from hdsim.decisions.actions.site import UnderSite
from hdsim.envs.scheduling import SchedulingEnv
from hdsim.envs.vector import SAME_STEP, SchedulingVectorEnv, ShareVectorEnv, local_vector
from hdsim.errors import ConfigError
from hdsim.facility.dates import dated
from hdsim.learning.agent import LearningAgent
from hdsim.learning.training.evaluation import Evaluation, classic_baselines, site_baselines
from hdsim.learning.training.task import EpisodeTask, check_patience, untrained_agent
from hdsim.learning.training.windows import held_out_windows
from hdsim.results.run_directory.inputs import digest
from hdsim.scheduling.agent import make_agent
from hdsim.simulation.setup import MODELS
from hdsim.simulation.simulation import simulate

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload


class SchedulingTask(EpisodeTask):
    """Jobs to schedule.

    Args:
        config: The configuration.
        platform: The platform.
        workload: The trace of the held-out windows.
        traces: Traces to learn from; if empty, the workload without the windows.
        backend: The backend of the configuration, if it is made already.

    Raises:
        ConfigError: A setting cannot be used.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        platform: Platform,
        workload: Workload,
        traces: Sequence[Workload],
        backend: Backend | None = None,
    ) -> None:
        train, env = config["train"], config["env"]
        agent = untrained_agent(config)
        window = train["window_jobs"]
        if window is None:
            raise ConfigError("expected the number of jobs of a held-out window, got null", where="train.window_jobs")
        backend = backend or make_backend(config["backend"])
        if backend.episodes is None:
            raise ConfigError(f"expected sim or kwok for training, got {backend.name}", where="backend")
        real = None if isinstance(backend, Sim) else backend
        if real is not None and agent.num_envs > 1:
            raise ConfigError(
                f"expected 1: all episodes on backend {real.name} take place on the same nodes, got {agent.num_envs}",
                where="agent.num_envs",
            )
        check_patience(train)
        kept = 0 if traces else env["jobs"] or (1 if isinstance(window, str) else window)
        validation, test = held_out_windows(
            workload.submission_time, window, validation=train["validation"], test=train["test"], kept=kept
        )
        most = max(part.stop - part.start for part in (*validation, *test))
        # Options that episodes and replays share.
        options = {**{group: config[group] for group in MODELS}, **backend.episodes}
        if facility := config.get("facility"):
            # Episodes, the windows of a trace at their own dates and replays have the same series.
            workload, traces = dated(workload, facility), [dated(trace, facility) for trace in traces]
            seed = config["seed"] if facility.get("seed") is None else facility["seed"]
            options["facility"] = {**facility, "begin": None, "seed": seed}
        _check_traces(traces, workload, (*validation, *test))
        windows = [] if traces else [(part.start, part.stop - part.start) for part in (*validation, *test)]
        settings = {
            "platform": platform,
            "workload": traces or workload,
            "held_out": windows,
            "backend": real,
            **options,
            **env,
        }
        if backend.brings_jobs and settings.get("max_steps") is None:
            settings["max_steps"] = env["jobs"] or most
        here = real or (agent if agent.reads_environments else None)
        _check_place(train, here)
        environments = [SchedulingEnv(**settings) for _ in range(1 if here is None else agent.num_envs)]
        vector: Callable[[], ShareVectorEnv]
        if here is not None:
            vector = partial(local_vector, environments)
        elif train["rollouts"] == "ray":
            from hdsim.envs.distributed import RayVectorEnv

            place = {"address": train["ray_address"], "timeout": train["ray_timeout"]}
            vector = partial(RayVectorEnv, agent.num_envs, train["workers"], **place, **settings)
        else:
            vector = partial(
                SchedulingVectorEnv, agent.num_envs, train["workers"], autoreset_mode=SAME_STEP, **settings
            )
        problem = environments[0].problem
        actions = getattr(problem.action, "names", None) or [str(index) for index in range(environments[0].n_actions)]
        own = site_baselines(workload.site) if isinstance(problem.action, UnderSite) else {}
        if train["baselines"] is None:
            baselines = own or classic_baselines(problem)
        else:
            baselines = {name: own.get(name, name) for name in train["baselines"]}
        for spec in baselines.values():
            make_agent(spec)
        metric = train["metric"] or environments[0].objective.metric
        if metric is None:
            raise ConfigError(f"expected the metric that goes with {env['objective']}, got null", where="train.metric")
        agent.begin_training(DecisionProblem(**problem.settings), platform, config["seed"], train["steps"])
        self.config, self.platform, self.workload, self.backend = config, platform, workload, backend
        self.agent, self.environments, self.vector = agent, environments, vector
        self.evaluation = Evaluation(metric, partial(simulate, platform, **options, seed=config["seed"]))
        self.traces, self.baselines, self.actions = traces or [workload], baselines, actions
        self.validation, self.test = ([workload[part] for part in parts] for parts in (validation, test))
        agent.attach(environments, self.evaluation)

    def sources(self) -> dict[str, Any]:
        return platform_facts(self.platform)

    def described(self, trace: Workload) -> dict[str, Any]:
        return jobs_facts(trace, self.workload)

    def close(self) -> None:
        """Closes the backend."""
        self.backend.close()


def platform_facts(platform: Platform) -> dict[str, Any]:
    """The platform, for the model card."""
    return {"platform": {"name": platform.name, "sha256": platform.sha256, "cores": platform.n_cores}}


def jobs_facts(jobs: Workload, trace: Workload) -> dict[str, Any]:
    """A trace, or a window of the `trace`, for the model card; `jobs_sha256` is the digest in manifest.json.

    ``start`` is the index in the trace that ``workload.start`` and ``train.test`` take, ``first_job`` an id.
    """
    places = np.flatnonzero(trace.job_id == jobs.job_id[0]) if jobs.source == trace.source else [0]
    return {
        "path": jobs.source,
        "sha256": jobs.sha256,
        "jobs": len(jobs),
        "start": int(places[0]),
        "first_job": str(jobs.job_id[0]),
        "jobs_sha256": digest(jobs),
    }


def _check_traces(traces: Sequence[Workload], workload: Workload, windows: Sequence[slice]) -> None:
    """Checks that no trace to learn from has jobs of the held-out windows."""
    held = {job for window in windows for job in workload.job_id[window].tolist()}
    for number, trace in enumerate(traces):
        same = trace.sha256 == workload.sha256 if trace.sha256 else digest(trace) == digest(workload)
        if same and not held.isdisjoint(trace.job_id.tolist()):
            raise ConfigError(
                f"expected traces without the jobs of validation and test windows, which are those of {trace.source}; "
                "null learns from the jobs outside these windows",
                where=f"train.traces[{number}]",
            )


def _check_place(train: Mapping[str, Any], here: LearningAgent | Backend | None) -> None:
    """Checks the keys of where environments are stepped; `here` needs them in the process that trains."""
    ignored = [("ray_address", "with train.rollouts=local")] if train["rollouts"] == "local" else []
    if here is not None:
        reason = f"since {type(here).__name__} uses environments of the process that trains"
        ignored += [(key, reason) for key in ("rollouts", "workers")]
    for key, reason in ignored:
        only = "local" if key == "rollouts" else None
        if train[key] != only:
            raise ConfigError(f"expected {only or 'null'} {reason}, got {train[key]}", where=f"train.{key}")
