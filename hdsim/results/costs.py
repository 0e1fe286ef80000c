"""Energy, price and emissions of a replay in its facility, by job, user, account and hour.

All are exact integrals of step functions: of the power of the machine (:func:`hdsim.results.series.power`) times what
the facility takes for it, the price and the carbon intensity.

Rule: a job pays for the cores that it holds, and for the idle cores of the nodes where it runs, which the jobs of a
node share in proportion to the power of the cores that they hold there. Nodes without jobs, and whatever else the
machine takes, are in the row ``idle``. The surplus of the facility is in proportion to the power of the machine at
each instant. The rows add up to the total.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdsim.facility.kernels.splitting import split_idle
from hdsim.facility.model import Facility
from hdsim.facility.quantities import QUANTITIES
from hdsim.platform.power import COMPUTING, IDLE_POWER, PSTATES
from hdsim.results import series
from hdsim.results.segments import powered_until
from hdsim.util.arrays import Floats, Ints, distinct

if TYPE_CHECKING:
    from hdsim.results.replay import FullReplay
    from hdsim.results.segments import Segments

log = logging.getLogger(__name__)

_ENERGY, _FACILITY, _COST, _CARBON = range(len(QUANTITIES))
_HOUR = 3600.0
#: Most hours of a run of which results list the costs, those of 100 years.
MOST_HOURS = 876_600
#: Rows of owners that are no users and accounts.
IDLE, TOTAL = "idle", "total"


class OwnerCosts(NamedTuple):
    """Costs of the jobs of a user or account, of none or of all.

    Attributes:
        by: ``user``, ``account``, ``idle`` or ``total``.
        name: Name of the user or account, empty for an unknown one and for the others.
        jobs: Jobs that have held cores.
        amounts: (4,) amounts in the order of :data:`QUANTITIES`, NaN for those that are not known.
        peak_watts: Highest power of the cores that its jobs hold at one time; for all, of the facility.
    """

    by: str
    name: str
    jobs: int
    amounts: Floats
    peak_watts: float


@dataclass(frozen=True, eq=False)
class Hours:
    """Costs by hour of the clock, the first and the last one perhaps in parts.

    Attributes:
        begins: (H,) s since the first submission.
        dates: (H,) local times with offsets, empty where the date of the run is not known.
        amounts: (4, H) amounts in the order of :data:`QUANTITIES`, NaN for those that are not known.
        peak_watts: (H,) highest power of the facility.
        price, carbon: (H,) means over time in EUR/kWh and gCO2/kWh, NaN where they are not known.
    """

    begins: Floats
    dates: list[str]
    amounts: Floats
    peak_watts: Floats
    price: Floats
    carbon: Floats


def known_quantities(facility: Facility) -> tuple[str, ...]:
    """Returns those of :data:`QUANTITIES` that are known in a facility."""
    has = {QUANTITIES[_COST]: facility.price is not None, QUANTITIES[_CARBON]: facility.carbon is not None}
    return tuple(name for name in QUANTITIES if has.get(name, True))


class Costs:
    """Energy, price and emissions of a replay.

    Attributes:
        known: Those of :data:`QUANTITIES` that the facility has.
        times: (T,) s at which the power, the price or anything else changes.
        watts: (T,) power of the facility from then on.
        total: (4,) amounts in the order of :data:`QUANTITIES`, NaN for those that are not known.

    Args:
        result: The replay, whose cores have ids.
        facility: Its facility.
    """

    def __init__(self, result: FullReplay, facility: Facility) -> None:
        self._result, self.facility = result, facility
        self.known = known_quantities(facility)
        power = series.power(result)
        for line in facility.uncovered(power.end):
            log.warning("%s; what depends on it is null", line)
        self.end = power.end
        times = distinct(power.times, facility.changes(0.0, self.end))
        self.times = times[(times == 0) | ((times > 0) & (times < self.end))]
        machine = power.at(self.times)
        self.watts = machine * facility.factor(self.times, machine)
        # Weights of a J of the machine at each time, and their integrals over time: the clocks.
        self._weights = facility.weights(self.times, machine)
        self._knots = np.append(self.times, max(self.end, float(self.times[-1])))
        seconds = np.diff(self._knots)
        self._clocks = _sums(self._weights * seconds)
        self._meters = _sums(self._weights * machine * seconds)
        self.total: Floats = self._meters[:, -1]

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the whole replay."""
        energy, facility, cost, carbon = self.total.tolist()
        metrics = {
            "facility_energy_kwh": facility,
            "facility_peak_watts": float(self.watts.max(initial=0.0)),
            "effective_pue": facility / energy if energy > 0 else 1.0,
        }
        metrics |= {} if self.facility.price is None else {"cost_eur": cost}
        metrics |= {} if self.facility.carbon is None else {"carbon_grams": carbon}
        return metrics

    @cached_property
    def jobs(self) -> Floats:
        """(4, J) amounts of each job in the order of :data:`QUANTITIES`."""
        held, jobs = self._held, len(self._result.state)
        if not len(held):
            return np.zeros((len(QUANTITIES), jobs))
        at = np.concatenate([held.begin, held.end])
        clocks = _at(self._knots, self._clocks, at)
        shared = np.zeros((len(QUANTITIES), len(held)))
        platform, used = self._result.platform, held.usage
        split_idle(
            np.argsort(at, kind="stable"),
            np.searchsorted(used.segment, np.arange(len(held) + 1)),
            used.processor,
            used.cores,
            platform.processor_node.astype(np.int32),
            platform.node_first_processor.astype(np.int32),
            platform.cores_per_processor.astype(np.int64),
            platform.power.astype(np.float64),
            *_by_frequency(held),
            PSTATES[COMPUTING].power,
            IDLE_POWER,
            clocks,
            shared,
        )
        paid = self._own_watts * (clocks[:, len(held) :] - clocks[:, : len(held)]) + shared
        return np.array([np.bincount(held.job, amounts, jobs) for amounts in paid])

    @cached_property
    def paying(self) -> Ints:
        """Jobs that have held cores, ascending."""
        return np.unique(self._held.job)

    @cached_property
    def job_peaks(self) -> Floats:
        """(J,) highest power of the cores that each job holds, W."""
        peaks = np.zeros(len(self._result.state))
        np.maximum.at(peaks, self._held.job, self._own_watts)
        return peaks

    @cached_property
    def idle(self) -> Floats:
        """(4,) what no job pays."""
        return self.total - self.jobs.sum(axis=1)

    @property
    def idle_share(self) -> float:
        """Share of the energy that no job pays."""
        return float(self.idle[_ENERGY] / self.total[_ENERGY]) if self.total[_ENERGY] > 0 else 0.0

    def owners(self) -> Iterator[OwnerCosts]:
        """Yields the costs of each user, of each account, of no job and of all."""
        workload, held = self._result.workload, self.paying
        for by, column in (("user", "user"), ("account", "group")):
            numbers = getattr(workload, column)
            if not (numbers >= 0).any():
                continue
            names = workload.names.get(column, {})
            known, owner = np.unique(numbers[held], return_inverse=True)
            jobs = np.bincount(owner, minlength=len(known))
            amounts = np.array([np.bincount(owner, one[held], len(known)) for one in self.jobs])
            peaks = self._peaks(np.searchsorted(known, numbers[self._held.job]), len(known))
            for row, number in enumerate(known.tolist()):
                name = str(names.get(number, number)) if number >= 0 else ""
                yield OwnerCosts(by, name, int(jobs[row]), amounts[:, row], float(peaks[row]))
        yield OwnerCosts(IDLE, "", 0, self.idle, math.nan)
        yield OwnerCosts(TOTAL, "", len(held), self.total, float(self.watts.max(initial=0.0)))

    @property
    def lists_hours(self) -> bool:
        """Whether the run is not too long for a list of the costs of its hours."""
        return self.end <= MOST_HOURS * _HOUR

    def hours(self) -> Hours:
        """Costs by hour of the clock; hours of the run where its date is not known."""
        dates, end = self.facility.dates, self.end
        shift = 0.0
        if dates.begin is not None:
            offset = dates.local(0.0).utcoffset()
            shift = (dates.begin + (0.0 if offset is None else offset.total_seconds())) % _HOUR
        begins = np.append(0.0, np.arange(_HOUR - shift, end, _HOUR))
        begins = begins[(begins < end) | (begins == 0)]
        bounds = np.append(begins, max(end, 0.0))
        amounts = np.diff(_at(self._knots, self._meters, bounds), axis=1)
        times = distinct(self.times, begins)
        first = np.searchsorted(times, begins)
        peaks = np.maximum.reduceat(self.watts[np.searchsorted(self.times, times, side="right") - 1], first)
        seconds = np.diff(bounds)
        of_series = [
            np.full(len(begins), np.nan)
            if one is None
            else one.integral(begins, bounds[1:]) / np.where(seconds > 0, seconds, np.nan)
            for one in (self.facility.price, self.facility.carbon)
        ]
        texts = [
            "" if dates.begin is None else dates.local(begin).isoformat(timespec="seconds") for begin in begins.tolist()
        ]
        return Hours(begins, texts, amounts, peaks, *of_series)

    @cached_property
    def _held(self) -> Segments:
        """Allocation segments while the power of the machine counts."""
        result = self._result
        return result.segments.until(powered_until(result.finish_time, result.end_time, result.segments))

    @cached_property
    def _own_watts(self) -> Floats:
        """(A,) power of the cores of each segment, W."""
        used, watts = self._held.usage, self._result.platform.power
        drawn = used.cores * watts[used.processor] * PSTATES[COMPUTING].power
        return np.bincount(used.segment, drawn, len(self._held)).astype(np.float64) + self._held.more_watts

    def _peaks(self, group: Ints, groups: int) -> Floats:
        """(groups,) highest power of the cores that segments of each group, (A,), hold at one time, W."""
        held, peaks = self._held, np.zeros(groups)
        time, group = np.concatenate([held.begin, held.end]), np.tile(group, 2)
        change = np.concatenate([self._own_watts, -self._own_watts])
        # At one time ends come before begins.
        order = np.lexsort((change > 0, time, group))
        group, after = group[order], np.cumsum(change[order])
        # One sum serves all groups, because the changes of each add up to nothing.
        np.maximum.at(peaks, group, after)
        return np.asarray(np.round(peaks, 6))


def _by_frequency(held: Segments) -> tuple[Ints, Floats]:
    """Returns the frequency of each segment, (A,), and the W that cores of each processor draw more at each, (P, F)."""
    platform, table = held.platform, held.platform.frequencies
    if held.ghz is None or table is None:
        return np.zeros(len(held), np.int64), np.zeros((platform.n_processors, 1))
    ghz = np.where(np.isnan(held.ghz), table.nominal, held.ghz)
    more = table.more.T[platform.processor_type]
    return np.searchsorted(table.ghz, ghz).astype(np.int64), np.ascontiguousarray(more)


def _sums(parts: Floats) -> Floats:
    """(K, T + 1) sums of parts, (K, T), until each place."""
    return np.concatenate([np.zeros((len(parts), 1)), np.cumsum(parts, axis=1)], axis=1)


def _at(knots: Floats, sums: Floats, times: Floats) -> Floats:
    """(K, N) values at times of functions that are linear between knots, (K, T + 1)."""
    return np.array([np.interp(times, knots, one) for one in sums])
