"""``hdsim kwok build``, ``up``, ``down`` and ``status``: control planes on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from hdsim.cli.kwok.options import name, workdir
from hdsim.cli.parameters import FILE


@click.command()
def build() -> None:
    """Build etcd, the Kubernetes control plane, kwok and kwokctl with Go.

    They go to the folder HDSIM_KUBE_BIN, by default to one in ~/.cache/hdsim, and take about six minutes and 6 GB
    of disk space, most of it in Go's caches. Programs that are there are left alone.
    """
    from hdsim.kubernetes.binaries import build

    click.echo(build(click.echo))


@click.command()
@name
@click.option(
    "--kubeconfig",
    type=FILE,
    help="File to add the cluster to, as its current context.  [default: $KUBECONFIG or ~/.kube/config]",
)
@click.option("--default-scheduler", is_flag=True, help="Start kube-scheduler as well, without limits of its rate.")
@click.option("--download", is_flag=True, help="Let kwokctl download the programs.")
@click.option("--timeout", type=click.FloatRange(1, 3600), default=120.0, show_default=True, help="Seconds to wait.")
@workdir
def up(
    name: str, kubeconfig: Path | None, default_scheduler: bool, download: bool, timeout: float, workdir: Path
) -> None:
    """Start a Kubernetes cluster without nodes, and return when it is ready.

    etcd, kube-apiserver, kube-controller-manager and kwok run in the background until `hdsim kwok down`, and listen on
    127.0.0.1 only. A cluster that runs is left alone.
    """
    from hdsim.kubernetes.control_plane import ControlPlane
    from hdsim.kubernetes.kubeconfig import default_kubeconfig

    plane = ControlPlane(name, workdir)
    file = kubeconfig or default_kubeconfig()
    started = plane.up(file, default_scheduler=default_scheduler, download=download, timeout=timeout)
    click.echo(f"{name} {'is ready' if started else 'was running'}: {plane.server}, kubeconfig {file}")


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
