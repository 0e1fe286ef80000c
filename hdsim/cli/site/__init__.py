"""``hdsim site``: a site that runs Slurm."""

from __future__ import annotations

import click

from hdsim.cli import LazyGroup

SUBCOMMANDS = {
    "import": "Read slurm.conf, sacct and the like, and write a platform, jobs and rules.",
    "priority": "Print the priorities of pending jobs as sprio does, or the shares of accounts as sshare does.",
}


@click.group(cls=LazyGroup, package="hdsim.cli.site", subcommands=SUBCOMMANDS)
def site() -> None:
    """Import a site that runs Slurm, and look at its priorities.

    A site is a folder with platform.json, jobs.parquet and site.yaml, which has its partitions, accounts, limits and
    priorities.
    """
