"""Decision problems of learning agents: actions, observations and the wait queue, for environments and all backends.

A :class:`hdsim.decisions.DecisionProblem` joins one kind of action with one kind of observation. This package needs
neither Gymnasium nor a deep learning library.
"""

from hdsim.decisions.base import Action, Array, Observer
from hdsim.decisions.problem import DecisionProblem

__all__ = ["Action", "Array", "DecisionProblem", "Observer"]
