"""Options that the subcommands of ``hdsim kwok`` share."""

from __future__ import annotations

from pathlib import Path

import click

kubeconfig = click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Cluster to use: a kubeconfig file.  [default: $KUBECONFIG, ~/.kube/config or, in a pod, the pod's cluster]",
)
namespace = click.option("--namespace", default="default", show_default=True, help="Namespace of the pods.")
