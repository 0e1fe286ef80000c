"""``hdsim slurm up``, ``down`` and ``status``."""

from __future__ import annotations

from pathlib import Path

import click

from hdsim.cli.parameters import FOLDER

_folder = click.option("-o", "--output", type=FOLDER, required=True, help="Folder of the cluster.")


@click.command()
@click.option("--nodes", type=click.IntRange(1, 1024), default=16, show_default=True, help="Nodes: n1, n2, ...")
@click.option("--cpus", type=click.IntRange(1, 1024), default=8, show_default=True, help="CPUs of each node.")
@click.option("--gpus", type=click.IntRange(0, 64), default=0, show_default=True, help="GPUs of each node.")
@click.option(
    "--memory", type=click.IntRange(1), metavar="MIB", help="Memory of each node, which jobs take (CR_Core_Memory)."
)
@click.option(
    "--clock",
    type=click.FloatRange(0.1, 1000),
    default=1.0,
    show_default=True,
    help="Seconds of the cluster in a second: libfaketime is loaded into the daemons.",
)
@click.option("--accounting", is_flag=True, help="With slurmdbd and a MariaDB, for accounts, QOS and sacct.")
@click.option("--timeout", type=click.FloatRange(1, 3600), default=120.0, show_default=True, help="Seconds to wait.")
@_folder
def up(
    nodes: int,
    cpus: int,
    gpus: int,
    memory: int | None,
    clock: float,
    accounting: bool,
    timeout: float,
    output: Path,
) -> None:
    """Start a Slurm cluster, and return when all its nodes are idle.

    The folder gets slurm.conf, the Unix socket rest.sock of slurmrestd, platform.json for simulations of the same
    nodes, and env: after `. FOLDER/env` the commands of Slurm talk to this cluster. Its daemons run until
    `hdsim slurm down`.
    """
    from hdsim.slurm.emulated import EmulatedCluster, Shape

    cluster = EmulatedCluster(output)
    cluster.up(Shape(nodes, cpus, clock, accounting, gpus, memory), timeout)
    click.echo(f"{nodes} nodes are idle: conf {cluster.conf}, socket {cluster.socket}")


@click.command()
@_folder
def down(output: Path) -> None:
    """Stop a cluster with its jobs, and delete its files."""
    from hdsim.slurm.emulated import EmulatedCluster

    EmulatedCluster(output).down()
    click.echo(f"{output} is deleted")


@click.command()
@_folder
def status(output: Path) -> None:
    """Show the daemons and the nodes of a cluster.

    The exit status is 1 if a daemon does not run.
    """
    from collections import Counter

    from hdsim.errors import BackendError
    from hdsim.slurm.emulated import EmulatedCluster
    from hdsim.util.text import format_number, format_table

    cluster = EmulatedCluster(output)
    shape, logs = cluster.shape(), cluster.folder / "log"
    daemons = cluster.daemons()
    running = sum(pid is not None for name, pid in daemons if name in shape.names)
    rows = [(name, f"process {pid}" if pid else "ended") for name, pid in daemons if name not in shape.names]
    click.echo(f"clock {format_number(shape.clock)}, {shape.cpus} CPUs a node, logs in {logs}")
    click.echo(format_table([("daemon", "state"), *rows, ("slurmd", f"{running} of {shape.nodes} run")]) + "\n")
    if ended := [name for name, pid in daemons if pid is None]:
        raise BackendError(f"{', '.join(ended)} does not run; its log is in {logs}")
    states = Counter(state for _, state in cluster.nodes())
    click.echo(format_table([("state", "nodes"), *((state, str(number)) for state, number in states.items())]))
