"""Export of platforms as SimGrid XML, which Batsim reads.

SimGrid has hosts but no processors, so every core and every GPU is a host with the P-states of
:data:`hdsim.platform.power.PSTATES`; a GPU has the property ``device`` of value ``GPU`` besides. If nodes
have power states, each host has an equal share of its node's watts, and the further P-states below.
Batsim up to 4.2.1 numbers hosts by the lexicographic order of their names; zero padding makes that the core ids.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from itertools import permutations

import numpy as np
from lxml import etree

from hdsim.errors import PlatformError
from hdsim.platform.model import Platform
from hdsim.platform.node_state import NodeState
from hdsim.platform.power import COMPUTING, IDLE_PACKAGE, PSTATES
from hdsim.platform.schema import GPU

log = logging.getLogger(__name__)

#: The host of the scheduler, which runs no jobs.
MASTER_HOST = "master_host"

#: P-states behind those of :data:`hdsim.platform.power.PSTATES` where nodes have power states: idle in an idle
#: processor beside a busy one of the node, and as Batsim's sleep P-state with its two virtual ones off, going down and
#: booting.
IDLE_BESIDE, ASLEEP, SWITCHING_OFF, SWITCHING_ON = range(len(PSTATES), len(PSTATES) + 4)
#: Property of Batsim that names a sleep P-state and the virtual ones that a host passes through to enter and leave it.
SLEEP_PSTATES = "sleep_pstates"

_MOST_ELEMENTS = 500_000
_DOCTYPE = '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
# SimGrid needs a number for each link and a speed above 0 for each P-state.
_UNLIMITED_BANDWIDTH = 1e18
_SPEED_OF_IDLE = "0.001f"
_SPEED_OF_AN_INSTANT = 1e18


def to_xml(platform: Platform, *, pstates: bool = True, latencies: bool = True) -> bytes:
    """Returns a platform file for SimGrid 3.26 and later.

    Hosts are named ``cor_NNNN`` by core id. Each node has one full-duplex link, each cluster a router and one
    full-duplex link to all other clusters and to the zone of the master host (1 GFLOP/s, 0 W).

    Args:
        platform: The platform.
        pstates: Whether hosts have P-states and start idle; otherwise they run at full speed and have two powers, that
            of a core of an idle processor and that of a computing core.
        latencies: Whether links have latencies. Control messages of Batsim use the links as well, so that without
            latencies an event is reported at its own time.

    Raises:
        PlatformError: The platform has more cores, or pairs of clusters, than Batsim can take.
    """
    elements = platform.n_cores + platform.n_clusters**2
    if elements > _MOST_ELEMENTS:
        raise PlatformError(
            f"expected at most {_MOST_ELEMENTS:,} cores and pairs of clusters in SimGrid XML, got {elements:,}",
            where=platform.source,
        )
    if not pstates and has_node_states(platform):
        log.warning("%s: the power states of nodes are left out of the XML, which has no P-states", platform.source)
    clusters = range(platform.n_clusters)
    # SimGrid 3.32 and later refuse routes to a zone of routing "None".
    master = _element("zone", [_host(MASTER_HOST, "1Gf", "0.0:0.0")], id="master", routing="Full")
    latency = platform.global_latency if latencies else np.zeros(platform.n_clusters)
    links = [_link(f"glob_{k}", platform.global_bandwidth[k], latency[k]) for k in clusters]
    ends: list[tuple[str, str, str | None]] = [("master", MASTER_HOST, None)]
    ends += [(f"clu_{k}", f"rou_{k}", f"glob_{k}") for k in clusters]
    routes = [_zone_route(source, target) for source, target in permutations(ends, 2)]
    zones = [master, *(_cluster(platform, k, pstates, latencies) for k in clusters)]
    document = _element(
        "platform", [_element("zone", [*zones, *links, *routes], id="main", routing="Full")], version="4.1"
    )
    return etree.tostring(document, xml_declaration=True, encoding="utf-8", doctype=_DOCTYPE, pretty_print=True)


def has_node_states(platform: Platform) -> bool:
    """Returns whether nodes draw power besides their processors, or can be switched off."""
    return bool(platform.has_state_watts or platform.can_sleep.any())


def _cluster(platform: Platform, cluster: int, pstates: bool, latencies: bool) -> etree._Element:
    nodes = range(*platform.cluster_first_node[cluster : cluster + 2].tolist())
    bandwidth, latency = platform.local_bandwidth[cluster], platform.local_latency[cluster] if latencies else 0.0
    width = len(str(platform.n_cores - 1))
    hosts, host_links = [], []
    for node in nodes:
        for processor in range(*platform.node_first_processor[node : node + 2].tolist()):
            power = float(platform.power[processor])
            speeds, watts = _states(platform, processor)
            for core in range(*platform.processor_first_core[processor : processor + 2].tolist()):
                name = f"cor_{core:0{width}}"
                if pstates:
                    host = _host(name, speeds, watts, pstate=str(IDLE_PACKAGE))
                    if platform.can_sleep[node]:
                        value = f"{ASLEEP}:{SWITCHING_OFF}:{SWITCHING_ON}"
                        host.append(_element("prop", id=SLEEP_PSTATES, value=value))
                else:
                    # Powers of an idle and of a busy host.
                    host = _host(
                        name, speeds.split(",")[0], f"{_watts(power, IDLE_PACKAGE)}:{_watts(power, COMPUTING)}"
                    )
                if platform.is_gpu[processor]:
                    host.append(_element("prop", id="device", value=GPU))
                hosts.append(host)
                host_links.append(_element("host_link", id=name, up=f"nod_{node}_UP", down=f"nod_{node}_DOWN"))
    links = [_link(f"nod_{node}", bandwidth, latency) for node in nodes]
    router = _element("router", id=f"rou_{cluster}")
    # Routing "Cluster" needs memory in proportion to the hosts, "Full" to their pairs.
    return _element("zone", [router, *links, *hosts, *host_links], id=f"clu_{cluster}", routing="Cluster")


def _states(platform: Platform, processor: int) -> tuple[str, str]:
    """Returns the speeds and the powers of the P-states of a processor's cores."""
    node = int(platform.processor_node[processor])
    gflops, peak = float(platform.gflops[processor]), float(platform.power[processor])
    speeds = [f"{_decimals(gflops * state.speed)}Gf" if state.speed else _SPEED_OF_IDLE for state in PSTATES]
    watts = [peak * state.power for state in PSTATES]
    if has_node_states(platform):
        hosts = int(platform.node_first_core[node + 1] - platform.node_first_core[node])
        share = np.nan_to_num(platform.state_watts[:, node]) / hosts
        speeds.append(_SPEED_OF_IDLE)
        watts.append(watts[IDLE_PACKAGE])
        watts = [power + share[NodeState.ON] for power in watts]
        watts[IDLE_PACKAGE] += share[NodeState.IDLE] - share[NodeState.ON]
        if platform.can_sleep[node]:
            changes = [NodeState.GOING_DOWN, NodeState.BOOTING]
            speeds += [_SPEED_OF_IDLE, *map(_speed_of_change, platform.state_seconds[changes, node].tolist())]
            watts += [share[NodeState.OFF], *share[changes]]
    # Power of an idle and of a loaded host: equal, since only the P-state matters here.
    return ", ".join(speeds), ", ".join(f"{_decimals(power)}:{_decimals(power)}" for power in watts)


def _speed_of_change(seconds: float) -> str:
    """Returns the speed of a virtual P-state, in which Batsim computes one flop."""
    return f"{1 / seconds if seconds else _SPEED_OF_AN_INSTANT!r}f"


def _watts(peak: float, state: int) -> str:
    return _decimals(peak * PSTATES[state].power)


def _host(name: str, speeds: str, watts: str, **attributes: str) -> etree._Element:
    return _element(
        "host", [_element("prop", id="wattage_per_state", value=watts)], id=name, speed=speeds, **attributes
    )


def _link(name: str, bandwidth: float, latency: float) -> etree._Element:
    rate = f"{min(float(bandwidth), _UNLIMITED_BANDWIDTH)!r}Bps"
    return _element("link", id=name, sharing_policy="SPLITDUPLEX", bandwidth=rate, latency=f"{float(latency)!r}s")


def _zone_route(source: tuple[str, str, str | None], target: tuple[str, str, str | None]) -> etree._Element:
    """Returns the one-way route between two zones, each given by name, gateway and optional link."""
    (src, gw_src, up), (dst, gw_dst, down) = source, target
    passed = [
        _element("link_ctn", id=link, direction=direction) for link, direction in ((up, "UP"), (down, "DOWN")) if link
    ]
    return _element("zoneRoute", passed, src=src, dst=dst, gw_src=gw_src, gw_dst=gw_dst, symmetrical="NO")


def _element(tag: str, children: Iterable[etree._Element] = (), **attributes: str) -> etree._Element:
    element = etree.Element(tag, attributes)
    element.extend(children)
    return element


def _decimals(value: float) -> str:
    """Formats a number with three decimals, or with as many as it needs."""
    text = f"{value:.3f}"
    return text if math.isclose(float(text), value, rel_tol=1e-12) else f"{value:.12g}"
