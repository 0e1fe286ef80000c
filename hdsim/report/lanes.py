"""Names of the lanes of charts, and marks beside their axes: nodes with their types and clusters, processors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.report.charts import Groups, Strip
from hdsim.report.colors import BLACK, BLUE, BROWN, GREEN, GREY, JOB_COLORS, ORANGE, PURPLE, ROSE

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

#: Stretches of nodes of one type beyond which marks would be thinner than a pixel.
MOST_STRETCHES = 400
_COLORS = (BLUE, ORANGE, GREEN, PURPLE, BROWN, ROSE, GREY, JOB_COLORS[5], BLACK)


def nodes_of(platform: Platform, first: NDArray[Any]) -> Groups:
    """Names of the nodes; `first` has the first lane of each."""
    names = zip(platform.node_cluster.tolist(), platform.node_type.tolist(), strict=True)
    return Groups(
        first,
        [
            f"node {node} of {platform.cluster_names[cluster]} ({platform.node_type_names[kind]})"
            for node, (cluster, kind) in enumerate(names)
        ],
    )


def strip_of(platform: Platform, node_first: NDArray[Any]) -> Strip | None:
    """Types of nodes and clusters beside an axis, None where all are alike; node n begins at `node_first[n]`."""
    cluster, kind = platform.node_cluster, platform.node_type
    if platform.n_clusters == 1 and len(np.unique(kind)) == 1:
        return None
    first, position = np.flatnonzero(np.diff(kind, prepend=-1)), np.asarray(node_first, np.float64)
    if len(first) > MOST_STRETCHES:
        return None
    clusters = np.flatnonzero(np.diff(cluster, prepend=-1))
    return Strip(
        first=position[np.append(first, len(kind))],
        kind=kind[first].astype(np.int32),
        names=tuple(platform.node_type_names),
        colors=_COLORS,
        clusters=position[np.append(clusters, len(cluster))],
        cluster_names=tuple(platform.cluster_names[one] for one in cluster[clusters].tolist()),
    )


def processors_of(platform: Platform) -> Groups:
    """Names of the processors."""
    names = zip(platform.processor_node.tolist(), platform.processor_type.tolist(), strict=True)
    return Groups(
        np.arange(platform.n_processors + 1),
        [
            f"processor {processor} on node {node} ({platform.processor_type_names[kind]})"
            for processor, (node, kind) in enumerate(names)
        ],
    )


def spans_of(what: str, first: NDArray[np.int64], end: int) -> Iterator[str]:
    """Names of groups of neighbouring lanes from their first ones, such as ``nodes 4 to 7``."""
    for low, high in zip(first.tolist(), np.append(first[1:], end).tolist(), strict=True):
        yield f"{what} {low}" if high == low + 1 else f"{what}s {low} to {high - 1}"
