"""The ``hdsim`` command: finds the subcommand, and reports every error of the user in one message.

Exit status: 0 done, 2 the user's mistake, 1 anything else.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import keyword
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from hdsim.errors import BackendError, HdsimError, PluginError, install_hint, is_mistake, nearest, unloadable
from hdsim.util.version import __version__

# One line each: `hdsim --help` must not import what the subcommands need.
SUBCOMMANDS = {
    "run": "Replay a workload on a platform with an agent; -m runs a sweep.",
    "train": "Train a learning agent, then evaluate it.",
    "tune": "Search for the best settings of an agent.",
    "rerun": "Repeat a run from its manifest and compare the results byte by byte.",
    "compare": "Compare runs or sweeps in one table and one figure.",
    "whatif": "Replay a Slurm site's jobs under other rules: waits before and after.",
    "plan": "Tell when Slurm would start each of a handful of jobs, and why not earlier.",
    "when": "Tell when a job of a Slurm site will start, with an interval, and why not earlier.",
    "study": "Make a whole table or figure by one command, and check its numbers.",
    "bench": "Evaluate an agent on a benchmark with a frozen name, or verify a submission.",
    "bound": "Bound what any scheduler can attain on a trace.",
    "report": "Write report.html, or static figures, of a run.",
    "show": "List agents, policies, metrics, keys, experiments, ..., or describe one.",
    "platform": "Show, validate or convert a platform file.",
    "workload": "Show, validate, convert or generate a workload.",
    "batsim-serve": "Simulate in Batsim's place for an unmodified Batsim scheduler.",
    "bsp": "Plan the CPU shares of a BSP gang, and run it.",
    "site": "Import what a Slurm site has: nodes, rules and jobs.",
    "kwok": "Run a Kubernetes cluster of fake nodes, load it, watch it and record its scheduler.",
    "slurm": "Run a Slurm cluster of emulated nodes on this machine.",
    "completion": "Print the script that completes hdsim's commands, keys and names in a shell.",
}

#: Thresholds of the garbage collector; those of Python are 700 or 2000, 10 and 10.
_THRESHOLDS = (250_000, 10, 10)


class LazyGroup(click.Group):
    """A group that imports the module of a subcommand when that subcommand is called.

    Args:
        package: Package of the modules: a command a-b is a_b in its module a_b, and one named as a keyword of Python
            has a _ behind it.
        subcommands: Description of each subcommand by name, in the order of the help.
        modules: Module of each subcommand that is in another one.
        settings: Arguments of :class:`click.Group`.
    """

    def __init__(
        self, *, package: str, subcommands: Mapping[str, str], modules: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self._package, self._subcommands, self._modules = package, subcommands, modules or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the subcommands in the order of a user's work rather than the alphabet's."""
        return list(self._subcommands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports a subcommand."""
        if cmd_name not in self._subcommands:
            return None
        name = cmd_name.replace("-", "_") + "_" * keyword.iskeyword(cmd_name)
        module = self._modules.get(cmd_name, name)
        command = getattr(importlib.import_module(f"{self._package}.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds a subcommand, or names the nearest one."""
        known = self._subcommands
        if args[0] not in known and not args[0].startswith("-"):
            ctx.fail(f"unknown command '{args[0]}'{nearest(args[0], known)}; allowed: {', '.join(known)}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes subcommands without importing them."""
        names = (name for name in self._subcommands if name.startswith(incomplete))
        return [CompletionItem(name, help=self._subcommands[name]) for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._subcommands.items()))


@click.group(
    cls=LazyGroup,
    package="hdsim.cli",
    subcommands=SUBCOMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="hdsim")
def cli() -> None:
    """Simulates heterogeneous clusters: replays job traces exactly and fast, with any scheduler."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs the ``hdsim`` command, by default with the command line of the process, and exits."""
    # Modules live as long as the process: the collector would look through them again and again, and at exit.
    gc.set_threshold(*_THRESHOLDS)
    atexit.register(gc.freeze)
    if "_HDSIM_COMPLETE" in os.environ:
        importlib.import_module("hdsim.cli.completion")
    try:
        status = cli.main(args, prog_name="hdsim", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        hint, told = "", error.format_message()
        if isinstance(error, click.NoSuchOption) and (key := _setting(error.option_name)):
            told = f"{error.option_name}: settings have no dashes, {key}=VALUE"
        if isinstance(error, click.UsageError) and error.ctx:
            hint = f" (see '{error.ctx.command_path} --help')"
        _end(f"{' '.join(told.split())}{hint}", 2)
    except HdsimError as error:
        if os.environ.get("HDSIM_DEBUG"):
            raise
        failed = isinstance(error, PluginError) or (isinstance(error, BackendError) and not error.is_mistake)
        _end(error, 1 if failed else 2)
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed the pipe; later writes, also at exit, are discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if _has_traceback(error):
            _end_with_traceback(error)
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        place = f"{error.filename}: cannot be used: " if error.filename else ""
        _end(f"{place}{error.strerror or error}", 2 if is_mistake(error) else 1)
    except MemoryError as error:
        if _has_traceback(error):
            _end_with_traceback(error)
        _end(f"expected inputs that fit into the memory: {error or 'nothing is left'}", 1)
    except ImportError as error:
        library, hint = unloadable(error), install_hint(error.name)
        if _has_traceback(error) or not (library or hint):
            _end_with_traceback(error)
        if library is None:
            _end(f"cannot import '{error.name}': {error}{hint}", 2)
        _end(f"{library.path}: cannot be loaded: {' '.join(str(library).split())}", 1)
    except click.Abort:
        click.echo("hdsim: interrupted", err=True)
        sys.exit(1)
    except Exception as error:
        _end_with_traceback(error)
    sys.exit(status if isinstance(status, int) else 0)


def _setting(option: str) -> str:
    """Returns the setting that an unknown option stands for, empty if there is none of this name."""
    from hdsim.config.keys import GROUPS_WITH_FILES

    key = option.lstrip("-").partition("=")[0].replace("-", "_")
    return key if key.partition(".")[0] in (*GROUPS_WITH_FILES, "seed", "env", "train", "experiment", "hydra") else ""


def _end(error: object, status: int) -> NoReturn:
    click.echo(f"hdsim: error: {error}", err=True)
    sys.exit(status)


def _has_traceback(error: Exception) -> bool:
    """Whether the traceback is shown: if the user asks for it, and where an agent of the user is at fault."""
    return bool(os.environ.get("HDSIM_DEBUG")) or hasattr(error, "__notes__")


def _end_with_traceback(error: Exception) -> NoReturn:
    """Ends after an exception; of one with a note, from a user's own agent, the traceback begins in the agent."""
    if os.environ.get("HDSIM_DEBUG") or not hasattr(error, "__notes__"):
        raise error
    from hdsim.results.run_directory.inputs import is_own_code

    told = traceback.TracebackException.from_exception(error)
    begin = next((place for place, frame in enumerate(told.stack) if frame.filename == __file__), 0)
    own = (place for place, frame in enumerate(told.stack) if place > begin and is_own_code(frame.filename))
    del told.stack[: next(own, 0)]
    click.echo("".join(told.format()) + "HDSIM_DEBUG=1 shows the calls before", err=True)
    sys.exit(1)
