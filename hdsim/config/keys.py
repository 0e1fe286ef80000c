"""Keys of configurations: names, and rules for their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hdsim.errors import ConfigError, nearest
from hdsim.util.rules import (
    ANYTHING,
    FLAG,
    INTEGERS,
    NOT_NEGATIVE,
    NULL,
    POSITIVE,
    SECONDS,
    TEXT,
    TEXTS,
    Rule,
    ascends,
    has_values,
    integers_from,
    is_finite,
    lists_of,
)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(TEXT.accepts, value)) and len(set(value)) == len(value)


def _are_levels(value: Any) -> bool:
    numbers = isinstance(value, list) and all(is_finite(level) and 0 < level < 1 for level in value)
    return numbers and value == sorted(set(value))


def _table_of(what: str, rule: Rule) -> Rule:
    return Rule(
        what, lambda value: isinstance(value, dict) and len(value) > 0 and all(map(rule.accepts, value.values()))
    )


def _grid_of(what: str, rule: Rule) -> Rule:
    return lists_of(
        rule, f"a list of at least four growing {what}", holds=lambda value: len(value) > 3 and ascends(value)
    )


# Tables keep seeds as integers of 64 bits.
_SEED = Rule("a whole number from 0 to 2^63 - 1", lambda value: integers_from(0).accepts(value) and value < 2**63)
_AMOUNTS = lists_of(NOT_NEGATIVE, "a list of numbers >= 0")
_METRICS = Rule(
    "a Python file, a function or a name, or a list of them such as [my_metrics.py]",
    (TEXT | TEXTS).accepts,
)
_GENERATOR = Rule("settings of a generator, as of workload=lublin", lambda value: isinstance(value, dict))

_STATUS = ("recorded", "queued", "completed", "ignore")

# Keys of hdsim itself. Keys of the open groups belong to the classes that these groups name.
RULES: dict[str, Rule | dict[str, Any]] = {
    "seed": _SEED,
    "check": FLAG | NULL,
    "metrics": _METRICS | NULL,
    # Checked where the jobs are known.
    "warmup": ANYTHING,
    "cooldown": ANYTHING,
    "platform": {"path": TEXT | NULL, "types": TEXT | NULL, "kind": TEXT | NULL},
    "workload": {
        "path": TEXT | NULL,
        "jobs": integers_from(1) | NULL,
        "start": integers_from(0),
        "arrival_factor": POSITIVE,
        # The allowed words are checked where the workload is read.
        "memory_bandwidth": TEXT | NOT_NEGATIVE | _AMOUNTS,
        "memory": TEXT | NOT_NEGATIVE,
        "runtime": TEXT,
        "walltime": TEXT,
        "strict": FLAG,
        "status": Rule("recorded, queued, completed or ignore", lambda value: value in _STATUS),
        "cores_per_pod": integers_from(1) | NULL,
        "cluster": FLAG,
        # Values of "anything" are checked where the jobs are made.
        "bsp": {
            "supersteps": ANYTHING,
            "communication": ANYTHING,
            "pattern": ANYTHING,
            "imbalance": ANYTHING,
            "latency": NOT_NEGATIVE,
            "bandwidth": POSITIVE | NULL,
        },
        # These are checked where they are drawn.
        "frequency_bound": ANYTHING,
        "slack": {"share": ANYTHING, "time": ANYTHING},
        "generate": _GENERATOR | NULL,
        "family": TEXT | NULL,
        "kind": TEXT | NULL,
        "seed": _SEED | NULL,
    },
}
OPEN_GROUPS = ("agent", "backend", "contention", "network", "failures", "power", "controller", "forecaster")
GROUPS_WITH_FILES = ("platform", "workload", *OPEN_GROUPS)
# Keys of every training.
_TRAINING: dict[str, Rule] = {
    "steps": integers_from(1),
    "validation": integers_from(0) | INTEGERS,
    "baselines": TEXTS | NULL,
    "scale_rewards": FLAG,
    "log_every": integers_from(1),
    "evaluate_every": integers_from(1),
    "checkpoint_every": integers_from(1),
    "patience": integers_from(0) | NULL,
    "tensorboard": FLAG,
}
# Further keys of `hdsim train`; the keys of `env` belong to the environment and its decision problem.
TRAINING_RULES: dict[str, Rule | dict[str, Any]] = {
    "train": _TRAINING
    | {
        "traces": TEXTS | NULL,
        "window_jobs": integers_from(1) | Rule("a duration such as 7d", lambda value: isinstance(value, str)) | NULL,
        "validation": integers_from(0) | INTEGERS | NULL,
        "test": integers_from(1) | INTEGERS | NULL,
        "metric": TEXT | NULL,
        "evolution": Rule("settings of an evolution", lambda value: isinstance(value, dict)) | NULL,
        "rollouts": Rule("local or ray", lambda value: value in ("local", "ray")),
        "workers": integers_from(1) | NULL,
        "ray_address": TEXT | NULL,
        "ray_timeout": POSITIVE,
    },
}
# Keys of gangs.
GANG_RULES: dict[str, Rule | dict[str, Any]] = {
    "seed": _SEED,
    "profile": TEXT,
    "actual": TEXT,
    "forecasts": TEXT,
    "tasks": _table_of("the series of each task, such as {affinity: nyc_taxi_1}", TEXT),
    # The allowed words are checked where they are used.
    "scaling": TEXT,
    "planner": TEXT,
    "supersteps": integers_from(1),
    "start": integers_from(0),
    "penalty": SECONDS,
    "shares": {
        "start": integers_from(1),
        "increment": integers_from(1),
        "total": integers_from(1),
        "cap": integers_from(1),
    },
}
_STRESSORS: dict[str, Rule | dict[str, Any]] = {
    "operations": _table_of("numbers > 0 by task, such as {memcpy: 4000}", POSITIVE),
    "scale": POSITIVE,
    "instances": integers_from(0),
}
# Further keys of `hdsim bsp run`.
REAL_RUN_RULES: dict[str, Rule | dict[str, Any]] = {
    "zookeeper": TEXT | NULL,
    "stressors": _STRESSORS,
    "timeouts": {"session": POSITIVE, "connection": POSITIVE, "superstep": POSITIVE},
    "attempts": integers_from(1),
}
# Further keys of `hdsim bsp share`.
SHARING_RULES: dict[str, Rule | dict[str, Any]] = {"gangs": integers_from(1), "interarrival": NOT_NEGATIVE}
# Keys of `hdsim bsp forecast`.
FORECAST_RULES: dict[str, Rule | dict[str, Any]] = {
    "seed": _SEED,
    "series": TEXT,
    "names": Rule("a list of different names such as [nyc_taxi_1]", _are_names),
    "period": integers_from(1) | NULL,
    "rows": integers_from(1),
    "columns": integers_from(1),
    "refit": integers_from(1) | NULL,
    # The allowed words are checked where they are used.
    "compare": TEXTS,
    "quantiles": Rule("a list of growing levels such as [0.1, 0.9], above 0 and below 1", _are_levels),
    "unit": Rule("values or sizes", lambda value: value in ("values", "sizes")),
}
# Further keys of `hdsim bsp train`.
GANG_TRAINING_RULES: dict[str, Rule | dict[str, Any]] = {
    "env": {
        "actions": integers_from(2),
        "columns": integers_from(1),
        "durations": ANYTHING,  # checked by the decision problem
        "clip": FLAG,
        "supersteps": integers_from(1),
        "start": integers_from(0) | NULL,
    },
    "train": _TRAINING | {"seeds": INTEGERS | NULL, "baselines": TEXTS},
}
# Keys of `hdsim bsp profile`.
PROFILE_RULES: dict[str, Rule | dict[str, Any]] = {
    "tasks": Rule("a list of different stressors such as [cap, zero]", _are_names) | NULL,
    "sizes": _grid_of("sizes such as [10, 20, 35, 50]", POSITIVE),
    "shares": _grid_of("whole millicores such as [250, 500, 750, 1000]", integers_from(1)),
    "tries": integers_from(1),
    "stressors": _STRESSORS,
    # The allowed words are checked where they are used.
    "limits": TEXT,
    "timeout": POSITIVE,
}


class Schema(NamedTuple):
    """Keys of a command."""

    tells: str  # a key that tells its configurations from those of the commands behind it, empty for the last
    rules: dict[str, Rule | dict[str, Any]]  # its own keys with their rules
    groups: tuple[str, ...] = ()  # groups whose keys belong to the classes that they name
    optional: tuple[str, ...] = ()  # groups that a configuration may lack


_MODELS = (*(group for group in OPEN_GROUPS if group not in ("controller", "forecaster")), "env", "site")
SCHEMAS = {
    "bsp share": Schema("gangs", GANG_RULES | SHARING_RULES, ("controller", "agent"), ("platform", "workload")),
    "bsp run": Schema("controller", GANG_RULES | REAL_RUN_RULES, ("controller", "runner")),
    "bsp forecast": Schema("forecaster", FORECAST_RULES, ("forecaster",)),
    "bsp profile": Schema("tries", PROFILE_RULES),
    "bsp train": Schema("tasks", GANG_RULES | GANG_TRAINING_RULES, ("agent",)),
    "train": Schema("train", RULES | TRAINING_RULES, (*_MODELS, "facility")),
    "run": Schema("", RULES, (*_MODELS, "facility")),
}


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the keys of nested mappings, joined by dots, and their values."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def check(config: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the names and values of all keys of a composed configuration without Hydra's own part.

    Returns:
        The configuration, whole numbers written as floats (``1e4``) turned into integers.

    Raises:
        ConfigError: Unknown, missing or wrong keys, all of them.
    """
    faults: list[ConfigError] = []
    checked: dict[str, Any] = {}
    training = config.get("train")
    # An experiment of another command brings some of its settings.
    if isinstance(training, Mapping) and (missing := [key for key in _TRAINING if key not in training]):
        told = f"expected all settings of a training, as of hdsim train, got none for {', '.join(missing)}"
        raise ConfigError(told, where="train")
    if "gangs" in config and "controller" not in config:
        raise ConfigError("expected all settings of gangs, as of hdsim bsp share, got no controller", where="gangs")
    schema = next(each for each in SCHEMAS.values() if each.tells in config or not each.tells)
    rules = schema.rules | {key: RULES[key] for key in schema.optional if key in config}
    top_level = (*rules, *schema.groups)
    for key in config:
        if key not in top_level:
            faults.append(unknown_key(str(key), top_level))
    for key in top_level:
        value = config.get(key)
        rule = rules.get(key)
        if key == "site" and value in (None, {"path": None}):  # not a run of a site
            continue
        if key == "facility" and (value is None or (isinstance(value, Mapping) and not has_values(value))):
            continue
        if rule is None and isinstance(value, Mapping):
            checked[key] = dict(value)
            for name in ("_target_", "path"):
                _check_value(f"{key}.{name}", value.get(name), TEXT | NULL, faults)
            continue
        checked[key] = _check_value(key, value, rule or {}, faults)
    if faults:
        raise ConfigError.many(faults)
    return checked


def _check_value(key: str, value: Any, rule: Rule | Mapping[str, Any], faults: list[ConfigError]) -> Any:
    if isinstance(rule, Mapping):
        if not isinstance(value, Mapping):
            faults.append(ConfigError(f"expected the keys of an option of the group {key}, got {value!r}", where=key))
            return value
        faults += [unknown_key(f"{key}.{name}", rule) for name in value if name not in rule]
        return {name: _check_value(f"{key}.{name}", value.get(name), rule[name], faults) for name in rule}
    fault = rule.fault(value, key)
    if fault is not None:
        faults.append(fault)
    return (
        int(value)
        if isinstance(value, float) and fault is None and rule.expected.startswith("a whole number")
        else value
    )


#: Settings by their names in the earlier schedulers of docs/pods.md, where `nearest` finds another one.
_EARLIER = {"init_epsi": "start_e", "hidden_layers": "kernel"}


def unknown_key(key: str, allowed: Sequence[str] | Mapping[str, Any]) -> ConfigError:
    """Returns the error for a key that is none of the allowed ones."""
    parent, _, name = key.rpartition(".")
    if not allowed:
        return ConfigError(f"unknown key; {parent} takes a value and has no keys", where=key)
    meant = _EARLIER.get(name, name)
    close = nearest(meant if meant in allowed else name, allowed)
    return ConfigError(f"unknown key{close}; allowed: {', '.join(allowed)}", where=key)
