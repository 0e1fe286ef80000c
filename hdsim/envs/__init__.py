"""The Gymnasium environments ``hdsim/Scheduling-v0``, ``hdsim/Gang-v0`` and those of benchmarks.

Importing this package registers them. So does ``import hdsim`` in a program that has imported Gymnasium, or the first
use of a name of hdsim after that.
"""

from hdsim.errors import install_hint
from hdsim.util.resources import bundled

try:
    import gymnasium
except ModuleNotFoundError as error:
    raise ImportError(f"hdsim.envs cannot be imported: {error}{install_hint(error.name)}", name=error.name) from None

ENV_ID, GANG_ID = "hdsim/Scheduling-v0", "hdsim/Gang-v0"

if ENV_ID not in gymnasium.registry:
    gymnasium.register(
        id=ENV_ID,
        entry_point="hdsim.envs.scheduling:SchedulingEnv",
        vector_entry_point="hdsim.envs.vector:SchedulingVectorEnv",
    )
    gymnasium.register(id=GANG_ID, entry_point="hdsim.envs.gang:gang_env")
    for name in bundled("benchmarks"):
        gymnasium.register(
            id=f"hdsim/{name}",
            entry_point="hdsim.envs.benchmarks:benchmark_env",
            vector_entry_point="hdsim.envs.benchmarks:benchmark_vector_env",
            kwargs={"benchmark": name},
        )
