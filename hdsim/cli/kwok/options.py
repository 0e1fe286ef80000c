"""Options that the subcommands of ``hdsim kwok`` share."""

from __future__ import annotations

import os
from pathlib import Path

import click

from hdsim.cli.parameters import FILE, FOLDER

kubeconfig = click.option(
    "--kubeconfig",
    type=FILE,
    help="Cluster to use: a kubeconfig file.  [default: $KUBECONFIG, ~/.kube/config or, in a pod, the pod's cluster]",
)
namespace = click.option("--namespace", default="default", show_default=True, help="Namespace of the pods.")
real = click.option("--real", is_flag=True, help="Also on a cluster with nodes that are not fake.")
name = click.option("--name", default="hdsim", show_default=True, help="Name of the cluster.")
workdir = click.option(
    "--workdir",
    type=FOLDER,
    default=lambda: os.environ.get("KWOK_WORKDIR") or Path.home() / ".kwok",
    help="Folder of the clusters, as kwokctl has it.  [default: $KWOK_WORKDIR or ~/.kwok]",
)
