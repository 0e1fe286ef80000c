"""Configurations of runs: composition by Hydra, checks, and errors of one line.

Hydra's own entry point prints faults and exits; to turn them into `ConfigError` its loader is used directly.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from yaml import MarkedYAMLError, YAMLError

from hdsim.config.keys import GROUPS_WITH_FILES, OPEN_GROUPS, check, unknown_key
from hdsim.config.paths import quoted_path, with_absolute_paths
from hdsim.config.sources import initialize
from hdsim.errors import ConfigError, nearest, not_one_of
from hdsim.scheduling.agent import parse_name
from hdsim.util.plugins import installed, optional
from hdsim.util.resources import bundled, folder

#: Exceptions of Hydra, OmegaConf and PyYAML for wrong overrides and files.
FAULTS = (
    HydraException,
    OmegaConfBaseException,
    YAMLError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    AssertionError,
    RecursionError,
    OverflowError,
)

#: Keys of compositions that are none of runs.
_BESIDE = ("hydra", "experiment", "tune")
#: Settings of `hydra/launcher=ray`, see docs/run.md.
_RAY = {"_target_": "hdsim.runs.launchers.RayLauncher", "address": None, "num_cpus": 1, "max_retries": 3}
#: Extras of hdsim that launchers of Hydra come with.
_LAUNCHERS = {"joblib": "joblib", "submitit_local": "submitit", "submitit_slurm": "submitit"}


@dataclass(frozen=True)
class Composition:
    """A composed configuration."""

    config: dict[str, Any]  # the configuration, checked; its paths are absolute with ``hydra.job.chdir``
    overrides: tuple[str, ...]  # the overrides that it was composed with, without those of Hydra's own keys
    directory: Path  # directory of the run, in a sweep that of the sweep
    hydra: DictConfig  # the composition with Hydra's part, for ``.hydra``

    @property
    def subdirectory(self) -> str | None:
        """Directory of the run within that of the sweep, if the configuration names one.

        Raises:
            ConfigError: It cannot be resolved.
        """
        HydraConfig.instance().set_config(self.hydra)
        with explained("hydra.sweep.subdir"):
            return str(self.hydra.hydra.sweep.subdir) or None

    @property
    def is_named_by_time(self) -> bool:
        """Whether the directory of the run has a name that another run of the same second would have, too."""
        mode = "sweep" if self.hydra.hydra.mode is RunMode.MULTIRUN else "run"
        written: Any = OmegaConf.to_container(self.hydra.hydra[mode], resolve=False)
        return "${now:" in str(written["dir"])

    def claim(self) -> Path:
        """Returns the directory of the run; one that is named by the time is made, under a name that no run has."""
        if not self.is_named_by_time:
            return self.directory
        for place in _numbered(self.directory):
            try:
                place.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError:  # The lock says what is wrong.
                break
            with read_write(self.hydra.hydra.run):
                self.hydra.hydra.run.dir = str(place)
            return place
        return self.directory

    def move(self, directory: Path) -> None:
        """Sets the directory of the sweep."""
        with read_write(self.hydra.hydra.sweep):
            self.hydra.hydra.sweep.dir = str(directory)

    def enter(self, subdirectory: str) -> None:
        """Sets the directory of the run within that of the sweep."""
        with read_write(self.hydra.hydra.sweep):
            self.hydra.hydra.sweep.subdir = subdirectory


def _numbered(directory: Path) -> Iterator[Path]:
    """Yields a directory, then the same with 2, 3 and so on behind its name."""
    yield directory
    for number in itertools.count(2):
        yield directory.with_name(f"{directory.name}_{number}")


def unused(directory: Path) -> Path:
    """Returns a directory, with a number behind its name if it exists."""
    return next(place for place in _numbered(directory) if not place.exists())


class Composer:
    """Composes configurations from ``conf/``, a user's own folder and the agents of installed packages.

    Args:
        config_dir: A further folder to search for groups and options (Hydra's ``--config-dir``).
        config_name: The primary configuration.

    Raises:
        ConfigError: The folder does not exist.
    """

    def __init__(self, config_dir: str | None = None, config_name: str = "config") -> None:
        self._config_name = config_name
        self._bundled = config_dir is None and config_name == "config"
        self._installed = {group: {entry.name for entry in installed(group)} for group in OPEN_GROUPS}
        for group in self._installed:
            for entry in installed(group):
                self._add_option(group, entry.name, {"_target_": entry.value.replace(":", ".")})
        extra = None if config_dir is None else Path(config_dir).resolve()
        if extra is not None and not extra.is_dir():
            raise ConfigError(f"expected a directory, got '{config_dir}'", where="--config-dir")
        self._hydra = initialize(folder("conf"), extra)
        self._loader: ConfigLoader = self._hydra.config_loader
        # In place of the settings of Hydra's own plugin, if that is installed.
        self._add_option("hydra/launcher", "ray", _RAY)
        parser = OverridesParser.create(config_loader=self._loader)
        self._parsed = lru_cache(maxsize=10_000)(lambda text: parser.parse_overrides([text])[0])
        self._bases: dict[tuple[str, ...], bytes] = {}
        self._files: set[str] = set()  # options that are files of plug-ins

    def overrides(self, given: Sequence[str]) -> list[str]:
        """Prepares a user's overrides for the other methods.

        ``agent.path`` and ``agent._target_`` select the option ``custom`` of the group ``agent``, and the settings of
        an agent that is not hdsim's own need no ``+``, nor do those of a decision problem and of the other open groups.
        ``backend=kwok`` or ``backend=slurm`` alone means the nodes of its cluster, ``platform=cluster``.

        Raises:
            ConfigError: An override has no key.
        """
        for text in given:
            # Hydra's own error names neither the argument nor its form.
            if not text.partition("=")[0].partition("@")[0].strip(" +~"):
                raise ConfigError(f"expected KEY=VALUE, got '{text}'")
        given = [quoted_path(text) for text in given]
        # The settings depend on the kinds of action and observation and are checked by the decision problem.
        given = [f"++{text}" if text.startswith("env.") else text for text in given]
        for group in OPEN_GROUPS:
            given = [_with_relative_files(text) if text.startswith(f"{group}=") else text for text in given]
            foreign = {"custom", *self._installed.get(group, ())}
            choices = {name for text in given if text.startswith(f"{group}=") for name in text.split("=")[1].split(",")}
            if not choices and any(text.startswith((f"{group}.path=", f"{group}._target_=")) for text in given):
                choices = {"custom"}
                given = [f"{group}=custom", *given]
            if choices and all(name in foreign or name.endswith(".py") for name in choices):
                given = [f"++{text}" if text.startswith(f"{group}.") else text for text in given]
        on_cluster = any(f"backend={name}" in given for name in ("kwok", "slurm"))
        if on_cluster and not any(text.startswith(("platform", "experiment=")) for text in given):
            given = ["platform=cluster", *given]
        given = [_with_relative_files(text) if text.startswith("site=") else text for text in given]
        for text in given:
            if text.startswith("site="):
                self._read_sites(text.partition("=")[2].split(","))
            elif text.startswith("agent="):
                # A composition that does not find one is made twice. An option of this name in a file comes first.
                for name in set(text.partition("=")[2].split(",")) - self._installed["agent"]:
                    with contextlib.suppress(ConfigError):
                        self._add_agent(name)
        return _with_site(given, trains=self._config_name == "train")

    def _read_sites(self, paths: Sequence[str]) -> None:
        """Makes folders of sites options, anew each time: their files may have changed since."""
        for path in (text.strip("'\"") for text in paths):
            if Path(path).exists() and not (folder("conf") / "site" / f"{path}.yaml").exists():
                self._add_site(path)

    def _add_site(self, path: str) -> None:
        group, _, name = f"site/{path}".rpartition("/")
        self._add_option(group, name, _site_settings(path), package="site")

    def compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Returns the checked configuration of one run.

        Its paths are absolute if runs work in their own directories (``hydra.job.chdir``).

        Raises:
            ConfigError: An override or a value is wrong.
        """
        return self.compose_run(overrides).config

    def compose_run(self, overrides: Sequence[str]) -> Composition:
        """Composes one run.

        Raises:
            ConfigError: An override or a value is wrong.
        """
        composed = self._compose(overrides, RunMode.RUN)
        composed.hydra.mode = RunMode.RUN
        return self._composition(composed)

    def options(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Returns the values of options, resolved and not checked; those without a default are ``???``.

        Raises:
            ConfigError: An override is wrong, or a value cannot be resolved.
        """
        return resolved(self._compose(overrides, RunMode.RUN), without=_BESIDE, complete=False)

    def is_sweep(self, overrides: Sequence[str]) -> bool:
        """Whether the configuration requests a sweep (``hydra.mode``), as an experiment may."""
        # Without composing, which takes a tenth of a second: the bundled files beside experiments request none.
        requesting = ("experiment", "hydra.mode", "hydra.searchpath", "hydra/", "hydra=")
        if self._bundled and not any(text.lstrip("+~").startswith(requesting) for text in overrides):
            return False
        composed = self._compose(overrides, RunMode.MULTIRUN)
        with explained("hydra"):
            return composed.hydra.mode is RunMode.MULTIRUN

    def sweep(self, overrides: Sequence[str]) -> list[Composition]:
        """Composes the runs of a sweep, in the order of Hydra's basic sweeper.

        The overrides of each run have the same keys in the same order.

        Raises:
            ConfigError: An override is wrong or has no value, or a plugin other than the basic sweeper is asked for.
        """
        whole = self._compose(overrides, RunMode.MULTIRUN)
        with explained("hydra.sweep"):
            sweeper = whole.hydra.sweeper
            name = sweeper["_target_"].rpartition(".")[2]
            if name != "BasicSweeper":
                raise ConfigError(f"expected basic, got {name}", where="hydra/sweeper")
            arguments = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
            parsed = map(self._parsed, [*arguments, *_texts(whole.hydra.overrides.task)])
            # Of two overrides of one key the last counts.
            runs = list(itertools.product(*{each.get_key_element(): _expanded(each) for each in parsed}.values()))
        if not runs:
            raise ConfigError("expected values that make at least one run, got none, such as a glob without a match")
        return [self._of_sweep(whole, number, run) for number, run in enumerate(runs)]

    def _of_sweep(self, whole: DictConfig, number: int, overrides: Sequence[str]) -> Composition:
        composed = self._compose([*_texts(whole.hydra.overrides.hydra), *overrides], RunMode.RUN)
        OmegaConf.copy_cache(from_config=whole, to_config=composed)  # the same ${now:}
        composed.hydra.mode = RunMode.MULTIRUN
        with open_dict(composed):
            composed.hydra.job.id, composed.hydra.job.num = str(number), number
        return self._composition(composed)

    @staticmethod
    def _composition(composed: DictConfig) -> Composition:
        with explained("hydra.job.chdir"):
            changes = bool(composed.hydra.job.chdir)
        config = plain(composed)
        swept = composed.hydra.mode is RunMode.MULTIRUN
        with explained("hydra.sweep.dir" if swept else "hydra.run.dir"):
            directory = Path(composed.hydra.sweep.dir if swept else composed.hydra.run.dir)
        overrides = tuple(_texts(composed.hydra.overrides.task))
        return Composition(with_absolute_paths(config) if changes else config, overrides, directory, composed)

    def show(self, overrides: Sequence[str], part: str, package: str | None, resolve: bool) -> None:
        """Prints the configuration (Hydra's ``--cfg``).

        Raises:
            ConfigError: An override is wrong.
        """
        self._guard(overrides, lambda: self._hydra.show_cfg(self._config_name, list(overrides), part, package, resolve))

    def info(self, overrides: Sequence[str], about: str) -> None:
        """Prints the sources of the configuration (Hydra's ``--info``).

        Raises:
            ConfigError: An override is wrong.
        """
        self._guard(overrides, lambda: self._hydra.show_info(about, self._config_name, list(overrides)))

    def _options(self, group: str) -> list[str]:
        return sorted(self._loader.get_group_options(group))

    @staticmethod
    def _add_option(group: str, name: str, node: dict[str, Any], package: str | None = None) -> None:
        ConfigStore.instance().store(group=group, name=name, node=node, package=package, provider="hdsim")

    def _compose(self, overrides: Sequence[str], mode: RunMode) -> DictConfig:
        composed = self._guard(overrides, lambda: self._composed(overrides, mode))
        assert isinstance(composed, DictConfig)
        return composed

    def _guard(self, overrides: Sequence[str], call: Callable[[], Any]) -> Any:
        while True:
            try:
                return call()
            except FAULTS as error:
                if not self._learn_option(error):
                    raise self._explain(error, overrides) from error

    def _learn_option(self, error: Exception) -> bool:
        """Makes an agent's short name, a bundled trace or a plug-in's file an option when Hydra does not find it.

        Raises:
            ConfigError: There is no such agent.
        """
        missing = (error.missing_cfg_file or "") if isinstance(error, MissingConfigException) else ""
        group, _, name = missing.rpartition("/")
        top, _, file = missing.partition("/")
        if top in OPEN_GROUPS and file.endswith(".py") and missing not in self._files:
            self._files.add(missing)
            # A file of a plug-in is an option as well: agent=fcfs,mine.py.
            self._add_option(group, name, {"path": file}, package=top)
            return True
        if top == "site" and missing not in self._files and not (group != top and self._is_group(group)):
            self._files.add(missing)
            self._add_site(file)
            return True
        if group == "workload" and name in bundled("workloads"):
            self._add_option("workload", name, {"defaults": ["default", "_self_"], "path": name})
            return True
        if group != "agent":
            return False
        try:
            self._add_agent(name)
        except ConfigError as unknown:
            options = self._options("agent")
            meant = "" if "did you mean" in unknown.message else nearest(name, options)
            message = f"{unknown.message}; further options: {', '.join(options)}{meant}"
            raise ConfigError(message, where="agent") from error
        return True

    def _add_agent(self, name: str) -> None:
        """Makes the short name of an agent an option.

        Raises:
            ConfigError: There is no such agent.
        """
        self._add_option("agent", name, {"defaults": ["classic", "_self_"], **parse_name(name)})

    def _explain(self, error: Exception, overrides: Sequence[str]) -> ConfigError:
        """Describes an error of Hydra or OmegaConf in one line with the allowed values."""
        cause = error.__cause__
        if isinstance(error, MarkedYAMLError) and error.problem_mark:
            mark = error.problem_mark
            where = f"{mark.name}:{mark.line + 1}:{mark.column + 1}"
            return ConfigError(f"expected YAML: {error.problem}", where=where)
        if isinstance(error, OverrideParseException):
            return ConfigError(
                f"expected KEY=VALUE, got '{error.override}' (a value with commas, spaces or = needs quotes)"
            )
        if isinstance(error, MissingConfigException) and error.missing_cfg_file:
            missing = error.missing_cfg_file
            # An option given as a path has slashes of its own; only groups of Hydra and of rules are nested.
            nested = missing.startswith(("hydra/", "site/"))
            group, _, option = missing.rpartition("/") if nested else missing.partition("/")
            if "/" not in missing:
                group, option = "", missing
            options = self._options(group) + sorted(bundled("workloads") if group == "workload" else ())
            known = not_one_of(option, options)
            if group == "hydra/launcher" and option in _LAUNCHERS:
                known = f"expected its plugin: pip install 'hdsim[{_LAUNCHERS[option]}]'"
            if group in GROUPS_WITH_FILES and re.search(r"[/.]", option):
                known += f"; a file is given as {group}.path=FILE"
            return ConfigError(known, where=group or "--config-name")
        if isinstance(cause, ConfigAttributeError | ConfigKeyError) and cause.full_key:
            key = str(cause.full_key)
            # Another override may be wrong as well.
            with contextlib.suppress(*FAULTS):
                unknown, options = unknown_key(key, self._keys_beside(key, overrides)), self._options_with(key)
                also = f"; a key of {', '.join(options)}" if options else ""
                return ConfigError(f"{unknown.message}{also}", where=key)
        if refused := next(filter(None, map(self._no_name, overrides)), None):
            group, text = refused
            known = f"expected the name of an option, got {text}; a key of it is given as {group}.KEY=VALUE"
            return ConfigError(known, where=group)
        message = _first_line(error) + (f": {_first_line(cause)}" if cause else "")
        if not isinstance(error, HydraException | OmegaConfBaseException | YAMLError | ValueError):
            kind, shown = type(error).__name__, " ".join(overrides)[:200]
            message = f"expected overrides that Hydra can compose, got {shown} ({kind}: {message})"
        if message.startswith("Could not override 'study'"):
            message = "expected a key of this command; a study has its own, `hdsim study NAME`"
        if message.startswith("Ambiguous value"):
            message += " (several values need -m, a list needs [])"
        return ConfigError(message)

    def _no_name(self, override: str) -> tuple[str, str] | None:
        """Returns the group and the value of an override that selects an option by what is no name."""
        try:
            each = self._parsed(override)
        except FAULTS:
            return None
        if each.key_or_group not in GROUPS_WITH_FILES or each.is_sweep_override():
            return None
        value = each.value()
        names = value if isinstance(value, list) else [value]
        if all(isinstance(name, str | None) for name in names):
            return None
        return each.key_or_group, override.partition("=")[2]

    def _options_with(self, key: str) -> list[str]:
        """Returns the options, such as ``network=fluid``, that have a key."""
        group, _, name = key.partition(".")
        options = [f"{group}={option}" for option in self._options(group)] if group in OPEN_GROUPS[1:] else []
        return [option for option in options if name in self._composed([option]).get(group, ())]

    def _composed(self, overrides: Sequence[str], mode: RunMode = RunMode.MULTIRUN) -> DictConfig:
        if mode is RunMode.MULTIRUN or any("hydra.searchpath" in text for text in overrides):
            return self._by_hydra(overrides, mode)
        # Runs of a sweep with the same options of groups share Hydra's composition of these; as Hydra does, values are
        # set in the complete configuration.
        parsed = [self._parsed(text) for text in overrides]
        values = [each for each in parsed if self._is_value(each)]
        chosen = tuple(each.input_line or "" for each in parsed if each not in values)
        if chosen not in self._bases:
            self._bases[chosen] = pickle.dumps(self._by_hydra(chosen, mode))
        composed: DictConfig = pickle.loads(self._bases[chosen])  # five times as fast as deepcopy
        try:
            for each in values:
                _set(composed, each)
        except FAULTS:
            return self._by_hydra(overrides, mode)  # Its errors name the override.
        own = [each for each in parsed if not each.is_hydra_override()]
        composed.hydra.overrides.task = [each.input_line for each in own]
        form = composed.hydra.job.config.override_dirname
        named = sorted(each.input_line or "" for each in own if each.key_or_group not in form.exclude_keys)
        composed.hydra.job.override_dirname = form.item_sep.join(named).replace("=", form.kv_sep)
        return composed

    def _is_value(self, override: Override) -> bool:
        """Whether an override sets a value, rather than choosing an option of a group or configuring Hydra."""
        if override.is_hydra_override():
            return False
        return isinstance(override.value(), dict) or not self._is_group(override.key_or_group)

    def _is_group(self, name: str) -> bool:
        return any(source.is_group(name) for source in self._loader.get_sources())

    def _by_hydra(self, overrides: Sequence[str], mode: RunMode) -> DictConfig:
        return self._loader.load_configuration(self._config_name, list(overrides), mode)

    def _keys_beside(self, key: str, overrides: Sequence[str]) -> list[str]:
        """Returns the valid keys of the group that an unknown key is in."""
        parsed = [self._parsed(text) for text in overrides]
        groups = [text.input_line for text in parsed if text.input_line and self._options(text.key_or_group)]
        composed = self._composed(groups)
        parent = key.rpartition(".")[0]
        node = OmegaConf.select(composed, parent) if parent else composed
        return [str(name) for name in node] if isinstance(node, DictConfig) else []


def _site_settings(path: str) -> dict[str, Any]:
    """Returns the rules of a site as keys; its associations stay in its file.

    Raises:
        ConfigError: There is no such site, or it is malformed.
    """
    for package in ("ClusterShell", "pydantic"):
        optional(package)
    from hdsim.site.model import settings_of

    return settings_of(path)


def _with_site(given: list[str], *, trains: bool) -> list[str]:
    """Returns overrides in which ``site=FOLDER`` brings platform, jobs and scheduler, unless they are given.

    A training gets held-out weeks and the environment of a site in place of its scheduler.
    """
    folder = next((text.partition("=")[2] for text in given if text.startswith("site=")), "none")
    if folder == "none":
        return _with_bare_site(given)
    if "," in folder:
        return given
    path = folder.strip("'\"")
    brought = {
        **({"env": "env=slurm", "train.window_jobs": "train.window_jobs=7d"} if trains else {"agent": "agent=slurm"}),
        "platform": quoted_path(f"platform.path={path}/platform.json"),
        "workload": quoted_path(f"workload.path={path}/jobs.parquet"),
        "workload.memory": "workload.memory=none",
        "workload.memory_bandwidth": "workload.memory_bandwidth=none",
        "workload.status": "workload.status=queued",
    }
    keys = {text.partition("=")[0].lstrip("+") for text in given}
    if "site.replay.begin" in keys:
        # The jobs that are there at the begin are in no mean.
        brought["warmup"] = "warmup=1s"
    keys |= {group for group in ("agent", "platform", "workload") if {f"{group}.path", f"{group}._target_"} & keys}
    # Only the scheduler of a site takes cancelled jobs out of the queue, its environment, and agents of that.
    other = "env" in keys and "env=slurm" not in given if trains else "agent" in keys and "agent.checkpoint" not in keys
    if other:
        del brought["workload.status"]
    return [*(text for key, text in brought.items() if key not in keys), *given]


def _with_bare_site(given: list[str]) -> list[str]:
    """Returns overrides in which rules without a site add to those of any platform and workload (hdsim.site.bare)."""
    plain_texts = [text.lstrip("+~") for text in given]
    rules = [text for text in plain_texts if text.startswith(("site.", "site/")) and not text.startswith("site.path=")]
    if not rules:
        return given
    agents = [text for text in given if text.startswith("agent=")]
    if any(text != "agent=slurm" for text in agents):
        key = rules[0].partition("=")[0]
        raise ConfigError(
            f"expected site=FOLDER before it, of 'hdsim site import', or agent=slurm; got {agents[-1]}", where=key
        )
    given = [f"++{text}" if text.startswith("site.") else text for text in given]
    return given if agents or any(text.startswith("experiment=") for text in given) else ["agent=slurm", *given]


def _expanded(override: Override) -> list[str]:
    """The overrides of one value each that an override of a sweep stands for."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        raise ConfigError("expected values that can be listed, such as range(1,4), got an interval", where=key)
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _set(composed: DictConfig, override: Override) -> None:
    """Sets a value in a configuration as Hydra does.

    Raises:
        ValueError: Hydra is to do it, or to refuse it.
    """
    key, value = override.key_or_group, override.value()
    adds = override.is_add() and not isinstance(value, dict | list)
    if (
        override.is_sweep_override()
        or override.is_delete()
        or override.package is not None
        or (adds and OmegaConf.select(composed, key, throw_on_missing=False) is not None)
    ):
        raise ValueError(override.input_line)
    OmegaConf.update(composed, key, value, merge=True, force_add=override.is_add() or override.is_force_add())


@contextlib.contextmanager
def explained(where: str, text: Callable[[BaseException], str] | None = None) -> Iterator[None]:
    """Turns errors of Hydra and OmegaConf into those of a key, by default with the first line of their text."""
    try:
        yield
    except FAULTS as error:
        raise ConfigError((text or _first_line)(error), where=where) from error


def plain(composed: DictConfig) -> dict[str, Any]:
    """Returns a composed configuration without Hydra's part, resolved and checked.

    Raises:
        ConfigError: A value is missing, cannot be resolved, or is wrong.
    """
    return check(resolved(composed, without=_BESIDE))


def resolved(composed: DictConfig, without: Container[str] = (), *, complete: bool = True) -> dict[str, Any]:
    """Returns the values of a configuration but for some keys, with references resolved.

    Raises:
        ConfigError: A value is missing, unless it need not be `complete`, or cannot be resolved.
    """
    try:
        values = {str(key): composed[key] for key in composed if key not in without}
        return {
            key: OmegaConf.to_container(value, resolve=True, throw_on_missing=complete)
            if OmegaConf.is_config(value)
            else value
            for key, value in values.items()
        }
    except MissingMandatoryValue as error:
        raise ConfigError("expected a value, which has no default, got none", where=str(error.full_key)) from error
    except OmegaConfBaseException as error:
        hint = r"; a literal ${ is written \${" if isinstance(error, InterpolationResolutionError) else ""
        raise ConfigError(_first_line(error) + hint, where=str(error.full_key or "") or None) from error


def _texts(overrides: ListConfig) -> list[str]:
    """Overrides as they were given, references in them unresolved."""
    texts = OmegaConf.to_container(overrides)
    assert isinstance(texts, list)
    return texts


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _with_relative_files(override: str) -> str:
    """Writes absolute Python files among the options of a group relative to the working directory.

    To Hydra an option with a leading slash is one of another group.
    """
    key, _, options = override.partition("=")
    names = options.split(",")
    return f"{key}={','.join(os.path.relpath(name) if name.startswith('/') else name for name in names)}"
