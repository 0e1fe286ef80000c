"""Labels of runs: the short name of the agent and the settings in which the runs differ.

``easy``, ``shortest-high_gflops``, ``ppo(best)``, ``mine(guard=7200)``, ``easy arrival_factor=0.5``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hdsim.scheduling.agent import classic_name
from hdsim.util.plugins import short_name

#: Settings by name, ``(("agent", "mine"), ("agent.guard", "7200"))``.
Key = tuple[tuple[str, str], ...]
#: Most characters of a label in tables and figures.
WIDTH = 40
#: Value of a setting that is null or that a run does not have.
NONE = "none"
#: Groups of the configuration whose value stands for a class; their other keys are its settings.
_CLASSES = ("agent", "controller", "backend", "contention", "network", "failures", "power")
#: Groups whose value is the name of a file.
_FILES = ("platform", "workload")
#: Classes that need no ``key=`` before their name.
SUBJECTS = ("agent", "controller")
#: Settings that change no result.
_NEUTRAL = ("check", "metrics")
#: Settings that only runs with generated jobs have.
_GENERATED = "workload.generate."
_SUFFIXES = re.compile(r"(\.(json|swf|parquet|txt|csv|xml|py|safetensors|pkl|pt|zip|gz))+$")


def labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns one label for each configuration; those that differ in a setting have different labels."""
    found = settings(configs)
    names = told(found, differing(found))
    return [text(key(one, names)) for one in found]


def clipped(texts: Iterable[str], width: int = WIDTH) -> dict[str, str]:
    """Returns by text the same, at most `width` characters; different texts remain different.

    The end of a longer text gives way to an ellipsis, or its middle, or there is a number at the end.
    """
    texts = list(dict.fromkeys(texts))
    found = {one: one for one in texts if len(one) <= width}
    for one in texts:
        if one not in found:
            half = width // 2
            ends = f"{one[: width - 1]}…", f"{one[: width - half - 1]}…{one[-half:]}"
            taken = set(found.values())
            numbered = (f"{one[: width - 6]}… {number}" for number in range(2, len(texts) + 2))
            found[one] = next(end for end in (*ends, *numbered) if end not in taken)
    return {one: found[one] for one in texts}


def settings(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Returns the settings of each configuration by name, with short names of classes and files.

    A class and its settings are ``agent`` and ``agent.guard``; platform and trace are ``platform`` and ``workload``.
    The name of a classic agent includes its core policy where classic agents differ in it.
    """
    configs = _with_different_files(configs)
    agents = [config["agent"] for config in configs if _has_classic_agent(config)]
    cores = len({classic_name(agent, cores=False)[1].get("core_policy") for agent in agents} - {None}) > 1
    found = [dict(_flat(_named(config, cores=cores))) for config in configs]
    for name in dict.fromkeys(name for one in found for name in one):
        short = _short({one[name] for one in found if name in one})
        for one in found:
            if name in one:
                one[name] = short[one[name]]
    return found


def differing(found: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns the names of settings in which runs differ; settings of a class count among its runs only."""
    names = list(dict.fromkeys(name for one in found for name in one))
    return [name for name in names if _differs(name, found)]


def told(found: Sequence[Mapping[str, str]], names: Sequence[str]) -> list[str]:
    """Returns the names of settings, with the agent's checkpoint; with the agent where they say nothing of some run."""
    of_agent = any(name.partition(".")[0] == "agent" for name in names)
    names = [*(["agent.checkpoint"] if of_agent else []), *names]
    return names if all(text(key(one, names)) for one in found) else [*SUBJECTS, "agent.checkpoint", *names]


def key(found: Mapping[str, str], names: Iterable[str]) -> Key:
    """Returns some settings of a run, classes of such settings among them."""
    names = dict.fromkeys(
        part for name in names for part in (*(group for group in _CLASSES if name.startswith(f"{group}.")), name)
    )
    return tuple((name, found.get(name, NONE)) for name in names)


def text(key: Key) -> str:
    """Returns settings as text: ``mine(guard=7200) contention=fair_share jobs=300``; nulls are left out."""
    classes: dict[str, list[str]] = {name: [] for name, _ in key if name in _CLASSES}
    last = Counter(name.rpartition(".")[2] for name, _ in key if name.partition(".")[0] not in classes)
    others = []
    for name, value in key:
        group, _, rest = name.partition(".")
        if name in classes or value == NONE:
            continue
        if group in classes:
            classes[group].append(value if rest == "checkpoint" else f"{rest}={value}")
        else:
            short = name.rpartition(".")[2]
            others.append(f"{short if last[short] == 1 else name}={value}" if name else value)
    values = dict(key)
    named = [
        ("" if group in SUBJECTS else f"{group}=") + values[group] + (f"({','.join(more)})" if more else "")
        for group, more in classes.items()
        if values[group] != NONE or (more or group not in SUBJECTS)
    ]
    return " ".join([*named, *others])


def distinct_ends(paths: Sequence[Path]) -> dict[Path, str]:
    """Returns the shortest ends of different paths that are all different."""
    names = {path: str(path) for path in paths}
    for parts in range(max((len(path.parts) for path in paths), default=0), 0, -1):
        shorter = {path: "/".join(path.parts[-parts:]) for path in paths}
        if len(set(shorter.values())) < len(names):
            break
        names = shorter
    return names


def _named(config: Mapping[str, Any], *, cores: bool) -> dict[str, Any]:
    """The configuration with names for classes and files, and settings of classes as ``agent.guard``."""
    named: dict[str, Any] = {}
    for group, value in config.items():
        if group in _NEUTRAL:
            continue
        if not isinstance(value, Mapping) or group not in (*_CLASSES, *_FILES):
            named[group] = value
            continue
        if group == "agent" and _has_classic_agent(config):
            name, rest = classic_name(value, cores=cores)
        else:
            name = _file_name(value) if group in _FILES else _class_name(value)
            # Settings of a trained agent are those of its checkpoint.
            trained = "num_envs" in value and value.get("checkpoint") is not None
            rest = {
                setting: found
                for setting, found in value.items()
                if setting not in ("path", "_target_")
                and (not trained or setting in ("checkpoint", "sample"))
                and not (setting == "site" and found == config.get("site"))  # told once
            }
        named |= {group: name} | {f"{group}.{setting}": found for setting, found in rest.items()}
    return named


def _with_different_files(configs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns configurations whose classic agents name files of one name with as much of the paths as differs."""
    agents = [config["agent"] for config in configs if _has_classic_agent(config)]
    files = {Path(value) for agent in agents for _, value in _flat(agent) if value.endswith(".py")}
    named = Counter(file.name for file in files)
    ends = distinct_ends(sorted(file for file in files if named[file.name] > 1))

    def shortened(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: shortened(each) for key, each in value.items()}
        end = ends.get(Path(str(value)))
        return value if end is None else end.removesuffix(".py")

    return [
        {**config, "agent": shortened(config["agent"])} if _has_classic_agent(config) else config for config in configs
    ]


def _has_classic_agent(config: Mapping[str, Any]) -> bool:
    agent = config.get("agent")
    return isinstance(agent, Mapping) and not (agent.get("path") or agent.get("_target_"))


def _file_name(spec: Mapping[str, Any]) -> str:
    """Path of a platform or trace, or the model that the jobs are drawn from."""
    generate = spec.get("generate")
    name = generate.get("model") if isinstance(generate, Mapping) else spec.get("path")
    return str(name or NONE)


def _class_name(spec: Mapping[str, Any]) -> str:
    """Path of a class's file, or the name of its option: ``ppo`` for ``hdsim.agents.ppo.PPOAgent``."""
    if spec.get("path"):
        return str(spec["path"])
    package, _, _ = str(spec.get("_target_")).rpartition(".")
    if package.startswith("hdsim.agents."):
        return package.rpartition(".")[2]
    name = short_name(spec)
    return name.removesuffix("_agent") or name


def _differs(name: str, found: Sequence[Mapping[str, str]]) -> bool:
    if name.startswith(_GENERATED):
        found = [one for one in found if name in one]
    group = name.partition(".")[0]
    values = defaultdict(set)
    for one in found:
        values[one.get(group) if group in _CLASSES and name != group else None].add(one.get(name, NONE))
    return any(len(several) > 1 for several in values.values())


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield f"{prefix}{name}", str(value).lower()
        else:
            yield f"{prefix}{name}", NONE if value is None else str(value).replace(", ", ",")


def _short(values: set[str]) -> dict[str, str]:
    """Paths among the values without directories and suffixes, as far as they remain different."""
    paths = {value: Path(value) for value in values if "/" in value or _SUFFIXES.search(value)}
    ends = distinct_ends([*paths.values()])
    short = {value: _SUFFIXES.sub("", ends[paths[value]]) if value in paths else value for value in values}
    taken = Counter(short.values())
    return {value: name if taken[name] == 1 else value for value, name in short.items()}
