"""A gang that has a machine for itself."""

from __future__ import annotations

import math

from hdsim.gangs.jobs import gang_jobs
from hdsim.gangs.simulation import Gang, GangRun
from hdsim.platform.model import Platform
from hdsim.platform.schema import QUANTITIES
from hdsim.simulation.simulation import Simulation


def run_alone(gang: Gang) -> GangRun:
    """Simulates a gang on a machine that has the CPU of its budget.

    Raises:
        DecisionError: The controller returns shares that the gang cannot have.
    """
    machine = Platform.homogeneous(1, math.ceil(gang.budget.total / 1000)).of_kind(QUANTITIES)
    simulation = Simulation(machine, gang_jobs([gang]))
    simulation.run_until(math.inf)
    return simulation.cluster.gangs[0].run()
