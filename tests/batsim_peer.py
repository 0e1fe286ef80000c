"""hdsim behind its own Batsim, over a real socket."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hdsim
from hdsim.backends.batsim.backend import Batsim
from hdsim.backends.batsim.files import Files
from hdsim.backends.batsim.hosts import load_hosts
from hdsim.backends.batsim.inputs import read_jobs
from hdsim.backends.batsim.server import BatsimServer, Options
from hdsim.backends.batsim.zeromq import SchedulerSocket, serve


def behind_batsim(
    platform: hdsim.Platform, agent: Any, jobs: hdsim.Workload, folder: Path, **options: Any
) -> hdsim.Result:
    """The schedule of an agent that a Batsim asks for decisions."""
    return served_by_batsim(platform, agent, jobs, folder, **options)[0]


def served_by_batsim(
    platform: hdsim.Platform, agent: Any, jobs: hdsim.Workload, folder: Path, *, energy: bool = False, **options: Any
) -> tuple[hdsim.Result, BatsimServer]:
    """The result of an agent that hdsim's own Batsim asks, by the files that a real one reads, and that Batsim."""
    files = Files(folder / "server", energy=energy, kill_at_walltime=False)
    files.write(platform, jobs)
    hosts = load_hosts(files.platform)
    server = BatsimServer(hosts, [read_jobs(files.workload, hosts.platform)], Options(energy=energy))
    endpoint = f"ipc://{folder}/socket"

    def simulate() -> None:
        with SchedulerSocket(endpoint, timeout=60) as scheduler:
            serve(server, scheduler.exchange)

    with ThreadPoolExecutor() as threads:
        served = threads.submit(simulate)
        result, _ = Batsim(socket=endpoint).run(platform, jobs, agent, folder, **options)
        served.result()
    return result, server
