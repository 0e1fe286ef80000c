"""The hosts of a platform as Batsim numbers and describes them, from SimGrid XML or from hdsim's own format.

Supported XML: ``host`` and ``cluster`` elements of any zones, with speeds for each P-state, and their properties. Links
and routes say nothing about jobs without communication and are not read. The property ``sleep_pstates`` lists Batsim's
sleep P-states, each as ``SLEEP:OFF:ON`` with the virtual P-states that a host passes through, in which it computes one
flop (https://github.com/oar-team/batsim/blob/v4.2.1/src/machines.cpp).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdsim.errors import DecisionError, PlatformError, require
from hdsim.platform.model import Platform

if TYPE_CHECKING:
    from lxml import etree

#: Property with the power of each P-state, and its name before SimGrid 3.26.
_WATTAGE = ("wattage_per_state", "watt_per_state")
_SPEED = re.compile(r"\s*([0-9.eE+-]+?)\s*([kMGTPE]?)f?\s*")
_FACTORS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_RADICAL = re.compile(r"(\d+)(?:-(\d+))?")


#: Kinds of P-states: in one a host computes, sleeps, or changes from one of these to the other.
COMPUTATION, SLEEP, VIRTUAL = range(3)
#: Rows of `Hosts.via`.
OFF, ON = range(2)
#: Decimals of the seconds that a change takes, SimGrid's precision.
_DIGITS = 9


@dataclass(frozen=True, eq=False)
class Hosts:
    """H hosts with up to S P-states."""

    platform: Platform  # the same hosts as cores of an hdsim platform, which has their speeds in P-state 0
    names: tuple[str, ...]
    properties: tuple[Mapping[str, str], ...] = field(repr=False)  # (H,) properties of each host, as text
    #: (H,) properties of the zone of each host, as text.
    zone_properties: tuple[Mapping[str, str], ...] = field(repr=False)
    n_states: NDArray[np.int64] = field(repr=False)  # (H,) P-states of each host
    initial: NDArray[np.int64] = field(repr=False)  # (H,) P-state of each host at time 0
    #: (H, S) speed as a share of that in P-state 0, NaN where there is no such state.
    speed: NDArray[np.float64] = field(repr=False)
    #: (3, H, S) power in W of an idle host, of one with the least load and of one with full load; None when a
    #: host does not say.
    watts: NDArray[np.float64] | None = field(repr=False)
    kind: NDArray[np.int64] = field(repr=False)  # (H, S) COMPUTATION, SLEEP or VIRTUAL
    #: (2, H, S) virtual P-state by which a host enters (OFF) and leaves (ON) a sleep P-state, -1 for others.
    via: NDArray[np.int64] = field(repr=False)
    seconds: NDArray[np.float64] = field(repr=False)  # (H, S) time of one flop, seconds
    ruled: bool = False  # hosts follow hdsim's own rule of P-states until a scheduler sets them (hdsim's own format)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class _Host:
    name: str
    speeds: tuple[float, ...]  # flop/s
    initial: int
    properties: Mapping[str, str]
    zone_properties: Mapping[str, str]


def load_hosts(path: str | Path, *, master: str | None = None) -> Hosts:
    """Reads the hosts of SimGrid XML, or of hdsim's JSON; `master` names the one that runs the scheduler and no job.

    Raises:
        PlatformError: The file cannot be read, or says something that is not supported.
    """
    from hdsim.platform.load import load_platform

    path = Path(path)
    if path.suffix.lower() == ".xml":
        try:
            data = path.read_bytes()
        except OSError as error:
            raise PlatformError(f"expected a readable platform file: {error.strerror}", where=str(path)) from None
        return read_xml(data, str(path), master=master)
    return hosts_of(load_platform(path))


def hosts_of(platform: Platform) -> Hosts:
    """Returns the cores of a platform as hosts, with the names and properties of its SimGrid XML."""
    from hdsim.platform.simgrid import to_xml

    return replace(read_xml(to_xml(platform), platform.source), platform=platform, ruled=True)


def read_xml(data: bytes, where: str, *, master: str | None = None) -> Hosts:
    """Reads the hosts of a SimGrid platform, in lexicographic order of their names as Batsim up to 4.2.1 numbers them.

    `where` is its origin for error messages, `master` as for :func:`load_hosts`, by default SimGrid's ``master_host``.

    Raises:
        PlatformError: It is no such platform.
    """
    from lxml import etree

    from hdsim.platform.simgrid import MASTER_HOST

    parser = etree.XMLParser(load_dtd=False, no_network=True, resolve_entities=False, huge_tree=True)
    try:
        # SimGrid takes blank lines before the declaration, XML does not; lines keep their numbers.
        root = etree.fromstring(re.sub(rb"\A(\s+)(<\?xml.*?\?>)", rb"\2\1", data), parser)
    except etree.XMLSyntaxError as error:
        raise PlatformError(f"expected XML: {error.msg}", where=where) from None
    if root.tag != "platform":
        raise PlatformError(f"expected the element 'platform', got '{root.tag}'", where=where)
    every = sorted(_hosts(root, where), key=lambda host: host.name)
    for one, other in pairwise(every):
        if one.name == other.name:
            raise PlatformError(f"expected host names to differ, got '{one.name}' twice", where=where)
    master = master or MASTER_HOST
    hosts = [host for host in every if host.name != master and "master" not in _roles(host)]
    if not hosts:
        raise PlatformError(f"expected at least one host besides the master '{master}', got {len(every)}", where=where)
    for host in hosts:
        if "storage" in _roles(host):
            raise PlatformError("expected computing hosts, got one for storage", where=f"{where}: {host.name}")
    n_states = np.array([len(host.speeds) for host in hosts])
    speed = np.full((len(hosts), n_states.max()), math.nan)
    watts = np.full((3, *speed.shape), math.nan)
    kind, via = np.full(speed.shape, COMPUTATION), np.full((2, *speed.shape), -1)
    for row, host in enumerate(hosts):
        speed[row, : n_states[row]] = host.speeds
        _read_watts(host, watts[:, row, : n_states[row]], f"{where}: {host.name}")
        _read_sleep(host, kind[row, : n_states[row]], via[:, row, : n_states[row]], f"{where}: {host.name}")
    platform = _platform(speed[:, 0] / _FACTORS["G"], watts[2, :, 0], where)
    missing = np.isnan(watts) & ~np.isnan(speed)
    return Hosts(
        platform=platform,
        names=tuple(host.name for host in hosts),
        properties=tuple({"role": "", **host.properties} for host in hosts),
        zone_properties=tuple(host.zone_properties for host in hosts),
        n_states=n_states,
        initial=np.array([host.initial for host in hosts]),
        speed=speed / speed[:, :1],
        watts=None if missing.any() else watts,
        kind=kind,
        via=via,
        seconds=np.round(1 / speed, _DIGITS),
    )


def _roles(host: _Host) -> list[str]:
    return host.properties.get("role", "").split(",")


def _hosts(root: etree._Element, where: str) -> Iterator[_Host]:
    for element in root.iter("host", "cluster"):
        place = f"{where}:{element.sourceline}"
        attributes = {str(key): str(value) for key, value in element.attrib.items()}
        if attributes.get("core", "1") != "1":
            raise PlatformError(f"core: expected 1, got {attributes['core']}; write one host a core", where=place)
        speeds = tuple(_speed(text, place) for text in attributes.get("speed", "").split(","))
        try:
            initial = int(attributes.get("pstate", "0"))
        except ValueError:
            initial = -1
        if not 0 <= initial < len(speeds):
            raise PlatformError(f"pstate: expected 0 to {len(speeds) - 1}, got '{attributes['pstate']}'", where=place)
        zone = element.getparent()
        zone_properties = {} if zone is None else _properties(zone)
        for name in _names(element, place):
            yield _Host(name, speeds, initial, _properties(element), zone_properties)


def _names(element: etree._Element, where: str) -> Iterator[str]:
    """Yields the names of a host or of the hosts of a cluster."""
    if element.tag == "host":
        yield element.get("id", "")
        return
    prefix, suffix, radical = (element.get(key, "") for key in ("prefix", "suffix", "radical"))
    for part in radical.split(","):
        matched = _RADICAL.fullmatch(part.strip())
        if not matched:
            raise PlatformError(f"radical: expected numbers such as '0-255', got '{radical}'", where=where)
        first, last = int(matched[1]), int(matched[2] or matched[1])
        yield from (f"{prefix}{number}{suffix}" for number in range(first, last + 1))


def _properties(element: etree._Element) -> dict[str, str]:
    return {prop.get("id", ""): prop.get("value", "") for prop in element.findall("prop")}


def _speed(text: str, where: str) -> float:
    """Returns a speed such as ``1Gf`` in flop/s."""
    matched = _SPEED.fullmatch(text)
    try:
        speed = float(matched[1]) * _FACTORS[matched[2]] if matched else math.nan
    except ValueError:
        speed = math.nan
    if not (speed > 0 and math.isfinite(speed)):
        raise PlatformError(f"speed: expected flop/s above 0 such as '1Gf', got '{text.strip()}'", where=where)
    return speed


def _read_watts(host: _Host, watts: NDArray[np.float64], where: str) -> None:
    """Fills (3, S) with the powers of a host: ``idle:all`` or ``idle:least:all`` for each P-state."""
    text = next((host.properties[key] for key in _WATTAGE if key in host.properties), None)
    if text is None:
        return
    states = text.split(",")
    if len(states) != watts.shape[1]:
        raise PlatformError(f"{_WATTAGE[0]}: expected {watts.shape[1]} P-states, got '{text}'", where=where)
    for state, powers in enumerate(states):
        try:
            idle, *more = (float(power) for power in powers.split(":"))
        except ValueError:
            more = []
        if len(more) not in (1, 2) or not all(map(math.isfinite, more)):
            raise PlatformError(f"{_WATTAGE[0]}: expected W as in 'idle:all', got '{powers.strip()}'", where=where)
        watts[:, state] = idle, more[0] if len(more) == 2 else idle, more[-1]


def _read_sleep(host: _Host, kind: NDArray[np.int64], via: NDArray[np.int64], where: str) -> None:
    """Fills the (S,) kinds of a host's P-states and the (2, S) virtual ones of its sleep P-states."""
    from hdsim.platform.simgrid import SLEEP_PSTATES

    where = f"{where}: {SLEEP_PSTATES}"
    text = host.properties.get(SLEEP_PSTATES)
    for part in [] if text is None else text.split(","):
        numbers = [number.strip() for number in part.split(":")]
        if len(numbers) != 3 or not all(each.isdecimal() and int(each) < len(kind) for each in numbers):
            raise PlatformError(
                f"expected P-states 0 to {len(kind) - 1} as in 'SLEEP:OFF:ON', got '{part.strip()}'", where=where
            )
        sleep, *virtual = map(int, numbers)
        if kind[sleep] != COMPUTATION or sleep in virtual or any(kind[each] == SLEEP for each in virtual):
            raise PlatformError(f"expected sleep P-states that differ from all others, got '{text}'", where=where)
        kind[sleep], kind[virtual], via[:, sleep] = SLEEP, VIRTUAL, virtual
    if kind[host.initial] == VIRTUAL:
        raise PlatformError(f"pstate: expected no virtual P-state, got {host.initial}", where=where)
    if not (kind == COMPUTATION).any():
        raise PlatformError(f"expected a P-state in which the host computes, got none of {len(kind)}", where=where)


def _platform(gflops: NDArray[np.float64], watts: NDArray[np.float64], where: str) -> Platform:
    """Returns a platform with one core for each host."""
    processors: dict[str, dict[str, Any]] = {}
    nodes = []
    for (speed, power), group in groupby(zip(gflops.tolist(), np.nan_to_num(watts).tolist(), strict=True)):
        name = f"{speed:.12g}Gf_{power:.12g}W"
        processors[name] = {"cores": 1, "clock_rate": speed, "dpflops_per_cycle": 1, "power": power}
        nodes.append({"type": name, "number": sum(1 for _ in group)})
    types = {
        "node": {name: {"processors": [{"type": name, "number": 1}]} for name in processors},
        "processor": processors,
    }
    document = {"name": Path(where).stem, "clusters": [{"id": "hosts", "nodes": nodes}], "types": types}
    return Platform.from_dict(document, where)


class HostCores:
    """Idle hosts of (H,) relative speeds; a placement is the ascending list of the hosts that a scheduler has named."""

    def __init__(self, speed: NDArray[np.float64]) -> None:
        self._speed: list[float] = speed.tolist()
        self._idle = set(range(len(speed)))

    @property
    def n_idle(self) -> int:
        """Idle hosts."""
        return len(self._idle)

    def busy(self, hosts: Sequence[int]) -> list[int]:
        """Returns those of some hosts that serve a job, ascending."""
        return sorted(set(hosts) - self._idle)

    def placement_of(self, hosts: Sequence[int]) -> list[int]:
        """The hosts, ascending."""
        return sorted(hosts)

    def allocate(self, job: int, hosts: list[int]) -> None:
        """Makes hosts busy; DecisionError if one is already."""
        if not self._idle.issuperset(hosts):
            raise DecisionError(f"expected idle cores, got busy {self.busy(hosts)}")
        self._idle.difference_update(hosts)

    def release(self, job: int, hosts: list[int]) -> None:
        """Makes hosts idle again."""
        self._idle.update(hosts)

    def ids_of(self, hosts: list[int]) -> list[int]:
        """Core ids of a placement, which it is."""
        return hosts

    def slowest(self, hosts: list[int]) -> float:
        """Relative speed of the slowest of the hosts."""
        return min([self._speed[host] for host in hosts])

    def check(self, running: Sequence[list[int]]) -> None:
        """Asserts that every host is either idle or held by exactly one running job."""
        held = [host for hosts in running for host in hosts]
        require(sorted([*held, *self._idle]) == list(range(len(self._speed))), "a host is lost or allocated twice")
