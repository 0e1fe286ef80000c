"""``hdsim kwok up``: starts a control plane."""

from __future__ import annotations

from pathlib import Path

import click

from hdsim.cli.kwok.options import name, workdir
from hdsim.cli.parameters import FILE


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
