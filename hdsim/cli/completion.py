"""``hdsim completion``: completion of commands, KEY=VALUE, bundled names and files in bash, zsh and fish.

A shell calls ``hdsim`` with ``_HDSIM_COMPLETE`` set at every TAB: nothing here imports Hydra or NumPy's users before a
word needs them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import BashComplete, CompletionItem, ZshComplete, add_completion_class, get_completion_class

from hdsim.util.resources import bundled

#: Variable of click's protocol.
VARIABLE = "_HDSIM_COMPLETE"
_KINDS = ("platforms", "workloads")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Prints the script that completes hdsim's commands, keys and names in a shell.

    \b
    eval "$(hdsim completion bash)"      # in ~/.bashrc
    eval "$(hdsim completion zsh)"       # in ~/.zshrc, after compinit
    hdsim completion fish | source       # in ~/.config/fish/config.fish
    """  # noqa: D301 - click reads the backspace character
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(click.Group(), {}, "hdsim", VARIABLE).source())


def overrides(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes an override: keys up to ``=``, then options, names and files."""
    key, equals, value = incomplete.lstrip("+~").partition("=")
    mark = incomplete[: len(incomplete) - len(incomplete.lstrip("+~"))]
    given = dict(text.partition("=")[::2] for text in ctx.params.get("overrides") or ())
    if not equals:
        return _items(f"{mark}{name}=" for name in _keys(given) if name.startswith(key))
    *before, last = value.split(",")
    front = mark + key + "=" + "".join(f"{text}," for text in before)
    return _items(f"{front}{name}" for name in _values(key, last) if name.startswith(last))


def files(kind: str | None, incomplete: str) -> list[CompletionItem]:
    """Completes a bundled name of a kind, or the path of a file."""
    names = bundled(kind) if kind in _KINDS else ()  # type: ignore[arg-type]
    return _items([*(name for name in names if name.startswith(incomplete)), *_paths(incomplete)])


def _items(texts: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(text) for text in texts]


def _keys(given: dict[str, str]) -> Iterable[str]:
    """Groups, and the keys of their options on the command line or by default."""
    import yaml

    from hdsim.config.catalog import groups, options, settings
    from hdsim.util.resources import folder

    yield "seed"
    primary = yaml.safe_load((folder("conf") / "train.yaml").read_text(encoding="utf-8"))["defaults"]
    defaults = {group: option for entry in primary if isinstance(entry, dict) for group, option in entry.items()}
    for group in groups():
        yield group
        option = given.get(group) or defaults.get(group)
        if group == "agent" and option not in options(group):
            option = "classic"
        path = options(group).get(str(option))
        if path is not None and group != "experiment":
            yield from (f"{group}.{key}" for key in settings(path))
    yield from ("agent.path", "agent._target_", "hydra.run.dir", "hydra.sweep.dir")


def _values(key: str, value: str) -> Iterable[str]:
    from hdsim.config.catalog import groups, options
    from hdsim.config.paths import takes_path

    if key in groups():
        yield from options(key)
    if key in ("platform.path", "workload.path"):
        yield from bundled(f"{key.partition('.')[0]}s")  # type: ignore[arg-type]
    if key in ("agent", "agent.job_policy", "agent.backfill_order"):
        from hdsim.scheduling.agent import SHORT_NAMES
        from hdsim.scheduling.orders import ORDERS

        yield from ORDERS
        if key == "agent":
            yield from SHORT_NAMES
            yield from (f"{backfill}-{order}" for backfill in ("easy", "conservative") for order in ORDERS)
    if key == "agent.core_policy":
        from hdsim.cluster.policies import CORE_POLICIES

        yield from CORE_POLICIES
    if key == "agent.backfill":
        from hdsim.scheduling.agent import BACKFILLS

        yield from BACKFILLS
    if takes_path(key):
        yield from _paths(value)


def _paths(begin: str) -> list[str]:
    """Files and folders, these with a slash, whose paths begin with a text."""
    front, name = os.path.split(begin)
    try:
        found = sorted(Path(front or ".").expanduser().iterdir())
    except OSError:
        return []
    shown = (path for path in found if path.name.startswith(name) and (name or not path.name.startswith(".")))
    return [os.path.join(front, path.name) + ("/" if path.is_dir() else "") for path in shown]  # noqa: PTH118


class _Bash(BashComplete):
    """Completion in bash, which splits words at ``=``: the script passes the line, and gets what follows that sign."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' item cut="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    for item in $(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete $1); do
        [[ $item == *[=/] ]] && compopt -o nospace
        COMPREPLY+=("$item")
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        words = click.shell_completion.split_arg_string(os.environ["COMP_LINE"])[1:]
        self._incomplete = "" if os.environ["COMP_LINE"][-1:].isspace() or not words else words.pop()
        return words, self._incomplete

    def format_completion(self, item: CompletionItem) -> str:
        # Of the word, bash replaces what follows the last of the signs that break words.
        broken = max(self._incomplete.rfind(sign) for sign in "=:") + 1
        return str(item.value)[broken:]


class _Zsh(ZshComplete):
    """Completion in zsh, without a blank after keys and folders."""

    source_template = """\
#compdef %(prog_name)s
%(complete_func)s() {
    local -a found more
    found=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) %(complete_var)s=zsh_complete %(prog_name)s)}")
    found=(${found:#})
    more=(${(M)found:#*[=/]})
    found=(${found:#*[=/]})
    (( $#more )) && compadd -Q -S '' -- $more
    (( $#found )) && compadd -Q -- $found
}
compdef %(complete_func)s %(prog_name)s
"""

    def format_completion(self, item: CompletionItem) -> str:
        return str(item.value)


def register() -> None:
    """Makes these the classes of click's protocol."""
    add_completion_class(_Bash, "bash")
    add_completion_class(_Zsh, "zsh")


register()
