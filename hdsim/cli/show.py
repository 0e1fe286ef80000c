"""``hdsim show``: what there is to name on the command line and in Python."""

from __future__ import annotations

import click

KINDS = ("agents", "policies", "metrics", "keys", "experiments", "platforms", "workloads")


@click.command()
@click.argument("kind", type=click.Choice(KINDS), metavar="|".join(KINDS))
@click.argument("name", required=False)
def show(kind: str, name: str | None) -> None:
    """Lists what there is, one line each, or describes one of them.

    \b
    hdsim show agents
    hdsim show agents ppo
    hdsim show policies wfp3
    hdsim show metrics mean_bounded_slowdown
    hdsim show keys workload.jobs
    """  # noqa: D301 - click reads the backspace character
    from hdsim.config import catalog

    if name is not None:
        click.echo(catalog.find(kind, name).details)
        return
    formatter = click.HelpFormatter(width=None if click.get_text_stream("stdout").isatty() else 120)
    formatter.write_dl([(entry, what.summary) for entry, what in catalog.KINDS[kind]().items()], col_max=40)
    click.echo(formatter.getvalue(), nl=False)
    if kind == "agents":
        click.echo("  and any order, BACKFILL-ORDER, ORDER-CORES and BACKFILL-ORDER-CORES: hdsim show policies")
