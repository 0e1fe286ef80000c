"""Interface of a replay for the functions that evaluate it, whether it was just made or read from a run directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hdsim.util.arrays import Floats, Ints

if TYPE_CHECKING:
    from hdsim.cluster.job_state import FailedStart
    from hdsim.cluster.time_breakdown import TimeBreakdown
    from hdsim.failures import Outages
    from hdsim.gangs.simulation import GangRun
    from hdsim.platform.model import Platform
    from hdsim.platform.states import Cap, StateSpans
    from hdsim.results.period import Period
    from hdsim.results.segments import Segments
    from hdsim.workload.model import Workload


class Replay(Protocol):
    """A replay, read back or not; J counts its jobs."""

    @property
    def platform(self) -> Platform:
        """The platform."""

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics by name."""

    @property
    def jobs(self) -> Mapping[str, NDArray[Any]]:
        """Columns of the jobs by name, (J,) each."""

    @property
    def state(self) -> NDArray[np.int8]:
        """(J,) :class:`hdsim.cluster.state.FinalState`."""

    @property
    def starting_time(self) -> Floats:
        """(J,) s, last start of each job, NaN for one that never started."""

    @property
    def finish_time(self) -> Floats:
        """(J,) s, NaN for a job that never ended."""

    @property
    def end_time(self) -> float:
        """End of the period accounted for, in seconds."""

    @property
    def period(self) -> Period:
        """The period that means are taken over."""

    @property
    def counted(self) -> NDArray[np.bool_]:
        """(J,) whether statistics count a job: it has ended, and was submitted in the period."""

    @property
    def segments(self) -> Segments:
        """Allocation segments in order of their begins."""

    @property
    def outages(self) -> Outages | None:
        """When nodes were down, None where they do not fail."""

    @property
    def node_states(self) -> StateSpans | None:
        """When nodes were going down, off or booting, None where they do not sleep."""

    @property
    def oversubscribed(self) -> tuple[NDArray[np.int32], Floats, Floats]:
        """Spans in which the demands on a processor exceeded its memory bandwidth: processors, begins, ends."""

    @property
    def contention(self) -> Floats:
        """(E, 3) changes in any order: date in seconds, cores' worth of speed lost to contention, tasks that send.

        Empty where jobs have no programs.
        """


class FullReplay(Replay, Protocol):
    """A replay with all its jobs and what no run directory keeps."""

    @property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """Further columns of jobs.csv that the scheduler has added, (J,) each."""

    @property
    def earlier_runs(self) -> Mapping[tuple[int, int], Mapping[str, Any]]:
        """Values of these columns of runs that were cut short and have rows of their own, by job and attempt."""

    @property
    def workload(self) -> Workload:
        """The jobs."""

    @property
    def latest(self) -> Segments:
        """The last segment of every job that has started, in order of the starts."""

    @property
    def earlier(self) -> Segments:
        """The other segments, in order of their ends."""

    @property
    def time_breakdown(self) -> TimeBreakdown | None:
        """Time of jobs by activity, None where none has a program."""

    @property
    def gangs(self) -> Mapping[int, GangRun]:
        """Executed supersteps of each gang that has started."""

    @property
    def failed_permanently(self) -> Ints:
        """(G,) jobs that have failed because nodes failed under them too often."""

    @property
    def caps(self) -> Sequence[Cap]:
        """Limits on the power of nodes."""

    @property
    def failed_starts(self) -> Sequence[FailedStart]:
        """Starts that the backend has refused, in order."""

    @property
    def costs(self) -> Any:
        """Energy, price and emissions in the facility, a :class:`hdsim.results.costs.Costs`; None without one."""

    @property
    def state_seconds(self) -> Floats:
        """(5, N) s of each node in each :class:`hdsim.platform.node_state.NodeState`, for as long as energy counts."""

    @property
    def energy_joules(self) -> float:
        """Energy of the platform from the first submission to the last finish, J."""

    @property
    def wall_seconds(self) -> float:
        """Wall-clock time the replay took."""
