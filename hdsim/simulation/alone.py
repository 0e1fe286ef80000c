"""A gang that has a machine for itself."""

from __future__ import annotations

import math

from hdsim.gangs.jobs import gang_jobs
from hdsim.gangs.simulation import Gang, GangRun
from hdsim.platform.model import Platform
from hdsim.platform.schema import QUANTITIES
from hdsim.simulation.simulation import Simulation


class SimulationInterrupted(KeyboardInterrupt):
    """A simulation was interrupted.

    Attributes:
        result: Its supersteps until then.
    """

    def __init__(self, result: GangRun) -> None:
        super().__init__(f"interrupted after {len(result.sizes)} supersteps")
        self.result = result


def run_alone(gang: Gang) -> GangRun:
    """Simulates a gang on a machine that has the CPU of its budget.

    Raises:
        DecisionError: The controller returns shares that the gang cannot have.
        Interrupted: The simulation was interrupted after the first superstep.
    """
    machine = Platform.homogeneous(1, math.ceil(gang.budget.total / 1000)).of_kind(QUANTITIES)
    simulation = Simulation(machine, gang_jobs([gang]))
    try:
        simulation.run_until(math.inf)
    except KeyboardInterrupt:
        running = simulation.cluster.gangs.get(0)
        if running is None or not len((until := running.run(complete=False)).sizes):
            raise
        raise SimulationInterrupted(until) from None
    return simulation.cluster.gangs[0].run()
