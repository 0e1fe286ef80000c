"""``hdsim kwok clean``: deletes what hdsim has created on a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from hdsim.cli.kwok.options import kubeconfig, namespace, real


@click.command()
@kubeconfig
@namespace
@real
@click.option("--nodes", is_flag=True, help="Delete the nodes that hdsim has created as well.")
@click.option(
    "--all", "everything", is_flag=True, help="Delete the pods and deployments of others in the namespace too."
)
@click.option("--timeout", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds to wait.")
def clean(kubeconfig: Path | None, namespace: str, real: bool, nodes: bool, everything: bool, timeout: float) -> None:
    """Delete the pods and deployments that hdsim has created in a namespace, and wait until they are gone."""
    from hdsim.kubernetes.connection import Connection
    from hdsim.kubernetes.load import empty
    from hdsim.kubernetes.nodes import delete_nodes, require_fake

    with Connection(kubeconfig, where="--kubeconfig") as connection:
        connection.require_namespace(namespace, "--namespace")
        if not real:
            require_fake(connection, "clean")
        click.echo(f"{empty(connection, namespace, everything=everything, timeout=timeout):,} pods are deleted")
        if nodes:
            click.echo(f"{delete_nodes(connection):,} nodes are deleted")
