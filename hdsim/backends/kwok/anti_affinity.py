"""The nodes that the required anti-affinity of other pods keeps pods off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hdsim.workload.constraints import Requirement

if TYPE_CHECKING:
    from hdsim.kubernetes.cache import Change
    from hdsim.kubernetes.objects import PodView, Repulsion

#: Key and value of a label of nodes.
Label = tuple[str, str]


class AntiAffinity:
    """Pods on nodes whose required anti-affinity keeps others away from their topologies.

    `labels` are those of the nodes of the API server by their names, kept by the caller.
    """

    def __init__(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        self._labels = labels
        # Nodes of the pods that have a term, by their uids.
        self._pods: dict[Repulsion, dict[str, PodView]] = defaultdict(dict)

    def __bool__(self) -> bool:
        """Returns whether there is such a pod."""
        return bool(self._pods)

    @property
    def terms(self) -> Collection[Repulsion]:
        """All terms."""
        return self._pods.keys()

    def note(self, changes: Iterable[Change[PodView]]) -> set[Repulsion]:
        """Takes note of changes of pods; returns the terms that may keep others off other nodes than before."""
        changed: set[Repulsion] = set()
        for old, new in changes:
            before = old.repels if old is not None and old.holds else ()
            after = new.repels if new is not None and new.holds else ()
            if before == after:
                continue
            for term in before:
                assert old is not None
                self._pods[term].pop(old.uid, None)
                if not self._pods[term]:
                    del self._pods[term]
            for term in after:
                assert new is not None
                self._pods[term][new.uid] = new
            changed.update(before, after)
        return changed

    def against(self, pods: Sequence[PodView]) -> dict[Label, str]:
        """Returns the labels of the nodes that any of some pods is kept off, each with the key of a pod there."""
        found: dict[Label, str] = {}
        for term, there in self._pods.items():
            if any(term.concerns(pod) for pod in pods):
                for other in there.values():
                    value = self._labels.get(other.node, {}).get(term.topology)
                    if value is not None:
                        found.setdefault((term.topology, value), other.key)
        return found


def requirements_of(against: Iterable[Label]) -> tuple[Requirement, ...]:
    """Returns the requirements that nodes without any of some labels meet, in one order for equal labels."""
    values: dict[str, list[str]] = defaultdict(list)
    for key, value in sorted(against):
        values[key].append(value)
    return tuple(Requirement(key, "NotIn", tuple(these)) for key, these in values.items())
