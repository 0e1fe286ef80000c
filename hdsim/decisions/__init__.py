"""Decision problems of learning agents: actions, observations, objectives and the wait queue.

They serve environments and all backends.

A :class:`hdsim.decisions.DecisionProblem` joins one kind of action with one kind of observation. This package needs
neither Gymnasium nor a deep learning library.
"""

from hdsim.decisions.base import Action, Array, Objective, Observer
from hdsim.decisions.problem import DecisionProblem

__all__ = ["Action", "Array", "DecisionProblem", "Objective", "Observer"]
