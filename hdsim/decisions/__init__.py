"""What a learning agent decides and what it sees, the same in the Gymnasium environment and on every backend.

A :class:`hdsim.decisions.task.Task` joins one kind of action with one kind of observation. Nothing here needs Gymnasium
or a deep learning library.
"""

from hdsim.decisions.task import Task

__all__ = ["Task"]
