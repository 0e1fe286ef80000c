"""Frequencies against SimGrid's P-states and host energy plug-in, reached from its Python module by C functions."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiers import ci

from hdsim import Agent, Platform, Workload, simulate
from hdsim.cluster.state import Cluster

# Run by an interpreter that has SimGrid: nodes of one core serve jobs in order of their arrival. A node has one P-state
# for each frequency, in which a core draws the same whether it computes or waits for memory, and the first one while
# idle, since SimGrid counts a host in P0 until its first change.
PROBE = """
import ctypes, glob, json, sys
from simgrid import Actor, Engine, Host, this_actor

library = ctypes.CDLL(sorted(glob.glob("/usr/lib/*/libsimgrid.so*"))[0])
library.sg_host_energy_plugin_init()
library.sg_host_by_name.restype = ctypes.c_void_p
library.sg_host_by_name.argtypes = [ctypes.c_char_p]
library.sg_host_get_consumed_energy.restype = ctypes.c_double
library.sg_host_get_consumed_energy.argtypes = [ctypes.c_void_p]
case = json.loads(sys.argv[2])
engine = Engine(["probe", "--log=root.thres:error"])
engine.load_platform(sys.argv[1])
clock = lambda: Engine.clock() if callable(Engine.clock) else Engine.clock
names = ["n%d" % node for node in range(case["nodes"])]
where, waiting = {}, list(range(len(case["jobs"])))
found = {"start": [0.0] * len(waiting), "end": [0.0] * len(waiting), "joules": 0.0}

def node():
    host = this_actor.get_host()
    while waiting:
        job = waiting.pop(0)
        arrival, flops, rest, pstate = case["jobs"][job]
        if arrival > clock():
            this_actor.sleep_until(arrival)
        found["start"][job], where[job], host.pstate = clock(), host, pstate
        this_actor.execute(flops)
        if rest:
            this_actor.sleep_for(rest)
        host.pstate = 0
        del where[job]
        found["end"][job] = clock()
        found["joules"] = sum(library.sg_host_get_consumed_energy(library.sg_host_by_name(n.encode())) for n in names)

def controller():
    for date, job, pstate in case["changes"]:
        this_actor.sleep_until(date)
        if job in where:
            where[job].pstate = pstate

for name in names:
    Actor.create(name, Host.by_name(name), node)
Actor.create("controller", Host.by_name("master"), controller)
engine.run()
print(json.dumps(found))
"""

GHZ, WATTS, NOMINAL, IDLE = (1.0, 1.6, 2.0, 2.5), (3.0, 6.5, 10.0, 17.0), 2, 0.5


class Chosen(Agent):
    """Serves jobs in order of their arrival at given frequencies, and changes those of running jobs at given dates."""

    def __init__(self, ghz: list[float], changes: list[tuple[float, int, float]]) -> None:
        self.ghz, self.changes = ghz, changes

    def begin(self, cluster: Cluster) -> None:
        for date, _, _ in self.changes:
            cluster.call_me_later(date)

    def decide(self, cluster: Cluster) -> None:
        for job in list(cluster.queue):
            if not cluster.fits(job):
                break
            cluster.set_frequency(job, self.ghz[job])
            cluster.start(job)
        for date, job, ghz in self.changes:
            if date == cluster.now and job in cluster.running:
                cluster.set_frequency(job, ghz)


def simgrid(path: Path, case: dict[str, Any]) -> dict[str, Any]:
    speeds = ",".join(f"{ghz}Gf" for ghz in (GHZ[NOMINAL], *GHZ))
    watts = ",".join(f"{watt}:{watt}:{watt}" for watt in (IDLE, *WATTS))
    hosts = "".join(
        f'<host id="n{node}" speed="{speeds}"><prop id="wattage_per_state" value="{watts}"/></host>'
        for node in range(case["nodes"])
    )
    master = '<host id="master" speed="1Gf"><prop id="wattage_per_state" value="0:0:0"/></host>'
    path.write_text(
        "<?xml version='1.0'?><!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">"
        f'<platform version="4.1"><zone id="z" routing="Full">{hosts}{master}</zone></platform>'
    )
    python = sys.executable if importlib.util.find_spec("simgrid") else shutil.which("python3", path="/usr/bin")
    assert python is not None
    done = subprocess.run(
        [python, "-c", PROBE, str(path), json.dumps(case)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.requires("simgrid")
@pytest.mark.parametrize("changing", [True, False])
@pytest.mark.parametrize("seed", [1, 2, *ci(3, 4, 5, 6)])
def test_times_and_joules_are_those_of_simgrid(seed: int, changing: bool, tmp_path: Path) -> None:
    """Jobs bound by the frequency alone change it as they run; others compute, and wait for memory for a time."""
    rng = np.random.default_rng(seed)
    nodes, number = int(rng.integers(1, 4)), 12
    arrivals = np.concatenate([[0.0], np.cumsum(rng.exponential(20.0, number - 1))])
    runtimes, places = rng.uniform(10, 90, number), rng.integers(0, len(GHZ), number)
    bound = np.ones(number) if changing else rng.uniform(0, 1, number)
    dates = np.sort(rng.uniform(0, 300, 25)) if changing else np.zeros(0)
    changes = [(date, int(rng.integers(number)), int(rng.integers(len(GHZ)))) for date in dates.tolist()]
    platform = Platform.homogeneous(
        nodes,
        1,
        GHZ[NOMINAL],
        power_per_core=WATTS[NOMINAL],
        frequencies=[
            {"ghz": ghz, "static_watts": 1.0, "dynamic_watts": watts - 1.0}
            for ghz, watts in zip(GHZ, WATTS, strict=True)
        ],
    )
    workload = Workload.from_columns(
        submission_time=arrivals,
        runtime=runtimes,
        requested_cores=np.ones(number, int),
        further={"frequency_bound": bound},
    )
    agent = Chosen([GHZ[place] for place in places], [(date, job, GHZ[place]) for date, job, place in changes])
    result = simulate(platform, workload, agent, check=True)
    case = {
        "nodes": nodes,
        "jobs": [
            (arrival, share * runtime * GHZ[NOMINAL] * 1e9, (1 - share) * runtime, place + 1)
            for arrival, share, runtime, place in zip(
                arrivals.tolist(), bound.tolist(), runtimes.tolist(), places.tolist(), strict=True
            )
        ],
        "changes": [(date, job, place + 1) for date, job, place in changes],
    }
    theirs = simgrid(tmp_path / "nodes.xml", case)
    assert result.starting_time.tolist() == pytest.approx(theirs["start"], rel=1e-6, abs=1e-6)
    assert result.finish_time.tolist() == pytest.approx(theirs["end"], rel=1e-6, abs=1e-6)
    assert math.isclose(result.energy_joules, theirs["joules"], rel_tol=1e-6)
    if changing:
        assert len(result.segments) > number
