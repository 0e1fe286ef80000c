"""Frequencies of the jobs of a cluster: what schedulers ask for, and what running jobs have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError
from hdsim.platform.frequencies import FrequencyTable, slowdown
from hdsim.util.copies import with_own_containers
from hdsim.workload.frequency_bound import frequency_bound_of

if TYPE_CHECKING:
    from hdsim.util.arrays import Floats
    from hdsim.workload.model import Workload

#: The nominal frequency.
NOMINAL = math.nan


def refuse_frequencies(frequencies: Frequencies | None, name: str) -> None:
    """Refuses frequencies for an agent that plans with the nominal one.

    Args:
        frequencies: Those of the cluster, None where there are none.
        name: Name of the agent.

    Raises:
        ConfigError: Jobs get others than the nominal one by power management.
    """
    if frequencies is not None and (frequencies.slows or not math.isnan(frequencies.default)):
        message = f"expected power.frequency=null and power.when_capped=wait with {name}, which plans without them"
        raise ConfigError(message, where="power")


class Frequencies:
    """Frequencies of jobs in GHz, NaN for the nominal one.

    Attributes:
        table: The frequencies and their watts.
        default: Frequency of jobs for which the scheduler has chosen none.
        slows: Jobs that break a hard cap start at the highest frequency at which they do not, if there is one.
        raises: They rise again as far as the caps allow.
        used: Whether any job has had another frequency than the nominal one.
        of_running: Frequencies of the jobs that hold cores, but for those at the nominal one.
        changed: Running jobs that have got another frequency in the present pass of the scheduler.
        chosen: Jobs that have been given a frequency of their own so far, as keys.
        retimed: All running jobs that have got another frequency so far, in order.
        slowed: Running jobs that may rise to the frequency at which they were to start, the value, in order of their
            starts.

    Args:
        table: See the attributes.
        workload: The jobs.
        default: See the attributes.
        slows, raises: See the attributes.
    """

    __deepcopy__ = with_own_containers

    def __init__(
        self, table: FrequencyTable, workload: Workload, default: float | None, *, slows: bool, raises: bool = False
    ) -> None:
        self.table, self.slows, self.raises, self.used = table, slows, raises, False
        self.default = self.checked(table.nominal if default is None else default)
        self.of_running: dict[int, float] = {}
        self.changed: list[int] = []
        self.chosen: dict[int, None] = {}
        self.retimed: list[int] = []
        self.slowed: dict[int, float] = {}
        self._asked: dict[int, float] = {}
        self._bound: list[float] = []
        self.add(workload)

    def add(self, jobs: Workload) -> None:
        """Adds jobs behind those known.

        Raises:
            WorkloadError: A share of frequency-bound work is no number from 0 to 1.
        """
        # A job of fixed duration takes as long at any frequency.
        self._bound += np.where(jobs.fixed_duration, 0.0, frequency_bound_of(jobs)).tolist()

    def checked(self, ghz: float) -> float:
        """Returns a frequency, NaN for the nominal one.

        Raises:
            ValueError: It is none of the table; the message says what is allowed.
        """
        if self.table.index(ghz) < 0:
            raise ValueError(f"expected a frequency of {self.table} GHz, got {ghz:g}")
        return NOMINAL if ghz == self.table.nominal else float(ghz)

    @staticmethod
    def same(first: float, second: float) -> bool:
        """Returns whether two frequencies in GHz are the same, NaN for the nominal one."""
        return first == second or (math.isnan(first) and math.isnan(second))

    def asked(self, job: int) -> float:
        """Returns the frequency at which a queued job is to start."""
        return self._asked.get(job, self.default)

    def ask(self, job: int, ghz: float) -> None:
        """Takes note of the frequency at which a queued job is to start."""
        self._asked[job] = ghz
        self.chosen[job] = None

    def candidates(self, job: int) -> list[float]:
        """Returns the frequencies at which a queued job may start, the best one first."""
        asked = self.asked(job)
        return [asked, *self.table.below(self._ghz(asked))] if self.slows else [asked]

    def higher(self, job: int) -> list[float]:
        """Returns the frequencies above its present one to which a job that is slowed may rise, the best one first."""
        asked, least = self.slowed[job], self._ghz(self.of(job))
        return [ghz for ghz in (asked, *self.table.below(self._ghz(asked))) if self._ghz(ghz) > least]

    def _ghz(self, ghz: float) -> float:
        return self.table.nominal if math.isnan(ghz) else ghz

    def of(self, job: int) -> float:
        """Returns the frequency of a running job."""
        return self.of_running.get(job, NOMINAL)

    def run(self, job: int, ghz: float) -> None:
        """Takes note of the frequency of a job that holds cores."""
        self._asked.pop(job, None)
        if math.isnan(ghz):
            self.of_running.pop(job, None)
        else:
            self.of_running[job] = ghz
            self.used = True
        if not self.same(ghz, self.default):
            self.chosen[job] = None

    def release(self, job: int) -> None:
        """Takes note of a job that has given its cores back."""
        self.of_running.pop(job, None)
        self.slowed.pop(job, None)

    def slowdown(self, job: int, ghz: float) -> float:
        """Returns the run time of a job at a frequency over that at the nominal one."""
        return 1.0 if math.isnan(ghz) else float(slowdown(self._bound[job], self.table.nominal, ghz))

    def stretched(self, requested: Floats) -> Floats:
        """Returns the (J,) requested times of all jobs, (J,), at the default frequency."""
        if math.isnan(self.default):
            return requested
        return np.asarray(requested * slowdown(np.array(self._bound), self.table.nominal, self.default))

    def kind(self, job: int) -> Any:
        """Returns what is equal of queued jobs whose starts take as long and draw as much, but for their requests."""
        return self._bound[job], self._asked.get(job)

    def more_watts(self, ghz: float) -> Floats:
        """Returns the (T,) W that a core of each processor type draws more than at the nominal frequency."""
        return self.table.more_watts(ghz)
