"""The nodes of the API server in the state of the cluster, and what pods of others take of them."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hdsim.cluster.requests import Amounts
from hdsim.errors import ConfigError
from hdsim.kubernetes.nodes import amounts_of, has_room
from hdsim.kubernetes.objects import UNLIMITED, NodeView, PodView

if TYPE_CHECKING:
    from hdsim.cluster.state import Cluster

log = logging.getLogger(__name__)

#: Bytes by which equal amounts of memory may differ: a platform counts in MB.
_ROUNDING = 1.0
_BYTES = ("memory", "storage")


class MirroredNodes:
    """Keeps the nodes of a cluster as those of the API server.

    A node that is deleted or not ready takes no pods until it is back, a cordoned one those that tolerate its taint.
    Amounts of a node may change. Nodes that are new take the places of spare nodes of the platform, which are its last
    ones and have nothing until then.

    Raises:
        ConfigError: A node of the platform is missing, or has other amounts.
    """

    def __init__(self, cluster: Cluster, views: Mapping[str, NodeView], spare: int = 0) -> None:
        self._cluster = cluster
        platform = cluster.platform
        self.names = list(platform.node_names)  # name of each node
        first = len(self.names) - spare
        self._spare = list(range(first, len(self.names)))
        #: Number of each node of the API server by its name.
        self.number = {name: node for node, name in enumerate(self.names[:first])}
        #: Labels of all nodes of the API server, those that are not in the platform included, by their names.
        self.labels = {name: view.labels for name, view in views.items()}
        self.joined: list[NodeView] = []  # nodes in the places of the first spare ones, as they were when they came
        self.overfilled: set[int] = set()  # nodes whose pods have requested more than they have at some time
        self._amounts = amounts_of(platform)
        # Requests of all pods on each node.
        self._requested = [Amounts()] * len(self.names)
        self._cordoned: set[int] = set()
        #: Labels, taints or amounts have changed, so that jobs may fit that did not; to be cleared by the reader.
        self.relabelled = False
        self.warning = ""  # nodes that are not in the platform at the start, empty for none
        # Node of each pod that is no job, its amounts, and those that its job holds instead.
        self._others: dict[str, tuple[int, Amounts, Amounts | None]] = {}
        self._labels = list(zip(platform.node_labels, platform.node_taints, strict=True))
        faults = [
            f"{name} {fault}"
            for name, node in self.number.items()
            if (fault := _fault(views.get(name), self._amounts[node]))
        ]
        if faults:
            more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
            raise ConfigError(
                f"expected the nodes of platform {platform.name}: {'; '.join(faults[:5])}{more}", where="platform"
            )
        self._unknown = {name for name, view in views.items() if name not in self.number and has_room(view)}
        if self._unknown:
            number, one = len(self._unknown), min(self._unknown)
            self.warning = f"{number} nodes are not in the platform and get no pods, such as {one}"
        for node in self._spare:
            self._replace_amounts(node, Amounts())
        for name in self.number:
            self._update(views[name])

    def change(self, old: NodeView | None, new: NodeView | None) -> None:
        """Takes note of a change."""
        view = new or old
        assert view is not None
        node = self.number.get(view.name)
        if new is None:
            self.labels.pop(view.name, None)
        else:
            self.labels[view.name] = new.labels
        if new is None:
            log.warning("node %s is deleted", view.name)
            if node is not None:
                self._take_down(node)
        elif node is not None:
            if fault := _fault(new, self._amounts[node]):
                log.warning("node %s %s", new.name, fault)
                self._replace_amounts(node, new.allocatable)
            self._update(new)
        elif new.name not in self._unknown:
            self._join(new)

    def _join(self, view: NodeView) -> None:
        """Takes a node that is new in the place of a spare one."""
        if not has_room(view):
            return  # Its kubelet has not yet told what it has.
        if not self._spare:
            log.warning("node %s is new; it is used after a restart, as backend.spare_nodes are used up", view.name)
            self._unknown.add(view.name)
            return
        log.warning("node %s is new", view.name)
        node = self._spare.pop(0)
        self.names[node] = view.name
        self.number[view.name] = node
        self.joined.append(view)
        self._replace_amounts(node, view.allocatable)
        self._update(view)

    def count(self, old: PodView | None, new: PodView | None) -> None:
        """Takes note of what all pods of a node request."""
        if (
            old is not None
            and new is not None
            and (old.holds, old.node, old.requests) == (new.holds, new.node, new.requests)
        ):
            return
        for pod, sign in ((old, -1), (new, 1)):
            node = None if pod is None or not pod.holds else self.number.get(pod.node)
            if pod is not None and node is not None:
                pairs = zip(self._requested[node], pod.requests, strict=True)
                self._requested[node] = Amounts(*(round(sum_ + sign * each, 3) for sum_, each in pairs))
                if sign > 0:
                    self._note_overfilled(node)

    def _note_overfilled(self, node: int) -> None:
        """Tells if a node has less than its pods request, as after bindings by two schedulers at once."""
        if node in self.overfilled:
            return
        columns = zip(Amounts._fields, self._requested[node], self._amounts[node], strict=True)
        over = [
            f"{_shown(wanted, name)} of {_shown(has, name)}"
            for name, wanted, has in columns
            if wanted - has > _rounding(name)
        ]
        if over:
            self.overfilled.add(node)
            log.warning("node %s is overfilled: its pods request %s", self.names[node], ", ".join(over))

    def occupy(self, pod: PodView, held: Amounts | None = None) -> None:
        """Takes note of what a pod takes, or takes no more, of its node.

        `held` are the amounts that a job holds for it already, None for a pod of others.
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

    def _replace_amounts(self, node: int, amounts: Amounts) -> None:
        """Changes what a node has."""
        self._amounts[node] = amounts
        self._cluster.cores.replace_total(node, amounts)
        self._cluster.node_changes.append(node)
        self.relabelled = True
        self._note_overfilled(node)

    def _update(self, view: NodeView) -> None:
        """Brings a node of the platform up to date."""
        node = self.number[view.name]
        seen = (view.labels, view.taints)
        if seen != self._labels[node]:
            self._labels[node] = seen
            self._cluster.cores.relabel(node, view.name, *seen)
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


def _rounding(name: str) -> float:
    """Returns by how much equal amounts may differ."""
    return _ROUNDING if name in _BYTES else 0.0


def _shown(amount: float, name: str) -> str:
    if math.isinf(amount):
        return f"unlimited {name}"
    return f"{amount / 2**30:.4g} GiB {name}" if name in _BYTES else f"{amount:g} {name}"


def _fault(view: NodeView | None, expected: Amounts) -> str:
    """Returns in what a node differs from what is expected, empty if in nothing."""
    if view is None:
        return "is missing on the API server"
    differing = [
        f"{_shown(found, name)} instead of {_shown(amount, name)}"
        for name, found, amount in zip(Amounts._fields, view.allocatable, expected, strict=True)
        if abs(min(found, UNLIMITED) - min(amount, UNLIMITED)) > _rounding(name)
    ]
    return f"has {', '.join(differing)}" if differing else ""
