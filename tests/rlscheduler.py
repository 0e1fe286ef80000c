"""RLScheduler's evaluation (Zhang et al., SC 2020), so that its published table can be reproduced.

Test-only: the policies `wfp3-bug` and `unicef-bug` repeat a fault of the published code, whose waiting time does not
come from the clock. There, a job that has not been started has -1 for its start, and -1 minus the submission time
stands where the waiting time should. Importing this module registers both as orders of hdsim, so that they are
configured like any other: ``ClassicAgent("wfp3-bug", commit_head=True)``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hdsim.scheduling.orders import order
from hdsim.workload.model import Workload

#: First job and length of the ten windows that the published evaluation draws from `lublin_256.swf`.
WINDOWS = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)
LENGTH = 1024
PROCESSORS = 256

#: Mean over the windows of the mean bounded slowdown, without and with RLScheduler's backfilling, by hdsim's name.
PUBLISHED = {
    "fcfs": (7273.77, 235.82),
    "sjf": (277.35, 73.31),
    "f1": (258.37, 75.07),
    "wfp3-bug": (19753.53, 133.87),
    "unicef-bug": (22274.74, 307.23),
    "wfp3": (337.34, 126.50),
    "unicef_serial_first": (381.71, 103.10),
    "unicef": (370.56, 98.65),
    "saf": (292.88, 54.00),
    "f2": (268.47, 58.24),
    "f3": (341.77, 58.49),
    "f4": (289.57, 53.64),
}

Floats = NDArray[np.float64]
#: Start that the published code gives a job that has not been started.
NOT_STARTED = -1.0


@order("wfp3-bug")
def wfp3_bug(jobs: Workload) -> Floats:
    """WFP3 with the fault: the earlier a job came and the less it asks for, the sooner it is served."""
    wait = NOT_STARTED - jobs.original_submission_time
    return -((wait / jobs.requested_time) ** 3) * jobs.requested_cores


@order("unicef-bug")
def unicef_bug(jobs: Workload) -> Floats:
    """UNICEF with the fault, and with the published code's guards against a wait of 0 and a logarithm of 0."""
    wait = NOT_STARTED - jobs.original_submission_time + 1e-15
    return -wait / (np.log2(jobs.requested_cores + 1e-15) * jobs.requested_time)
