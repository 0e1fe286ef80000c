"""``hdsim kwok status``: the control planes and their components."""

from __future__ import annotations

from pathlib import Path

import click

from hdsim.cli.kwok.options import workdir


@click.command()
@click.option("--name", help="Cluster.  [default: all]")
@workdir
def status(name: str | None, workdir: Path) -> None:
    """Show the components of the clusters that hdsim started: process ids, ports, logs.

    The exit status is 1 if one of them does not run.
    """
    from hdsim.errors import BackendError
    from hdsim.kubernetes.control_plane import ControlPlane, control_planes
    from hdsim.util.text import format_table

    planes = control_planes(workdir) if name is None else [ControlPlane(name, workdir)]
    if not planes:
        click.echo(f"no cluster in {workdir}")
    ended = []
    for plane in planes:
        plane.check_exists()
        components = plane.components()
        ended += [f"{component.name} of {plane.name}" for component in components if component.pid is None]
        click.echo(f"{plane.name}: {plane.server}, logs in {plane.logs}")
        rows = [(c.name, str(c.pid or "ended"), ", ".join(map(str, c.ports))) for c in components]
        click.echo(format_table([("component", "process", "ports"), *rows]) + "\n")
    if ended:
        raise BackendError(f"{', '.join(ended)} does not run; hdsim kwok up --name NAME starts it again")
