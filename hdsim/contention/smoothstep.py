"""Model V1 of IRMaSim: speed as a function of total demand, own demand and number of busy cores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.contention import CoreContention
from hdsim.contention.kernels.speeds import SMOOTHSTEP, smoothstep
from hdsim.errors import ConfigError, HdsimError, PlatformError, nearest
from hdsim.platform.schema import GPU
from hdsim.util.arrays import Floats, Ints
from hdsim.util.rules import is_finite

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Key of the constants in a processor type.
KEY = "smoothstep"
CONSTANTS = ("b", "c", "da", "db", "dc", "dd")
#: GB/s of each unit. Constants may also be shares of the bandwidth of the processor.
UNITS = {"GB/s": 1.0, "MB/s": 1e-3, "B/s": 1e-9}
OWN_BANDWIDTH = "mem_bw"


class Smoothstep(CoreContention):
    """IRMaSim's curve with constants per processor type.

    Let x be the total demand of the busy cores of a processor, y the demand of one core and n the number of other busy
    cores. The speed of the core is 1 if x < c, otherwise max(b (x - c) + 1, D) with D = S(u) r + 1 / (1 + 0.6 n),
    r = 0.6 n / (1 + 0.6 n), u = (y - (da - n db)) / (dc - n dd); S falls smoothly from 1 at u <= 0 to 0 at u >= 1.
    As b < 0 this is the same as D beyond x = (D + b c - 1) / b.

    Args:
        platform: The platform.
        constants: Default constants b, c, da, db, dc, dd and their ``unit`` for processor types without the key
            ``smoothstep``; None: every type must have the key.
        digits: Decimal places of speeds, None = not rounded.

    Raises:
        PlatformError: Constants of a processor type are missing or out of range; all faults are listed.
        ConfigError: `constants` or `digits` are not allowed.
    """

    kernel = SMOOTHSTEP

    def __init__(self, platform: Platform, constants: Mapping[str, Any] | None = None, digits: int | None = 9) -> None:
        super().__init__(platform)
        if digits is not None and (type(digits) is not int or not 1 <= digits <= 15):
            raise ConfigError(
                f"expected a whole number from 1 to 15 or null, got {digits!r}", where="contention.digits"
            )
        faults: dict[str, HdsimError] = {}
        error: type[HdsimError]
        by_type = np.full((len(CONSTANTS), len(platform.processor_type_names)), np.nan)
        for index, (name, spec) in enumerate(
            zip(platform.processor_type_names, platform.processor_type_specs, strict=True)
        ):
            if platform.processor_kind[index] == GPU:
                continue
            where = "contention.constants"
            given, error = constants, ConfigError
            if KEY in spec or constants is None:
                where = f"{platform.source}: types.processor.{name}.{KEY}"
                given, error = spec.get(KEY), PlatformError
            found = [error(message, where=where) for message in _faults(given, spec["cores"])]
            faults.update((str(fault), fault) for fault in found)
            if given is not None and not found:
                by_type[:, index] = _in_gigabytes(given, spec.get("mem_bw") or math.inf)
        if faults:
            listed = list(faults.values())
            raise type(listed[0]).many(listed)
        scale = np.full(platform.n_processors, 0.0 if digits is None else 10.0**digits)
        self.parameters = np.ascontiguousarray(np.vstack([by_type[:, platform.processor_type], scale]))

    def applies(self, workload: Workload) -> bool:
        return bool((workload.memory_bandwidth > 0).any())

    def alike(self) -> Ints:
        return self.platform.processor_type.astype(np.int64)

    def core_speeds(self, processors: NDArray[np.integer], first: Ints, demands: Floats) -> Floats:
        speeds = np.empty(len(demands))
        smoothstep(self.parameters, np.asarray(processors, np.int64), first, demands, speeds)
        return speeds


def _faults(constants: Any, cores: int) -> Iterator[str]:
    """Yields the faults of the constants of a processor of some cores."""
    if not isinstance(constants, Mapping):
        got = "none" if constants is None else repr(constants)
        yield f"expected the constants {', '.join(CONSTANTS)} of contention 'smoothstep', got {got}"
        return
    missing = [key for key in CONSTANTS if constants.get(key) is None]
    if missing:
        yield f"expected the constants {', '.join(CONSTANTS)}, got none for {', '.join(missing)}"
    allowed = (*CONSTANTS, "unit")
    for key, value in constants.items():
        if key not in allowed:
            yield f"unknown key '{key}'{nearest(key, allowed)}; allowed: {', '.join(allowed)}"
        elif key == "unit":
            units = (*UNITS, OWN_BANDWIDTH)
            if value not in units:
                yield f"unit: expected one of {', '.join(units)}, got {value!r}"
        elif value is not None and not is_finite(value):
            yield f"{key}: expected a finite number, got {value!r}"
    if missing or not all(is_finite(constants[key]) for key in CONSTANTS):
        return
    b, c, _, _, dc, dd = (constants[key] for key in CONSTANTS)
    if not b < 0:
        yield f"b: expected a number below 0, got {b!r}"
    if not c >= 0:
        yield f"c: expected a number of at least 0, got {c!r}"
    for others in (0, cores - 1):
        if not dc - others * dd > 0:
            yield (
                f"dc, dd: expected dc - n dd above 0 for n from 0 to {cores - 1} on a processor of {cores} cores, "
                f"got {dc - others * dd:g} for n = {others}"
            )
            return


def _in_gigabytes(constants: Mapping[str, Any], bandwidth: float) -> list[float]:
    """Returns the constants in GB/s for a processor of some bandwidth in GB/s."""
    unit = constants.get("unit", "GB/s")
    scale = bandwidth if unit == OWN_BANDWIDTH else UNITS[unit]
    # 0 stays 0 if the bandwidth is unlimited.
    values = [float(constants[key]) for key in CONSTANTS]
    return [values[0] / scale, *(value * scale if value else 0.0 for value in values[1:])]
