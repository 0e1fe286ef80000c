"""Times that nodes spend in power states, and limits on their power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hdsim.platform.node_state import NodeState
from hdsim.util.copies import itself

#: Name of the cap of all nodes.
MACHINE = "machine"
#: Kinds of caps.
CAP_KINDS = ("hard", "soft")


@dataclass(frozen=True)
class StateSpans:
    """Times at which nodes were not up: going down, off or booting; in order of their ends.

    Attributes:
        node: (S,) node.
        state: (S,) :class:`NodeState`.
        begin: (S,) s.
        end: (S,) s.
    """

    node: NDArray[np.int64]
    state: NDArray[np.int64]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, float, float]]) -> StateSpans:
        """Makes the spans of rows (node, state, begin, end)."""
        node, state, begin, end = zip(*rows, strict=True) if rows else ((), (), (), ())
        return cls(np.array(node, np.int64), np.array(state, np.int64), np.array(begin, float), np.array(end, float))

    def __len__(self) -> int:
        return len(self.node)

    def until(self, end: float) -> StateSpans:
        """Returns the part before a time in seconds."""
        begun = self.begin < end
        if begun.all() and not (self.end > end).any():
            return self
        return StateSpans(self.node[begun], self.state[begun], self.begin[begun], np.minimum(self.end[begun], end))

    def seconds(self, nodes: int) -> NDArray[np.float64]:
        """Returns (5, N) seconds that each node spent in each state; those up are 0."""
        places, states = self.state * nodes + self.node, len(NodeState)
        found = np.bincount(places, self.end - self.begin, states * nodes)
        return found.astype(np.float64).reshape(states, nodes)


@dataclass(frozen=True, eq=False)
class Cap:
    """A limit on the power of some nodes.

    Attributes:
        name: Name of the limited part of the machine.
        nodes: (N,) whether it limits a node.
        times: (T,) steps in seconds, ascending, the first at 0.
        watts: (T,) limit from each step on; infinite for none.
        hard: Whether no start may break it; otherwise it is only measured.
    """

    __deepcopy__ = itself

    name: str
    nodes: NDArray[np.bool_]
    times: NDArray[np.float64]
    watts: NDArray[np.float64]
    hard: bool
