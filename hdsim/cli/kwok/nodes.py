"""``hdsim kwok nodes``: fake nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli.kwok.options import kubeconfig, real

if TYPE_CHECKING:
    from hdsim.platform.schema import Taint


@click.command()
@click.argument("platform", required=False)
@kubeconfig
@real
@click.option("--count", type=click.IntRange(1), help="Create equal nodes instead of those of a platform.")
@click.option("--type", "node_type", default="node", show_default=True, help="Their type, the begin of their names.")
@click.option("--cpu", default="64", show_default=True, help="CPU of each, such as 64 or 3920m.")
@click.option("--memory", default="256Gi", show_default=True, help="Memory of each.")
@click.option("--pods", type=click.IntRange(1), default=110, show_default=True, help="Most pods on each.")
@click.option("--gpus", type=click.IntRange(0), default=0, help="GPUs of each (nvidia.com/gpu).")
@click.option("--storage", default="1Ei", show_default=True, help="Ephemeral storage of each.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label of all; may be given repeatedly.")
@click.option("--taint", "taints", multiple=True, metavar="KEY[=VALUE]:EFFECT", help="Taint of all; as --label.")
@click.option("--control-plane", is_flag=True, help="Create a tainted node that stands for the control plane as well.")
@click.option("--delete", is_flag=True, help="Delete the nodes that hdsim has created.")
@click.option("--timeout", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds to wait.")
def nodes(
    platform: str | None,
    kubeconfig: Path | None,
    count: int | None,
    node_type: str,
    cpu: str,
    memory: str,
    pods: int,
    gpus: int,
    storage: str,
    labels: tuple[str, ...],
    taints: tuple[str, ...],
    control_plane: bool,
    delete: bool,
    real: bool,
    timeout: float,
) -> None:
    """Create fake nodes, and wait until they are ready.

    PLATFORM is a platform file, or the name of one that comes with hdsim, such as gaia: each of its nodes becomes one
    of the cluster.

    \b
    hdsim kwok nodes gaia
    hdsim kwok nodes --count 10 --cpu 64 --memory 256Gi --control-plane
    hdsim kwok nodes --count 100 --type gpu --gpus 4 --label zone=b --taint gpu=yes:NoSchedule
    """  # noqa: D301 - click reads the backspace character
    from hdsim.cluster.requests import Amounts
    from hdsim.kubernetes.connection import Connection
    from hdsim.kubernetes.nodes import (
        control_plane_node,
        create_nodes,
        delete_nodes,
        node_manifests,
        require_fake,
        type_manifests,
    )
    from hdsim.platform.load import load_platform
    from hdsim.util.resources import resolve

    if sum((platform is not None, count is not None, delete)) != 1 and not (control_plane and not delete):
        raise click.UsageError("expected one of PLATFORM, --count and --delete")
    manifests: list[dict[str, Any]] = []
    if platform is not None:
        manifests += node_manifests(load_platform(resolve("platforms", platform)))
    if count is not None:
        sizes = [_quantity(*option) for option in (("--cpu", cpu), ("--memory", memory), ("--storage", storage))]
        amounts = Amounts(sizes[0], sizes[1], pods, gpus, sizes[2])
        manifests += type_manifests(node_type, count, amounts, dict(map(_label, labels)), tuple(map(_taint, taints)))
    if control_plane:
        manifests.append(control_plane_node())
    with Connection(kubeconfig, where="--kubeconfig") as connection:
        if not (real or delete):
            require_fake(connection, "nodes")
        if delete:
            click.echo(f"{delete_nodes(connection):,} nodes are deleted")
        else:
            create_nodes(connection, manifests, timeout)
            click.echo(f"{len(manifests):,} nodes are ready")


def _quantity(option: str, text: str) -> float:
    from hdsim.kubernetes.objects import UNLIMITED, quantity

    try:
        value = quantity(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= UNLIMITED:
        raise click.UsageError(f"{option}: expected a quantity above 0 such as 500m or 2Gi, at most 1Ei, got '{text}'")
    return value


def _taint(text: str) -> Taint:
    from hdsim.platform.schema import EFFECTS, Taint

    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if not key or effect not in EFFECTS:
        raise click.UsageError(
            f"--taint: expected KEY[=VALUE]:EFFECT, EFFECT one of {', '.join(EFFECTS)}, got '{text}'"
        )
    return Taint(key, _value("--taint", value), effect)


def _label(text: str) -> tuple[str, str]:
    from hdsim.kubernetes.nodes import OWN_LABELS

    key, sign, value = text.partition("=")
    if not key or not sign:
        raise click.UsageError(f"--label: expected KEY=VALUE, got '{text}'")
    if key in OWN_LABELS:
        raise click.UsageError(f"--label: expected none of the labels that hdsim sets, got '{text}'")
    return key, _value("--label", value)


def _value(option: str, text: str) -> str:
    from hdsim.util.text import LABEL_VALUE, LABEL_VALUES

    if not LABEL_VALUE.fullmatch(text):
        raise click.UsageError(f"{option}: expected a value of {LABEL_VALUES}, got '{text}'")
    return text
