"""What a learning agent decides and what it sees, the same in the Gymnasium environment and on every backend.

A :class:`hdsim.decisions.DecisionProblem` joins one kind of action with one kind of observation. This package needs
neither Gymnasium nor a deep learning library.
"""

from hdsim.decisions.problem import DecisionProblem

__all__ = ["DecisionProblem"]
