"""Kinds of actions and observations for jobs of any workload; those of a site are tested in tests/site.

Those for nodes that sleep are tested in tests/envs/test_suspend.py.
"""

from __future__ import annotations

from hdsim.decisions.kinds import ACTIONS as ALL_ACTIONS
from hdsim.decisions.kinds import OBSERVATIONS as ALL_OBSERVATIONS

ACTIONS = [name for name, kind in ALL_ACTIONS.classes().items() if not (kind.needs_site or kind.needs_power)]
OBSERVATIONS = [name for name, kind in ALL_OBSERVATIONS.classes().items() if not kind.needs_site]
