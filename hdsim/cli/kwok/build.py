"""``hdsim kwok build``: the programs of a control plane, from Go modules."""

from __future__ import annotations

import click


@click.command()
def build() -> None:
    """Build etcd, the Kubernetes control plane, kwok and kwokctl with Go.

    They go to the folder HDSIM_KUBE_BIN, by default to one in ~/.cache/hdsim, and take about six minutes and 6 GB
    of disk space, most of it in Go's caches. Programs that are there are left alone.
    """
    from hdsim.kubernetes.binaries import build

    click.echo(build(click.echo))
