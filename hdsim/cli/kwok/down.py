"""``hdsim kwok down``: ends a control plane."""

from __future__ import annotations

from pathlib import Path

import click

from hdsim.cli.kwok.options import name, workdir


@click.command()
@name
@click.option("--all", "everything", is_flag=True, help="All clusters that hdsim started.")
@workdir
def down(name: str, everything: bool, workdir: Path) -> None:
    """Stop a cluster and delete its files, logs and entries in kubeconfig files."""
    from hdsim.kubernetes.control_plane import ControlPlane, control_planes

    for plane in control_planes(workdir) if everything else [ControlPlane(name, workdir)]:
        plane.down()
        click.echo(f"{plane.name} is deleted")
