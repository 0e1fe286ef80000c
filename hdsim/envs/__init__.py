"""The Gymnasium environment ``hdsim/Scheduling-v0``; importing this package registers it.

So does ``import hdsim`` in a program that has imported Gymnasium, or the first use of a name of hdsim after that.
"""

import gymnasium

ENV_ID = "hdsim/Scheduling-v0"

if ENV_ID not in gymnasium.registry:
    gymnasium.register(
        id=ENV_ID,
        entry_point="hdsim.envs.scheduling:SchedulingEnv",
        vector_entry_point="hdsim.envs.vector:SchedulingVectorEnv",
    )
