"""A controller of gangs: ``hdsim bsp run controller.path=thrifty.py controller.margin=0.8``."""

from hdsim.gangs.controllers import Controller


class Thrifty(Controller):
    """Plans when the predicted duration exceeds that of a new plan by the price of a change."""

    def __init__(self, margin: float = 1.0):
        self.margin = margin

    def decide(self, state):
        plans = state.planner.plans(state.row, ((0, 2),))
        kept = state.planner.profile.at(state.predicted[:2], state.shares).max(axis=1).sum()
        worth = kept - plans.durations[0] > self.margin * state.penalty
        return plans.shares[0] if worth or state.superstep == 0 else None
