"""``hdsim show``: names on the command line and in Python, with descriptions."""

from __future__ import annotations

from contextlib import suppress
from shutil import get_terminal_size

import click

KINDS = (
    *("agents", "policies", "metrics", "keys", "actions", "observations", "objectives", "generators"),
    *("experiments", "studies", "platforms", "workloads", "kinds"),
)


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completes the names of the kind before it."""
    from hdsim.config.catalog import listed

    names = listed(ctx.params["kind"]) if ctx.params.get("kind") in KINDS else ()
    return [name for name in names if name.startswith(incomplete)]


def _kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completes the kinds."""
    return [kind for kind in KINDS if kind.startswith(incomplete)]


def _of_any_kind(name: str) -> dict[str, str]:
    """Returns the descriptions of a name by kind."""
    from hdsim.config.catalog import find, listed
    from hdsim.errors import ConfigError, nearest

    found = {}
    for kind in KINDS:
        with suppress(ConfigError):
            found[kind] = find(kind, name).details
    if not found:
        close = nearest(name, [*KINDS, *(one for kind in KINDS for one in listed(kind))])
        raise ConfigError(
            f"expected {', '.join(KINDS)}, or a name of one of them, got '{name}'{close}", where="hdsim show"
        )
    return found


@click.command()
@click.argument("kind", shell_complete=_kinds, metavar=f"[{'|'.join(KINDS)}]")
@click.argument("name", required=False, shell_complete=_names)
def show(kind: str, name: str | None) -> None:
    """Lists the names of a kind, one line each, or describes one of them; a name alone is that of any kind.

    \b
    hdsim show agents
    hdsim show agents ppo
    hdsim show policies wfp3
    hdsim show metrics mean_bounded_slowdown
    hdsim show keys workload.jobs
    hdsim show wfp3
    """  # noqa: D301 - click reads the backspace character
    from hdsim.config.catalog import find, listed
    from hdsim.errors import ConfigError, not_one_of

    if kind not in KINDS:
        if name is not None:
            raise ConfigError(not_one_of(kind, KINDS), where="hdsim show")
        details = _of_any_kind(kind)
        heads = {found: f"{found} {kind}\n" if len(details) > 1 else "" for found in details}
        click.echo("\n\n".join(heads[found] + text for found, text in details.items()))
        return
    if name is not None:
        click.echo(find(kind, name).details)
        return
    formatter = click.HelpFormatter(width=min(get_terminal_size((120, 24)).columns, 120))
    formatter.write_dl([(entry, found.summary) for entry, found in listed(kind).items()], col_max=40)
    if kind == "agents":
        with formatter.indentation():
            formatter.write_text(
                "and any order, BACKFILL-ORDER, ORDER-CORES and BACKFILL-ORDER-CORES: hdsim show policies"
            )
    click.echo(formatter.getvalue(), nl=False)
