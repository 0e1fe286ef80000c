"""pybatsim's sleeping first come, first served, which takes P-states for numbers and is told them as text."""

from schedulers.fcfsSchedSleep import FcfsSchedSleep


class FcfsAsleep(FcfsSchedSleep):
    def onMachinePStateChanged(self, machines, new_pstate):
        super().onMachinePStateChanged(machines, int(new_pstate))
