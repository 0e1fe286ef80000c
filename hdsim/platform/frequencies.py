"""Operating points of processors: frequencies and the watts of a core at each, and what a job loses at a lower one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hdsim.util.arrays import read_only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hdsim.util.arrays import Floats


class OperatingPoint(NamedTuple):
    """A frequency of a processor type.

    Attributes:
        ghz: The frequency.
        static_watts: Power of a computing core whatever it does, leakage, W.
        dynamic_watts: Power of a computing core that comes of its switching, W.
    """

    ghz: float
    static_watts: float
    dynamic_watts: float

    @property
    def watts(self) -> float:
        """Power of a computing core, W."""
        return self.static_watts + self.dynamic_watts


class FrequencyTable:
    """The frequencies that all cores of a platform have, GPUs left out.

    Attributes:
        nominal: GHz of P-state 0.
        ghz: (F,) frequencies, ascending, the nominal one among them.
        more: (F, T) W that a computing core of each processor type draws more than at the nominal frequency, below 0 at
            most lower frequencies; 0 for GPUs.

    Args:
        nominal: See the attributes.
        ghz: See the attributes.
        more: See the attributes.
    """

    def __init__(self, nominal: float, ghz: Floats, more: Floats) -> None:
        self.nominal, self.ghz, self.more = nominal, read_only(ghz), read_only(more)

    def index(self, ghz: float) -> int:
        """Returns the place of a frequency, -1 if it is none of them."""
        place = int(np.searchsorted(self.ghz, ghz))
        return place if place < len(self.ghz) and self.ghz[place] == ghz else -1

    def more_watts(self, ghz: float) -> Floats:
        """Returns the (T,) entries of `more` for a frequency, all 0 for NaN, the nominal one."""
        return self.more[self.index(self.nominal if math.isnan(ghz) else ghz)]

    def below(self, ghz: float) -> list[float]:
        """Returns the frequencies below one, the highest first."""
        return self.ghz[self.ghz < ghz][::-1].tolist()

    def __str__(self) -> str:
        """The frequencies as words of a message."""
        return ", ".join(f"{ghz:g}" for ghz in self.ghz.tolist())


def slowdown(frequency_bound: Any, nominal: float, ghz: float) -> Any:
    """Returns the run time at a frequency over that at the nominal one, without contention.

    The part b of a run time that is bound by the frequency is stretched, the rest (memory, devices) is not:
    b x nominal / ghz + 1 - b, after Hsu and Kremer (PLDI 2003) and Etinski, Corbalan, Labarta and Valero (2010).

    Args:
        frequency_bound: b, from 0 to 1; a number or an array.
        nominal: Nominal frequency, GHz.
        ghz: The frequency, GHz.
    """
    return frequency_bound * (nominal / ghz) + (1.0 - frequency_bound)


def shared_frequencies(
    clocks: Sequence[float], points: Sequence[tuple[OperatingPoint, ...]], types: Sequence[int]
) -> FrequencyTable | None:
    """Returns the frequencies that some processor types share; None if one of them has none, or others.

    Args:
        clocks: (T,) nominal frequency of each processor type, GHz.
        points: (T,) operating points of each, ascending.
        types: Indices of the types.
    """
    nominal, ghz = clocks[types[0]], tuple(point.ghz for point in points[types[0]])
    if not ghz or any((clocks[one], tuple(point.ghz for point in points[one])) != (nominal, ghz) for one in types):
        return None
    more = np.zeros((len(ghz), len(points)))
    for one in types:
        watts = np.array([point.watts for point in points[one]])
        more[:, one] = watts - watts[ghz.index(nominal)]
    return FrequencyTable(nominal, np.array(ghz), more)
