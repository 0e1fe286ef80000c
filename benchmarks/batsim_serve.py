"""Jobs per second of the CPU time of `hdsim batsim-serve` itself, with a trivial scheduler in another process.

Jobs of delay profiles on 256 hosts, served first come, first served; figures are of the server's process alone and
include its sockets. Once wherever the system puts the two processes, once with both on one core. Batsim 4.2.1 handles
about 2,500 to 3,300 jobs/s of its own CPU time on such a load.

    python benchmarks/batsim_serve.py [--jobs 20000] [--rounds 5] [--tcp]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path

import numpy as np
from yardstick import arrangements, free_port, rounds

from hdsim import Platform
from hdsim.backends.batsim.hosts import hosts_of
from hdsim.backends.batsim.inputs import Options, read_jobs
from hdsim.backends.batsim.serve import SchedulerSocket, serve
from hdsim.backends.batsim.server import Server

HOSTS = 256
#: jobs/s of its own CPU time that the server is to handle.
LIMIT = 5000


def schedule(endpoint: str) -> None:
    """A scheduler without any library: first come, first served on a stack of idle hosts."""
    import zmq

    line = zmq.Context.instance().socket(zmq.REP)
    line.bind(endpoint)
    idle = list(range(HOSTS))
    queue: deque[tuple[str, int]] = deque()
    held: dict[str, list[int]] = {}
    running = True
    while running:
        message = json.loads(line.recv())
        now, events = message["now"], []
        for event in message["events"]:
            data = event["data"]
            if event["type"] == "JOB_SUBMITTED":
                queue.append((data["job_id"], data["job"]["res"]))
            elif event["type"] == "JOB_COMPLETED":
                idle += held.pop(data["job_id"])
            running = event["type"] != "SIMULATION_ENDS"
        while queue and queue[0][1] <= len(idle):
            job_id, size = queue.popleft()
            held[job_id], idle = idle[-size:], idle[:-size]
            alloc = " ".join(map(str, held[job_id]))
            events.append({"timestamp": now, "type": "EXECUTE_JOB", "data": {"job_id": job_id, "alloc": alloc}})
        line.send(json.dumps({"now": now, "events": events}).encode())


def workload(jobs: int) -> dict:
    """Jobs of 1 to 16 hosts that load the platform to about four fifths."""
    rng = np.random.default_rng(5)
    sizes = 2 ** rng.integers(0, 5, jobs)
    delays = rng.integers(10, 1000, jobs)
    gap = float((sizes * delays).mean()) / (0.8 * HOSTS)
    times = np.cumsum(rng.exponential(gap, jobs)).round(3)
    return {
        "nb_res": HOSTS,
        "jobs": [
            {"id": n, "subtime": when, "res": size, "walltime": delay + 1, "profile": f"d{delay}"}
            for n, (when, size, delay) in enumerate(zip(times.tolist(), sizes.tolist(), delays.tolist(), strict=True))
        ],
        "profiles": {f"d{delay}": {"type": "delay", "delay": delay} for delay in set(delays.tolist())},
    }


def measure(jobs: int, options: Options, folder: Path, *, tcp: bool) -> float:
    """Jobs per second of this process's CPU time from the first message to the last."""
    path = folder / "workload.json"
    path.write_text(json.dumps(workload(jobs)))
    hosts = hosts_of(Platform.homogeneous(HOSTS, 1))
    server = Server(hosts, [read_jobs(path, hosts.platform)], options)
    endpoint = f"tcp://127.0.0.1:{free_port()}" if tcp else f"ipc://{folder}/scheduler"
    peer = multiprocessing.get_context("spawn").Process(target=schedule, args=(endpoint,))
    peer.start()
    try:
        with SchedulerSocket(endpoint, 60) as line:
            begin = time.process_time()
            serve(server, line.exchange)
            seconds = time.process_time() - begin
        server.record.write(str(folder / "out"), scheduling_seconds=line.waited, wall_seconds=0.0)
    finally:
        peer.join(10)
        peer.kill()
    assert len(server.record.jobs) == jobs
    return jobs / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tcp", action="store_true", help="talk through a port instead of a socket file")
    arguments = parser.parse_args()
    for where in arrangements():
        for name, options in {"batsim-serve": Options(), "batsim-serve -E": Options(energy=True)}.items():
            with tempfile.TemporaryDirectory() as folder:
                work = partial(measure, arguments.jobs, options, Path(folder), tcp=arguments.tcp)
                measured = rounds(work, arguments.rounds)
            best, middle = max(measured.values), measured.middle
            print(
                f"{where}: {name:16} {best:7,.0f} jobs/s at best, {middle:7,.0f} in the middle; limit {LIMIT:,}; "
                f"{measured}",
                flush=True,
            )


if __name__ == "__main__":
    main()
