"""The Gymnasium environment ``hdsim/Scheduling-v0``; importing this package registers it."""

import gymnasium

ENV_ID = "hdsim/Scheduling-v0"


def register() -> None:
    """Registers the environment, once."""
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(id=ENV_ID, entry_point="hdsim.envs.scheduling:SchedulingEnv")


register()
