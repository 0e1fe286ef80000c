"""Keys that a user gives and that change nothing beside the other settings of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class _Key(NamedTuple):
    """A key, or a group of keys."""

    name: str
    acts: Callable[[Mapping[str, Any]], bool]  # whether it changes anything, by the composed configuration
    otherwise: str  # completes "changes nothing"


def _is_own(agent: Mapping[str, Any]) -> bool:
    """Whether an agent is hdsim's, so that it is known what it reads."""
    return not agent.get("path") and str(agent.get("_target_") or "hdsim.").startswith("hdsim.")


def _is_classic(agent: Mapping[str, Any]) -> bool:
    return "job_policy" in agent and not agent.get("path") and not agent.get("_target_")


def _reads_site(config: Mapping[str, Any]) -> bool:
    agent = config["agent"]
    if "train" in config:
        return str(config["env"].get("action")).startswith("site")
    return not _is_own(agent) or "site" in agent or agent.get("checkpoint") is not None


def _has_multifactor(config: Mapping[str, Any]) -> bool:
    agent = config["agent"]
    return not _is_own(agent) or any(
        "multifactor" in str(agent.get(key)) for key in ("job_policy", "backfill_order", "candidates")
    )


def _manages_power(config: Mapping[str, Any]) -> bool:
    power = config["power"]
    fixed = power.get("_target_") == "hdsim.power.PowerManagement" and not power.get("path")
    sleeps = power.get("suspend_time") is not None or not _is_classic(config["agent"])
    return not fixed or sleeps or power.get("cap") is not None or power.get("frequency") is not None


def _has_load(config: Mapping[str, Any]) -> bool:
    return any(isinstance(config["facility"].get(key), list) for key in ("pue", "efficiency"))


def _is_drawn(config: Mapping[str, Any]) -> bool:
    series = (config["facility"].get(key) for key in ("price", "carbon", "temperature"))
    return any(isinstance(one, Mapping) and {"mean", "error"} & set(one) for one in series)


_BSP = ("communication", "pattern", "imbalance", "latency", "bandwidth")
_KEYS = (
    _Key(
        "workload.slack.time",
        lambda config: config["workload"]["slack"]["share"] is not None,
        "without workload.slack.share",
    ),
    *(
        _Key(
            f"workload.bsp.{name}",
            lambda config: config["workload"]["bsp"]["supersteps"] is not None,
            "without workload.bsp.supersteps",
        )
        for name in _BSP
    ),
    _Key(
        "workload.status",
        lambda config: config["workload"]["generate"] is None and ".json" not in str(config["workload"]["path"]),
        "of these jobs: it is of SWF and Parquet",
    ),
    _Key(
        "workload.walltime",
        lambda config: config["backend"].get("kill_at_walltime", True) or not _is_own(config["agent"]),
        "without backend.kill_at_walltime=true",
    ),
    _Key("site", _reads_site, "with an agent that has no rules of a site, as agent=slurm has"),
    _Key("agent.multifactor", _has_multifactor, "without the order multifactor"),
    _Key(
        "agent.backfill_order",
        lambda config: config["agent"].get("backfill") not in ("none", 0) or not _is_own(config["agent"]),
        "without agent.backfill",
    ),
    _Key("agent.gain", lambda config: config["agent"].get("plan", "rule") == "rule", "without agent.plan=rule"),
    _Key("agent.arrivals", lambda config: config["agent"].get("scenarios") != 0, "without agent.scenarios"),
    _Key("facility.capacity", _has_load, "without a table of facility.pue or facility.efficiency by load"),
    _Key("facility.seed", _is_drawn, "without a generated series or errors of forecasts"),
    _Key("env", lambda config: "train" in config, "of a replay: agent.checkpoint has the decision problem"),
    _Key("power", _manages_power, "with a classic agent and without a time-out, a cap or a frequency"),
    _Key("power.cap_kind", lambda config: config["power"].get("cap") is not None, "without power.cap"),
    *(
        _Key(f"power.{name}", lambda config: bool(config["power"].get("boot_failure", 1)), "without power.boot_failure")
        for name in ("resume_timeout", "repair")
    ),
)


#: Keys of Hydra that belong to sweeps, or to single runs, alone.
_OF_RUNS = {"hydra.run": "in a sweep, whose directory is hydra.sweep.dir"}
_OF_SWEEPS = {
    "hydra.sweep": "without -m; the directory of a run is hydra.run.dir",
    "hydra.launcher": "without -m",
}


def idle_keys(overrides: Sequence[str], configs: Sequence[Mapping[str, Any]], *, swept: bool) -> list[str]:
    """Returns a line for each given key that changes nothing in any run.

    Args:
        overrides: The overrides as the user has given them.
        configs: The configurations of the runs, checked.
        swept: Whether they are runs of a sweep.
    """
    given = dict.fromkeys(text.partition("=")[0].lstrip("+~").replace("/", ".") for text in overrides)
    acting, idle = (_OF_SWEEPS, _OF_RUNS) if swept else (_OF_RUNS, _OF_SWEEPS)
    lines = []
    if not any(_is_of(name, key) for name in given for key in acting):  # both are given where it may be either
        lines = [f"{name}: changes nothing {idle[key]}" for name in given for key in idle if _is_of(name, key)]
    if not all({"workload", "agent", "backend"} <= set(config) for config in configs):  # no replays or trainings
        return lines
    given.pop("site", None)  # It brings platform and jobs as well.
    for name in given:
        others = [key.otherwise for key in _KEYS if _is_of(name, key.name) and not any(map(key.acts, configs))]
        lines += [f"{name}: changes nothing {otherwise}" for otherwise in others[:1]]
    return lines


def _is_of(name: str, key: str) -> bool:
    return name == key or name.startswith(f"{key}.")
