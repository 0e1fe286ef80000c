from __future__ import annotations

import importlib.util
import json
import math
import shutil
import subprocess
import sys

import pytest
from lxml import etree
from tiers import ci

from hdsim.platform.load import load_platform
from hdsim.platform.model import Platform
from hdsim.platform.power import COMPUTING, IDLE_PACKAGE, PSTATES
from hdsim.platform.simgrid import MASTER_HOST, to_xml

SHIPPED = ("teaching", "accelerated", "learning", "homogeneous_256", "das2", "gaia", "pik", "ricc", "mc2")

# Run by an interpreter that has SimGrid. Sends 1 GB between pairs of hosts, computes 1 Gflop in each P-state of the
# first core, and reports what SimGrid made of the file.
PROBE = """
import json, sys
from simgrid import Actor, Comm, Engine, Host, this_actor

settings = ["model:CM02", "crosstraffic:0", "latency-factor:1", "bandwidth-factor:1", "weight-S:0", "TCP-gamma:0"]
engine = Engine(["probe", "--log=root.thres:error", *("--cfg=network/" + setting for setting in settings)])
engine.load_platform(sys.argv[1])
pairs = json.loads(sys.argv[2])
found = {"sent": [], "computed": []}
clock = lambda: Engine.clock() if callable(Engine.clock) else Engine.clock
names = [host.name for host in engine.all_hosts]
found["hosts"] = names
found["speeds"] = [[h.pstate_speed(p) for p in range(h.pstate_count)] for h in engine.all_hosts]
found["pstates"] = [h.pstate for h in engine.all_hosts]

def actor():
    for source, target in pairs:
        start = clock()
        Comm.sendto(Host.by_name(source), Host.by_name(target), 10**9)
        found["sent"].append(clock() - start)
    for pstate in (0, 1):
        this_actor.get_host().pstate = pstate
        start = clock()
        this_actor.execute(1e9)
        found["computed"].append(clock() - start)

first = min(name for name in names if name != "master_host")
Actor.create("probe", Host.by_name(first), actor)
engine.run()
print(json.dumps(found))
"""


def hosts(xml):
    found = etree.fromstring(xml).iter("host")
    return {host.get("id"): host for host in found}


def cores(xml):
    return {name: host for name, host in hosts(xml).items() if name != MASTER_HOST}


def watts(host):
    return [[float(value) for value in pair.split(":")] for pair in host.find("prop").get("value").split(",")]


def speeds(host):
    """GFLOP/s of each P-state."""
    units = {"Gf": 1.0, "f": 1e-9}
    texts = [text.strip() for text in host.get("speed").split(",")]
    return [float(text.rstrip("Gf")) * units["Gf" if text.endswith("Gf") else "f"] for text in texts]


def interpreter():
    """The Python that has SimGrid."""
    return sys.executable if importlib.util.find_spec("simgrid") else shutil.which("python3", path="/usr/bin")


def simgrid(path, pairs=()):
    done = subprocess.run(
        [interpreter(), "-c", PROBE, str(path), json.dumps(pairs)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["learning", "gaia", "mc2"])
def test_the_lexicographic_order_of_hosts_is_that_of_core_ids(root, name):
    platform = load_platform(root / "platforms" / f"{name}.json")
    found = cores(to_xml(platform))
    assert list(found) == sorted(found)
    assert len(found) == platform.n_cores
    assert [speeds(host)[0] for host in found.values()] == pytest.approx(platform.core_gflops().tolist(), rel=1e-11)


def test_a_core_has_the_p_states_of_the_one_table():
    platform = Platform.homogeneous(nodes=1, cores_per_node=2, gflops_per_core=2.93, power_per_core=71.25 / 6)
    for host in cores(to_xml(platform)).values():
        assert host.get("pstate") == "3"
        assert speeds(host) == pytest.approx([2.93 * state.speed or 1e-12 for state in PSTATES])
        expected = [71.25 / 6 * state.power for state in PSTATES]
        assert watts(host) == [pytest.approx([power, power], rel=1e-11) for power in expected]


def test_a_core_without_p_states_is_idle_or_computes():
    platform = Platform.homogeneous(nodes=1, cores_per_node=2, gflops_per_core=2.93, power_per_core=8)
    for host in cores(to_xml(platform, pstates=False)).values():
        assert host.get("pstate") is None
        assert speeds(host) == [2.93]
        assert watts(host) == [[8 * PSTATES[IDLE_PACKAGE].power, 8 * PSTATES[COMPUTING].power]]


def test_the_file_that_batsim_accepted_has_the_same_hosts(root, shared_data):
    theirs = hosts((shared_data / "batsim_runs" / "transcript_inputs" / "learning.xml").read_bytes())
    ours = hosts(to_xml(load_platform(root / "platforms" / "learning.json")))
    assert list(ours) == list(theirs)
    for name, host in ours.items():
        assert host.get("speed") == theirs[name].get("speed")
        assert host.get("pstate") == theirs[name].get("pstate")
        assert watts(host) == watts(theirs[name])


def test_the_master_host_draws_nothing_in_a_zone_of_its_own():
    tree = etree.fromstring(to_xml(Platform.homogeneous(nodes=2, cores_per_node=2)))
    zone = tree.find("./zone/zone[@id='master']")
    assert [host.get("id") for host in zone.iter("host")] == [MASTER_HOST]
    assert zone.find("host").get("speed") == "1Gf"
    assert watts(zone.find("host")) == [[0.0, 0.0]]
    assert zone.get("routing") != "None"


def test_links_carry_bandwidth_and_latency_of_the_platform():
    platform = Platform.homogeneous(nodes=3, cores_per_node=2, bandwidth="10Gbps", latency="5us")
    links = list(etree.fromstring(to_xml(platform)).iter("link"))
    assert len(links) == 3 + 1
    for link in links:
        assert link.get("sharing_policy") == "SPLITDUPLEX"
        assert float(link.get("bandwidth").removesuffix("Bps")) == 1.25e9
        assert float(link.get("latency").removesuffix("s")) == 5e-6


def test_an_unlimited_link_has_a_finite_bandwidth():
    for link in etree.fromstring(to_xml(Platform.homogeneous(nodes=1, cores_per_node=2))).iter("link"):
        assert math.isfinite(float(link.get("bandwidth").removesuffix("Bps")))


@pytest.mark.requires("simgrid")
@pytest.mark.parametrize("name", [name if name in ("teaching", "gaia") else ci(name)[0] for name in SHIPPED])
def test_simgrid_loads_every_shipped_platform(root, tmp_path, name):
    platform = load_platform(root / "platforms" / f"{name}.json")
    path = tmp_path / "platform.xml"
    path.write_bytes(to_xml(platform))
    names = list(cores(path.read_bytes()))
    ends = [names[0], names[-1], MASTER_HOST]
    found = simgrid(path, [(a, b) for a in ends for b in ends if a != b])

    assert sorted(found["hosts"]) == sorted([*names, MASTER_HOST])
    by_name = dict(zip(found["hosts"], zip(found["speeds"], found["pstates"], strict=True), strict=True))
    gflops = platform.core_gflops()
    for core in {0, platform.n_cores // 2, platform.n_cores - 1}:
        expected = [gflops[core] * 1e9, 0.75 * gflops[core] * 1e9, 0.001, 0.001]
        assert by_name[names[core]] == (pytest.approx(expected), 3)
    assert found["computed"] == pytest.approx([1 / gflops[0], 1 / (0.75 * gflops[0])])
    assert len(found["sent"]) == 6


@pytest.mark.requires("simgrid")
def test_a_message_in_simgrid_takes_the_time_of_the_links_on_its_way(tmp_path):
    document = {
        "clusters": [
            {"id": "a", "nodes": [{"type": "n", "number": 2}], "local_links": {"type": "fast", "latency": "1ms"}},
            {"id": "b", "nodes": [{"type": "n", "number": 1}], "local_links": {"type": "fast", "latency": "1ms"}},
        ],
        "global_links": {"type": "slow", "latency": "100ms"},
        "types": {
            "network": {"fast": {"bandwidth": "1GBps"}, "slow": {"bandwidth": "100MBps"}},
            "node": {"n": {"processors": [{"type": "p", "number": 1}]}},
            "processor": {"p": {"cores": 2, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 1}},
        },
    }
    path = tmp_path / "platform.xml"
    path.write_bytes(to_xml(Platform.from_dict(document)))
    found = simgrid(path, [("cor_0", "cor_2"), ("cor_1", "cor_5"), ("cor_4", MASTER_HOST)])
    # 1 GB over two node links; over two node links and two global links; over a node link and a global link.
    assert found["sent"] == pytest.approx([1 + 0.002, 10 + 0.202, 10 + 0.101], rel=1e-6)
