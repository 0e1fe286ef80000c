"""``hdsim slurm``: a Slurm cluster of emulated nodes."""

from __future__ import annotations

import click

from hdsim.cli import LazyGroup

SUBCOMMANDS = {
    "up": "Start a cluster.",
    "down": "Stop a cluster and delete its files.",
    "status": "Show the daemons and nodes of a cluster.",
}


@click.group(
    cls=LazyGroup, package="hdsim.cli.slurm", subcommands=SUBCOMMANDS, modules=dict.fromkeys(SUBCOMMANDS, "clusters")
)
def slurm() -> None:
    """Run a Slurm cluster of emulated nodes on this machine.

    slurmctld, slurmd and slurmrestd are Debian's; every node is a slurmd of its own, and all listen on 127.0.0.1 only.
    """
