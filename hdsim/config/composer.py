"""Configurations of runs: composition by Hydra, checks, and errors of one line.

Hydra's own entry point prints faults and exits; to turn them into `ConfigError` its `Hydra` object is used directly, as
that entry point does.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra import version as hydra_version
from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from hdsim.config.keys import GROUPS_WITH_FILES, OPEN_GROUPS, check, unknown_key
from hdsim.config.paths import quoted_path, with_absolute_paths
from hdsim.errors import ConfigError, nearest
from hdsim.scheduling.agent import parse_name
from hdsim.util.plugins import installed
from hdsim.util.resources import folder

#: Called for a run with its directory and its number in a sweep.
RunFunction = Callable[[Path, int], object]


def run_name(overrides: str) -> str:
    """Returns a folder name for a run of a sweep.

    The name is the overrides without quotes, slashes and blanks, cut and completed by a hash if long.
    """
    name = re.sub(r"[/\\\s]+", "_", re.sub("['\"]", "", overrides)) or "default"
    return name if len(name) <= 120 else f"{name[:100]}-{hashlib.sha256(overrides.encode()).hexdigest()[:12]}"


#: Exceptions of Hydra, OmegaConf and PyYAML for wrong overrides and files.
_FAULTS = (
    HydraException, OmegaConfBaseException, YAMLError, LookupError, TypeError, ValueError, AttributeError,
    AssertionError, RecursionError, OverflowError,
)  # fmt: skip

OmegaConf.register_new_resolver("run_name", run_name, replace=True)


class Composer:
    """Composes configurations from ``conf/``, a user's own folder and the agents of installed packages.

    Args:
        config_dir: A further folder to search for groups and options (Hydra's ``--config-dir``).
        config_name: The primary configuration.

    Raises:
        ConfigError: The folder does not exist.
    """

    def __init__(self, config_dir: str | None = None, config_name: str = "config") -> None:
        hydra_version.setbase("1.3")
        self._config_name = config_name
        self._bundled = config_dir is None and config_name == "config"
        self._installed = {
            group: {entry.name for entry in installed(group)}
            for group in ("agent", "backend", "controller", "forecaster")
        }
        for group in self._installed:
            for entry in installed(group):
                self._add_option(group, entry.name, {"_target_": entry.value.replace(":", ".")})
        search_path = create_config_search_path(str(folder("conf")))
        if config_dir is not None:
            extra = Path(config_dir).resolve()
            if not extra.is_dir():
                raise ConfigError(f"expected a directory, got '{config_dir}'", where="--config-dir")
            # Hydra requires the schemas to be last.
            search_path.prepend("command-line", f"file://{extra}", SearchPathQuery(provider="schema"))
        GlobalHydra.instance().clear()
        self._hydra = Hydra.create_main_hydra2(task_name="hdsim", config_search_path=search_path)

    def overrides(self, given: Sequence[str]) -> list[str]:
        """Prepares a user's overrides for the other methods.

        ``agent.path`` and ``agent._target_`` select the option ``custom`` of the group ``agent``, and the settings of
        an agent that is not hdsim's own need no ``+``, nor do those of a decision problem and of the other open groups.
        ``backend=kwok`` alone means the nodes of its cluster, ``platform=cluster``.
        """
        given = [quoted_path(text) for text in given]
        # The settings depend on the kinds of action and observation and are checked by the decision problem.
        given = [f"++{text}" if text.startswith("env.") else text for text in given]
        for group in OPEN_GROUPS:
            foreign = {"custom", *self._installed.get(group, ())}
            choices = {name for text in given if text.startswith(f"{group}=") for name in text.split("=")[1].split(",")}
            if not choices and any(text.startswith((f"{group}.path=", f"{group}._target_=")) for text in given):
                choices = {"custom"}
                given = [f"{group}=custom", *given]
            if choices and choices <= foreign:
                given = [f"++{text}" if text.startswith(f"{group}.") else text for text in given]
        if "backend=kwok" in given and not any(text.startswith(("platform", "experiment=")) for text in given):
            given = ["platform=cluster", *given]
        return given

    def compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Returns the checked configuration of one run.

        Its paths are absolute if runs work in their own directories (``hydra.job.chdir``).

        Raises:
            ConfigError: An override or a value is wrong.
        """
        return self.compose_run(overrides)[0]

    def compose_run(self, overrides: Sequence[str]) -> tuple[dict[str, Any], Path]:
        """Returns the configuration of one run, as `compose` does, and its directory."""
        composed = self._compose(overrides, RunMode.RUN)
        with _explained("hydra.run.dir"):
            directory = Path(composed.hydra.run.dir)
        with _explained("hydra.job.chdir"):
            changes = bool(composed.hydra.job.chdir)
        config = plain(composed)
        return with_absolute_paths(config) if changes else config, directory

    def is_sweep(self, overrides: Sequence[str]) -> bool:
        """Whether the configuration requests a sweep (``hydra.mode``), as an experiment may."""
        # Without composing, which takes a tenth of a second: the bundled files beside experiments request none.
        if self._bundled and not any(text.lstrip("+~").startswith(("experiment", "hydra")) for text in overrides):
            return False
        composed = self._compose(overrides, RunMode.MULTIRUN)
        with _explained("hydra"):
            return composed.hydra.mode is RunMode.MULTIRUN

    def sweep(self, overrides: Sequence[str]) -> tuple[Path, list[dict[str, Any]]]:
        """Returns the folder of a sweep and the configurations of its runs, each as `compose` does.

        Raises:
            ConfigError: An override is wrong, or a plugin other than Hydra's basic sweeper is asked for.
        """
        composed = self._compose(overrides, RunMode.MULTIRUN)
        loader = self._hydra.config_loader
        with _explained("hydra.sweep"):
            directory = Path(composed.hydra.sweep.dir)
            sweeper: Any = Plugins.instance().instantiate_sweeper(
                hydra_context=HydraContext(config_loader=loader, callbacks=Callbacks(composed)),
                task_function=lambda _: None,
                config=composed,
            )
            if type(sweeper).__name__ != "BasicSweeper":
                raise ConfigError(f"expected basic, got {type(sweeper).__name__}", where="hydra/sweeper")
            arguments = [f"{key}={value}" for key, value in sweeper.params.items()]
            arguments += composed.hydra.overrides.task
            parsed = OverridesParser.create(config_loader=loader).parse_overrides(arguments)
            runs = [run for batch in sweeper.split_arguments(parsed, None) for run in batch]
        configs = [self.compose(run) for run in runs]
        return directory, list(map(with_absolute_paths, configs)) if composed.hydra.job.chdir else configs

    def run(self, overrides: Sequence[str], function: RunFunction) -> Any:
        """Makes the run directory, calls the function and returns its result."""
        # An exception of the function is part of the returned job; `return_value` raises it.
        job = self._guard(overrides, lambda: self._hydra.run(self._config_name, _of_hydra(function), list(overrides)))
        return job.return_value

    def multirun(self, overrides: Sequence[str], function: RunFunction) -> list[Any]:
        """Calls the function for every run of a sweep and returns the results."""
        batches = self._guard(
            overrides, lambda: self._hydra.multirun(self._config_name, _of_hydra(function), list(overrides))
        )
        return [job.return_value for batch in batches for job in batch]

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
        return sorted(self._hydra.config_loader.get_group_options(group))

    @staticmethod
    def _add_option(group: str, name: str, node: dict[str, Any]) -> None:
        ConfigStore.instance().store(group=group, name=name, node=node, provider="hdsim")

    def _compose(self, overrides: Sequence[str], mode: RunMode) -> DictConfig:
        composed = self._guard(
            overrides,
            lambda: self._composed(overrides, mode),
        )
        assert isinstance(composed, DictConfig)
        return composed

    def _guard(self, overrides: Sequence[str], call: Callable[[], Any]) -> Any:
        while True:
            try:
                return call()
            except _FAULTS as error:
                if not self._learn_agent(error):
                    raise self._explain(error, overrides) from error

    def _learn_agent(self, error: Exception) -> bool:
        """Makes the short name of an agent an option when Hydra does not find it.

        Raises:
            ConfigError: There is no such agent.
        """
        missing = (error.missing_cfg_file or "") if isinstance(error, MissingConfigException) else ""
        group, _, name = missing.rpartition("/")
        if group != "agent":
            return False
        try:
            settings = parse_name(name)
        except ConfigError as unknown:
            options = self._options("agent")
            meant = "" if "did you mean" in unknown.message else nearest(name, options)
            message = f"{unknown.message}; further options: {', '.join(options)}{meant}"
            raise ConfigError(message, where="agent") from error
        self._add_option("agent", name, {"defaults": ["classic", "_self_"], **settings})
        return True

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
            # An option given as a path has slashes of its own; only groups of Hydra are nested.
            group, _, option = missing.rpartition("/") if missing.startswith("hydra/") else missing.partition("/")
            if not option:
                group, option = "", missing
            options = self._options(group)
            known = f"expected one of {', '.join(options)}, got '{option}'{nearest(option, options)}"
            if group in GROUPS_WITH_FILES and re.search(r"[/.]", option):
                known += f"; a file is given as {group}.path=FILE"
            return ConfigError(known, where=group or "--config-name")
        if isinstance(cause, ConfigAttributeError | ConfigKeyError) and cause.full_key:
            key = str(cause.full_key)
            # Another override may be wrong as well.
            with contextlib.suppress(*_FAULTS):
                unknown, options = unknown_key(key, self._keys_beside(key, overrides)), self._options_with(key)
                also = f"; a key of {', '.join(options)}" if options else ""
                return ConfigError(f"{unknown.message}{also}", where=key)
        message = _first_line(error) + (f": {_first_line(cause)}" if cause else "")
        if not isinstance(error, HydraException | OmegaConfBaseException | YAMLError | ValueError):
            shown = " ".join(overrides)
            message = (
                f"expected overrides that Hydra can compose, got {shown[:200]} ({type(error).__name__}: {message})"
            )
        if message.startswith("Ambiguous value"):
            message += " (several values need -m, a list needs [])"
        return ConfigError(message)

    def _options_with(self, key: str) -> list[str]:
        """Returns the options, such as ``network=fluid``, that have a key."""
        group, _, name = key.partition(".")
        options = [f"{group}={option}" for option in self._options(group)] if group in OPEN_GROUPS[1:] else []
        return [option for option in options if name in self._composed([option]).get(group, ())]

    def _composed(self, overrides: Sequence[str], mode: RunMode = RunMode.MULTIRUN) -> DictConfig:
        return self._hydra.compose_config(
            config_name=self._config_name, overrides=list(overrides), run_mode=mode, with_log_configuration=False
        )

    def _keys_beside(self, key: str, overrides: Sequence[str]) -> list[str]:
        """Returns the valid keys of the group that an unknown key is in."""
        loader = self._hydra.config_loader
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(overrides))
        groups = [text.input_line for text in parsed if text.input_line and self._options(text.key_or_group)]
        composed = self._composed(groups)
        parent = key.rpartition(".")[0]
        node = OmegaConf.select(composed, parent) if parent else composed
        return [str(name) for name in node] if isinstance(node, DictConfig) else []


def _of_hydra(function: RunFunction) -> Callable[[DictConfig], object]:
    """The function Hydra calls for a run."""

    def task(_: DictConfig) -> object:
        hydra: Any = HydraConfig.get()
        number = 0 if OmegaConf.is_missing(hydra.job, "num") else hydra.job.num
        return function(Path(hydra.runtime.output_dir), number)

    return task


@contextlib.contextmanager
def _explained(where: str) -> Iterator[None]:
    try:
        yield
    except _FAULTS as error:
        raise ConfigError(_first_line(error), where=where) from error


def plain(composed: DictConfig) -> dict[str, Any]:
    """Returns a composed configuration without Hydra's part, resolved and checked.

    Raises:
        ConfigError: A value is missing, cannot be resolved, or is wrong.
    """
    try:
        config = OmegaConf.to_container(
            OmegaConf.masked_copy(composed, [str(key) for key in composed if key not in ("hydra", "experiment")]),
            resolve=True,
            throw_on_missing=True,
        )
    except MissingMandatoryValue as error:
        raise ConfigError("expected a value, which has no default, got none", where=str(error.full_key)) from error
    except OmegaConfBaseException as error:
        raise ConfigError(_first_line(error), where=str(error.full_key or "") or None) from error
    assert isinstance(config, dict)
    return check({str(key): value for key, value in config.items()})


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
