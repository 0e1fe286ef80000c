"""``hdsim kwok``: a Kubernetes cluster of fake nodes."""

from __future__ import annotations

import click

from hdsim.cli import LazyGroup

SUBCOMMANDS = {
    "build": "Build etcd, the control plane, kwok and kwokctl with Go.",
    "up": "Start a cluster.",
    "down": "Stop a cluster and delete its files.",
    "status": "Show the components of a cluster.",
    "nodes": "Create fake nodes.",
    "load": "Create random deployments, or the jobs of a trace as pods.",
    "top": "Show nodes and pods as they change.",
    "clean": "Delete pods, deployments and, on demand, nodes.",
    "record": "Record the bindings of a scheduler for training.",
}


MODULES = dict.fromkeys(("build", "up", "down", "status"), "clusters")


@click.group(cls=LazyGroup, package="hdsim.cli.kwok", subcommands=SUBCOMMANDS, modules=MODULES)
def kwok() -> None:
    """Run a Kubernetes cluster of fake nodes, load it, watch it and record its scheduler.

    The control plane is real (etcd, kube-apiserver); kwok takes the place of the nodes. All verbs but `build`, `up`
    and `down` work on any cluster (--kubeconfig).
    """
