"""The Gymnasium environment ``hdsim/Scheduling-v0``; importing this package registers it.

Gymnasium itself calls `register` where hdsim is installed, through the entry point group ``gymnasium.envs``; it does so
while it is being imported, so that nothing here may import it before.
"""

ENV_ID = "hdsim/Scheduling-v0"


def register() -> None:
    """Registers the environment, once."""
    from gymnasium.envs import registration

    if ENV_ID not in registration.registry:
        registration.register(
            id=ENV_ID,
            entry_point="hdsim.envs.scheduling:SchedulingEnv",
            vector_entry_point="hdsim.envs.vector:SchedulingVectorEnv",
        )


register()
