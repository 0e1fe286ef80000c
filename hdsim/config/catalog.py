"""Descriptions of the names of the command line, by kind.

Descriptions come from the tables, docstrings and files that runs use. Agents are not imported, since optional packages
may be missing.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from hdsim.config.descriptions import description
from hdsim.config.keys import SCHEMAS, flat
from hdsim.config.plugin_types import named_types
from hdsim.errors import ConfigError, not_one_of
from hdsim.util.plugins import NamedType, installed
from hdsim.util.resources import bundled, folder, options

#: Groups whose options set keys.
SETTING_GROUPS = (
    "site",
    *("platform", "workload", "agent", "backend", "contention", "network", "failures", "power", "facility"),
    *("env", "train"),
    *("controller", "forecaster", "runner"),
)


class Description(NamedTuple):
    """Descriptions of a name: a line, and a text."""

    summary: str
    details: str


class Setting(NamedTuple):
    """A key in the file of an option: its value, and the comment behind it."""

    value: Any
    note: str


def listed(kind: str) -> dict[str, Description]:
    """Returns the entries of a kind by name."""
    return KINDS[kind]()


def find(kind: str, name: str) -> Description:
    """Returns the entry of a name; of agents also that of a composed name, of metrics that of a statistic.

    Raises:
        ConfigError: There is none.
    """
    entries = listed(kind)
    if name in entries:
        return entries[name]
    if kind == "agents":
        from hdsim.scheduling.agent import parse_name

        with suppress(ConfigError):
            return _short_name(parse_name(name))
    statistic, _, quantity = name.partition("_")
    if kind == "metrics" and statistic in ("mean", "median", "p95", "p99", "max") and quantity in entries:
        return entries[quantity]
    raise ConfigError(not_one_of(name, entries), where=kind)


def settings(path: Path) -> dict[str, Setting]:
    """Returns the keys in the file of an option, without the name of its group."""
    import yaml

    text = path.read_text(encoding="utf-8")
    found = dict(flat(yaml.safe_load(text) or {}))
    notes: dict[str, str] = {}
    parents: list[tuple[int, str]] = []
    for indent, name, note in re.findall(r"^( *)(\w+):(?:.*? # (.*))?", text, re.MULTILINE):
        parents = [*((depth, parent) for depth, parent in parents if depth < len(indent)), (len(indent), name)]
        notes[".".join(parent for _, parent in parents)] = note
    hidden = ("defaults", "_target_")
    return {key: Setting(value, notes.get(key, "")) for key, value in found.items() if key not in hidden}


def agents() -> dict[str, Description]:
    """Returns agents: the short names that are single words, and the options of the group ``agent``."""
    from hdsim.scheduling.agent import SHORT_NAMES

    found = {name: _short_name(words) for name, words in SHORT_NAMES.items()}
    for name, path in options("agent").items():
        text = _class_docstring(path) or " ".join(_comment(path))
        table = [f"agent.{key} = {_shown(setting)}" for key, setting in settings(path).items()]
        found[name] = Description(text.partition("\n")[0], "\n".join([text, "", "Settings and defaults:", *table]))
    return _with_installed(found, "agent", "of {}", "hdsim run agent={}")


def policies() -> dict[str, Description]:
    """Returns queue orders, backfilling algorithms and core policies."""
    from hdsim.cluster.policies import CORE_POLICIES
    from hdsim.scheduling.agent import BACKFILLS
    from hdsim.scheduling.orders import ORDERS

    orders = {name: inspect.getdoc(order.score) or "" for name, order in ORDERS.items()}
    found: dict[str, Description] = {}
    for key, table in (("job_policy", orders), ("backfill", BACKFILLS), ("core_policy", CORE_POLICIES)):
        for name, text in table.items():
            # An order and a core policy may have one name.
            place = f"{name} (cores)" if name in found else name
            line = text.partition("\n")[0]
            found[place] = Description(f"{key}: {line}", f"agent.{key}={name}\n{text}")
    for kind, key in (("order", "job_policy"), ("backfill", "backfill"), ("core_policy", "core_policy")):
        _with_installed(found, kind, f"{key}: of {{}}", f"agent.{key}={{}}")
    return found


def metrics() -> dict[str, Description]:
    """Returns metrics, those of jobs by the name of the quantity."""
    from hdsim.results.metrics import GANG_METRICS, METRICS, QUANTITIES, STATISTICS

    found = {}
    for name, metric in (METRICS | GANG_METRICS).items():
        names = [f"{kind}_{name}" for kind in STATISTICS] if name in QUANTITIES else [name]
        better = str(metric.direction) or "neither direction is better"
        lines = (f"formula    {metric.description}", f"unit       {metric.unit or 'none'}", f"direction  {better}")
        found[name] = Description(
            f"{metric.description} [{metric.unit or '1'}]", "\n".join([*lines, f"names      {', '.join(names)}"])
        )
    return _with_installed(found, "metric", "of {}, with metrics=[{name}]", "hdsim run metrics=[{}]")


def keys() -> dict[str, Description]:
    """Returns the groups and keys of the commands with configurations."""
    expecting: dict[str, dict[str, list[str]]] = {}
    for command, schema in reversed(SCHEMAS.items()):
        for key, rule in flat(schema.rules):
            expecting.setdefault(key, {}).setdefault(rule.expected, []).append(f"hdsim {command}")
    rules = {key: " or ".join(expected) for key, expected in expecting.items()}
    found = {
        key: _key(key, rules[key], *(f"expected  {rule}: {', '.join(of)}" for rule, of in expected.items()))
        for key, expected in expecting.items()
        if key.partition(".")[0] not in SETTING_GROUPS
    }
    for group in (*SETTING_GROUPS, "experiment"):
        names = ", ".join([*options(group), *(entry.name for entry in installed(group))])
        found[group] = _key(group, f"an option: {names}", f"options  {names}")
        members: dict[str, list[str]] = {}
        for option, path in options(group).items() if group in SETTING_GROUPS else ():
            for key, setting in settings(path).items():
                members.setdefault(key, []).append(f"{group}={option}: {_shown(setting)}")
        for key, lines in members.items():
            takers = ", ".join(line.partition(":")[0].partition("=")[2] for line in lines)
            expected = rules.get(f"{group}.{key}", f"a setting of {takers}")
            name = f"{group}.{key}"
            found[name] = _key(name, expected, f"expected  {expected}", "defaults:", *lines)
    return found


def _key(key: str, expected: str, *lines: str) -> Description:
    """Returns the entry of a key: its description, or the allowed values of a key without one, and further lines."""
    text = description(key)
    return Description(text or expected, "\n".join([text, *lines] if text else lines))


def experiments() -> dict[str, Description]:
    """Returns experiments: what each shows, its commands and its file."""
    found = {}
    for name, path in options("experiment").items():
        lines = _comment(path)
        commands = [line for line in lines if line.startswith("hdsim ")]
        text = " ".join(line for line in lines if not line.startswith(("hdsim ", "@package")))
        content = path.read_text(encoding="utf-8")
        found[name] = Description(
            text.partition(". ")[0], "\n".join([text, "", *commands, "", f"{path}:", content.rstrip()])
        )
    return found


def studies() -> dict[str, Description]:
    """Returns studies: the question of each, and its file."""
    import yaml

    found = {}
    for name, path in bundled("studies").items():
        content = path.read_text(encoding="utf-8")
        question = str(yaml.safe_load(content)["question"])
        found[name] = Description(
            question, "\n".join([question, "", f"hdsim study {name}", "", f"{path}:", content.rstrip()])
        )
    return found


def platforms() -> dict[str, Description]:
    """Returns the bundled platforms."""
    from hdsim.platform.load import load_platform

    found = {}
    for name, path in bundled("platforms").items():
        text = repr(load_platform(path)).strip("<>").partition(": ")[2]
        found[name] = Description(text, f"{text}\n{path}\nhdsim platform show {name}")
    return found


def workloads() -> dict[str, Description]:
    """Returns the bundled traces."""
    found = {}
    for name, path in bundled("workloads").items():
        text = f"{path.name}, {path.stat().st_size / 1e3:,.0f} kB"
        found[name] = Description(text, f"{path}\nhdsim workload show {name}")
    return found


def kinds() -> dict[str, Description]:
    """Returns the bundled kinds of machines and loads."""
    from hdsim.workload.generators.kinds import read_kind

    found = {}
    for name, path in bundled("kinds").items():
        kind = read_kind(path)
        held = " (held out)" if kind.held_out else ""
        command = f"hdsim run workload=kind workload.kind={name}"
        found[name] = Description(kind.about + held, f"{kind.about}{held}\n{path}\n{command}")
    return found


KINDS: dict[str, Callable[[], dict[str, Description]]] = {
    "agents": agents,
    "policies": policies,
    "metrics": metrics,
    "keys": keys,
    "actions": lambda: _classes("env.action"),
    "observations": lambda: _classes("env.observation"),
    "objectives": lambda: _classes("env.objective"),
    "generators": lambda: _classes("workload.generate.model"),
    "experiments": experiments,
    "studies": studies,
    "platforms": platforms,
    "workloads": workloads,
    "kinds": kinds,
}


def _classes(key: str) -> dict[str, Description]:
    """Returns the classes that a key names: their docstrings, and the key."""
    found, kind = {}, named_types()[key]
    assert isinstance(kind, NamedType)
    for name, made in kind.classes().items():
        text = inspect.getdoc(made) or ""
        found[name] = Description(text.partition("\n")[0], f"{key}={name}\n{text}")
    return _with_installed(found, kind.group, "of {}", f"{key}={{}}")


def _with_installed(found: dict[str, Description], group: str, summary: str, details: str) -> dict[str, Description]:
    """Adds plug-ins of installed packages, which are not imported; texts have places for the class and for the name."""
    for entry in installed(group):
        found.setdefault(
            entry.name, Description(summary.format(entry.value, name=entry.name), details.format(entry.name))
        )
    return found


def _short_name(words: Mapping[str, str]) -> Description:
    texts = [f"agent.{key}={value}" for key, value in words.items()]
    return Description(" ".join(texts), "\n".join(["The agent classic with", *texts]))


def _class_docstring(path: Path) -> str:
    """The docstring of the class that an option of the group ``agent`` names, empty without one."""
    target = re.search(r"^_target_: hdsim\.agents\.(\w+)\.(\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    name, kind = target.groups() if target else ("classic", "ClassicAgent") if path.stem == "classic" else ("", "")
    if not name:
        return ""
    tree = ast.parse((folder("agents") / f"{name}.py").read_text(encoding="utf-8"))
    return next(
        ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind
    )


def _comment(path: Path) -> list[str]:
    """The lines of the comment at the top of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)]


def _shown(setting: Setting) -> str:
    value = written(setting.value)
    return f"{value}  ({setting.note})" if setting.note else value


def written(value: Any) -> str:
    """Returns a value as it is written in a configuration."""
    return value if isinstance(value, str) else json.dumps(value)
