"""``hdsim show``: names on the command line and in Python, with descriptions."""

from __future__ import annotations

import sys

import click
from click.shell_completion import CompletionItem

KINDS = ("agents", "policies", "metrics", "keys", "experiments", "studies", "platforms", "workloads")


class Name(click.ParamType):
    """A name of the kind before it."""

    name = "NAME"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Completes the names of the kind."""
        from hdsim.config.catalog import listed

        names = listed(ctx.params["kind"]) if ctx.params.get("kind") in KINDS else ()
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command()
@click.argument("kind", type=click.Choice(KINDS), metavar="|".join(KINDS))
@click.argument("name", required=False, type=Name())
def show(kind: str, name: str | None) -> None:
    """Lists the names of a kind, one line each, or describes one of them.

    \b
    hdsim show agents
    hdsim show agents ppo
    hdsim show policies wfp3
    hdsim show metrics mean_bounded_slowdown
    hdsim show keys workload.jobs
    """  # noqa: D301 - click reads the backspace character
    from hdsim.config.catalog import find, listed

    if name is not None:
        click.echo(find(kind, name).details)
        return
    formatter = click.HelpFormatter(width=None if sys.stdout.isatty() else 120)
    formatter.write_dl([(entry, found.summary) for entry, found in listed(kind).items()], col_max=40)
    click.echo(formatter.getvalue(), nl=False)
    if kind == "agents":
        click.echo("  and any order, BACKFILL-ORDER, ORDER-CORES and BACKFILL-ORDER-CORES: hdsim show policies")
