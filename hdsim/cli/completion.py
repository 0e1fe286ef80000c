"""``hdsim completion``: completion of commands, KEY=VALUE, names and files in a shell, by click's protocol."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Prints the script that completes commands, keys, names and files in a shell.

    \b
    eval "$(hdsim completion bash)"      # in ~/.bashrc
    eval "$(hdsim completion zsh)"       # in ~/.zshrc, after compinit
    hdsim completion fish | source       # in ~/.config/fish/config.fish
    """  # noqa: D301 - click reads the backspace character
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(click.Group(), {}, "hdsim", "_HDSIM_COMPLETE").source())


def overrides(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completes keys, options, names and files of a setting KEY=VALUE."""
    from hdsim.config import completion

    given = ctx.params.get("overrides") or ()
    return list(completion.overrides(incomplete, given, ctx.command_path.partition(" ")[2]))


def input_file(kind: str) -> Callable[[Any], Any]:
    """Returns an argument FILE: a file, or the name of a bundled one of a kind, ``platforms`` or ``workloads``."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from hdsim.config.completion import inputs

        return list(inputs(kind, incomplete))

    return click.argument("file", shell_complete=complete)


def metrics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completes names of metrics, and of their statistics."""
    from hdsim.results.metrics import METRICS, STATISTICS

    known = [*METRICS, *(f"{kind}_{name}" for name in METRICS for kind in STATISTICS)]
    return [name for name in known if name.startswith(incomplete)]


class _Words(ShellComplete):
    """Completions that are whole words: files are found here rather than by the shell."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        from hdsim.config.completion import paths

        found: list[CompletionItem] = []
        for item in super().get_completions(args, incomplete):
            found += map(CompletionItem, paths(item.value)) if item.type in ("file", "dir") else [item]
        return found

    def format_completion(self, item: CompletionItem) -> str:
        return str(item.value)


class _Bash(_Words, BashComplete):
    """Completion in bash, which breaks words at ``=``: the script passes the line, and gets what follows the sign."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' item
    COMPREPLY=()
    for item in $(COMP_LINE="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1"); do
        [[ $item == *[=/] ]] && compopt -o nospace
        COMPREPLY+=("$(printf %%q "$item")")
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        self._word = "" if line[-1:].isspace() or not words else words.pop()
        return words, self._word

    def format_completion(self, item: CompletionItem) -> str:
        broken = max(self._word.rfind("="), self._word.rfind(":")) + 1
        return str(item.value)[broken:]


class _Zsh(_Words, ZshComplete):
    """Completion in zsh, without a blank after keys and folders."""

    source_template = """\
#compdef %(prog_name)s
%(complete_func)s() {
    local -a found open
    found=("${(@f)$(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) %(complete_var)s=zsh_complete %(prog_name)s)}")
    open=(${(M)found:#*[=/]})
    found=(${found:#*[=/]})
    (( $#open )) && compadd -S '' -a open
    (( $#found )) && compadd -a found
}
compdef %(complete_func)s %(prog_name)s
"""


class _Fish(_Words, FishComplete):
    """Completion in fish; that of click cuts words at commas."""

    source_template = """\
function %(complete_func)s
    env COMP_WORDS=(commandline -cp) COMP_CWORD=(commandline -t) %(complete_var)s=fish_complete %(prog_name)s
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


add_completion_class(_Bash, "bash")
add_completion_class(_Zsh, "zsh")
add_completion_class(_Fish, "fish")
