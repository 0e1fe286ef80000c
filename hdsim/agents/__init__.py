"""Agents that come with hdsim, one file each; their source is the folder ``agents/`` at the top of the repository.

Setting the path makes ``hdsim.agents.classic`` the same module in a checkout and in an installed wheel.
"""

from hdsim.util.resources import folder

__path__ = [str(folder("agents"))]
