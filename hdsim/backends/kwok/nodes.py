"""The nodes of the API server in the state of the cluster, and what pods of others take of them."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hdsim.cluster.requests import Amounts
from hdsim.errors import ConfigError
from hdsim.kubernetes.nodes import amounts_of
from hdsim.kubernetes.objects import UNLIMITED, NodeView, PodView

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

log = logging.getLogger(__name__)

#: Bytes by which equal amounts of memory may differ: a platform counts in MB.
_ROUNDING = 1.0


class Nodes:
    """Keeps the nodes of a cluster as those of the API server.

    A node that is deleted or not ready takes no pods until it is back, a cordoned one those that tolerate its taint.
    A node that lists less than at the start has less; what it lists more, and nodes that are new, are used after a
    restart only.

    Attributes:
        number: Number of each node by its name.
        relabelled: Labels or taints have changed, so that jobs may fit that did not; to be cleared by the reader.
        warning: Nodes that are not in the platform at the start, empty for none.

    Args:
        cluster: The state.
        views: The nodes of the API server by name.

    Raises:
        ConfigError: A node of the platform is missing, or has other amounts.
    """

    def __init__(self, cluster: Cluster, views: Mapping[str, NodeView]) -> None:
        self._cluster = cluster
        self.number = {name: node for node, name in enumerate(cluster.platform.node_names)}
        self._amounts = amounts_of(cluster.platform)
        self._cordoned: set[int] = set()
        self.relabelled = False
        self.warning = ""
        # Node of each pod that is no job, its amounts, and those that its job holds instead.
        self._others: dict[str, tuple[int, Amounts, Amounts | None]] = {}
        # Amounts of which nodes have less than at the start.
        self._lost: dict[int, Amounts] = {}
        self._labels = list(zip(cluster.platform.node_labels, cluster.platform.node_taints, strict=True))
        faults = [
            f"{name} {fault}"
            for name, node in self.number.items()
            if (fault := _fault(views.get(name), self._amounts[node]))
        ]
        if faults:
            more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
            raise ConfigError(
                f"expected the nodes of platform {cluster.platform.name}: {'; '.join(faults[:5])}{more}",
                where="platform",
            )
        self._unknown = {name for name in views if name not in self.number}
        if self._unknown:
            number, one = len(self._unknown), min(self._unknown)
            self.warning = f"{number} nodes are not in the platform and get no pods, such as {one}"
        for name in self.number:
            self._update(views[name])

    def change(self, old: NodeView | None, new: NodeView | None) -> None:
        """Takes note of a change."""
        view = new or old
        assert view is not None
        node = self.number.get(view.name)
        if new is None:
            log.warning("node %s is deleted", view.name)
            if node is not None:
                self._take_down(node)
        elif node is None:
            if new.name not in self._unknown:
                log.warning("node %s is new; it is used after a restart", new.name)
                self._unknown.add(new.name)
        else:
            lost = _lost(new, self._amounts[node])
            if old is None or old.allocatable != new.allocatable:
                self._tell_amounts(node, new, lost)
            if math.inf in lost:
                self._take_down(node)
            else:
                self._lose(node, lost)
                self._update(new)

    def occupy(self, pod: PodView, held: Amounts | None = None) -> None:
        """Takes note of what a pod takes, or takes no more, of its node.

        Args:
            pod: A pod of others, or one of a job that has been resized in place.
            held: Amounts that the job holds for the pod already, None for a pod of others.
        """
        now = self._others.get(pod.uid)
        node = self.number.get(pod.node) if pod.holds else None
        wanted = None if node is None or pod.requests == held else (node, pod.requests, held)
        if now == wanted:
            return
        self.vacate(pod)
        if wanted is not None:
            self._others[pod.uid] = wanted
            self._cluster.cores.occupy(*wanted[:2])
            if held is not None:
                self._cluster.cores.vacate(wanted[0], held)
            self._cluster.node_changes.append(wanted[0])

    def vacate(self, pod: PodView) -> bool:
        """Takes back what `occupy` has noted of a pod; returns whether there was something."""
        known = self._others.pop(pod.uid, None)
        if known is not None:
            node, amounts, held = known
            if held is not None:
                self._cluster.cores.occupy(node, held)
            self._cluster.cores.vacate(node, amounts)
            self._cluster.node_changes.append(node)
        return known is not None

    def _tell_amounts(self, node: int, view: NodeView, lost: Amounts) -> None:
        """Tells in what a node differs from the platform, and what becomes of it."""
        expected = self._amounts[node]
        more = any(found > amount for found, amount in _differing(view, expected).values())
        then = "; what it has more is used after a restart" if more else ""
        if math.inf in lost:
            then = "; it is used again after a restart"
        if fault := _fault(view, expected):
            log.warning("node %s %s%s", view.name, fault, then)

    def _lose(self, node: int, lost: Amounts) -> None:
        """Takes from a node what it has less than at the start, instead of what it had less before."""
        before = self._lost.get(node, Amounts())
        if lost != before:
            self._lost[node] = lost
            self._cluster.cores.occupy(node, lost)
            self._cluster.cores.vacate(node, before)
            self._cluster.node_changes.append(node)

    def _update(self, view: NodeView) -> None:
        """Brings a node of the platform up to date."""
        node = self.number[view.name]
        seen = (view.labels, view.taints)
        if seen != self._labels[node]:
            self._labels[node] = seen
            self._cluster.cores.relabel(node, *seen)
            self.relabelled = True
            self._cluster.node_changes.append(node)
        if view.unschedulable != (node in self._cordoned):
            log.warning("node %s is %s", view.name, "cordoned" if view.unschedulable else "cordoned no more")
            self._cordoned ^= {node}
        if not view.ready:
            if node not in self._cluster.down:
                log.warning("node %s is not ready", view.name)
            self._take_down(node)
        elif node in self._cluster.down:
            log.warning("node %s is back", view.name)
            self._cluster.repair(node)

    def _take_down(self, node: int) -> None:
        if node not in self._cluster.down:
            self._cluster.fail(node, math.inf)


def _shown(amount: float) -> str:
    return "unlimited" if math.isinf(amount) else f"{amount:g}"


def _differing(view: NodeView, expected: Amounts) -> dict[str, tuple[float, float]]:
    """Returns the amounts in which a node differs from the platform: found and expected ones by their names."""
    return {
        name: (found, amount)
        for name, found, amount in zip(Amounts._fields, view.allocatable, expected, strict=True)
        if abs(min(found, UNLIMITED) - min(amount, UNLIMITED)) > _ROUNDING * (name in ("memory", "storage"))
    }


def _lost(view: NodeView, expected: Amounts) -> Amounts:
    """Returns what a node has less than expected; infinite where it was unlimited and is no more."""
    pairs = _differing(view, expected).items()
    return Amounts(**{name: round(amount - found, 3) for name, (found, amount) in pairs if found < amount})


def _fault(view: NodeView | None, expected: Amounts) -> str:
    """Returns in what a node differs from the platform, empty if in nothing."""
    if view is None:
        return "is missing on the API server"
    differing = [
        f"{_shown(found)} {name} instead of {_shown(amount)}"
        for name, (found, amount) in _differing(view, expected).items()
    ]
    return f"has {', '.join(differing)}" if differing else ""
