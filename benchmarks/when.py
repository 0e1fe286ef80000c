"""Coverage and errors of `hdsim when` on held-out weeks of a log, beside the plan with requested times.

``generated`` is a site of benchmarks/site_year.py with 48 nodes whose log is its replay. ``ricc`` is the log of RICC of
the Parallel Workloads Archive (RICC-2010-2.swf) with its recorded starts: 1,024 nodes with 8 CPUs. Its rules are not
published; fair share is assumed, and that users have at most as many CPUs as they had in 70 % of the hours in which
they had jobs waiting, before the weeks that are used.

python benchmarks/when.py generated --moments 5 --scenarios 6 --processes 2
python benchmarks/when.py ricc --log RICC-2010-2.swf.gz --moments 8 --scenarios 3 --days 2

Measured with seed 0, generated: 87.8 % of 287 waits in the interval, mean error 6.74 h, that of the plan 8.35 h, which
is 19 % less; the quantiles of the scenarios alone have 67.2 % of the waits and an error of 8.79 h.

Measured before scenarios took the past weeks in turns, with 8 jobs at a moment and seed 0, ricc: 84.9 % of 192 waits,
29.8 h and 102.1 h; the scenarios alone have 2 % of the waits.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from site_year import make_jobs, make_site

from hdsim.agents.slurm import SlurmAgent
from hdsim.platform.model import Platform
from hdsim.simulation.simulation import simulate
from hdsim.site.model import Site, site_of
from hdsim.site.platform import platform_document
from hdsim.studies.starts import Log, checked, first_moment, moments_of, sampled
from hdsim.workload.model import Workload
from hdsim.workload.swf import read_swf

_DAY, _HOUR, _WEEK = 86_400.0, 3_600.0, 7 * 86_400.0
#: Part of the hours with waiting jobs in which a user of RICC has at most the CPUs of the assumed limit.
_PART = 0.7


def generated(weeks: int, nodes: int = 48, jobs_a_day: int = 400, load: float = 0.85) -> Log:
    """Returns the log of a generated site: its jobs as they start under its rules."""
    users, days = 80, 7.0 * (2 * weeks + 3)
    site = make_site(nodes, 6, 20, users)
    site.slurm.parameters |= {"bf_interval": 120, "sched_interval": 300}
    jobs = make_jobs(site, nodes, int(jobs_a_day * days), days, load, users, sizes=8)
    result = simulate(Platform.from_dict(platform_document(site), "generated"), jobs, SlurmAgent(site))
    first = float(jobs.original_submission_time[0])
    own = {
        "recorded_start": first + result.starting_time,
        "recorded_end": first + result.finish_time,
        "recorded_nodes": result.columns["nodes"],
    }
    return Log(site, dataclasses.replace(jobs, further={**jobs.further, **own}))


def ricc(path: Path, weeks: int) -> Log:
    """Returns the log of RICC with its recorded starts."""
    raw, _ = read_swf(path, waits=True)
    given = raw.columns
    submitted = float(raw.header["UnixStartTime"]) + given["submission_time"]
    start = submitted + given["recorded_wait"]
    users = np.unique(given["user"]).tolist()
    jobs = Workload.from_columns(
        submission_time=submitted,
        runtime=given["runtime"],
        requested_cores=given["requested_cores"],
        requested_time=np.maximum(given["requested_time"], given["runtime"]),
        user=given["user"],
        group=0,
        queue=0,
        partition=0,
        names={
            "user": {user: f"u{user}" for user in users},
            "group": {0: "all"},
            "queue": {0: "normal"},
            "partition": {0: "all"},
        },
        further={
            "cpus": given["requested_cores"],
            "recorded_start": start,
            "recorded_end": start + given["runtime"],
        },
        source=path.name,
    )
    return Log(ricc_site(jobs, float(submitted[-1]) - (2 * weeks + 1) * _WEEK), jobs)


def ricc_site(jobs: Workload, before: float) -> Site:
    """Returns RICC with limits of its users from what they had before a time."""
    start, end = jobs.further["recorded_start"], jobs.further["recorded_end"]
    hours = np.arange(float(jobs.original_submission_time[0]), before, _HOUR)

    def at_hours(begins: np.ndarray, ends: np.ndarray, amounts: np.ndarray) -> np.ndarray:
        change = np.zeros(len(hours) + 1)
        np.add.at(change, np.searchsorted(hours, begins), amounts)
        np.add.at(change, np.searchsorted(hours, ends), -amounts)
        return np.cumsum(change)[:-1]

    rows: list[dict[str, Any]] = [{"account": "all"}]
    for user in np.unique(jobs.user):
        own = (jobs.user == user) & (jobs.original_submission_time < before)
        cpus = jobs.requested_cores[own]
        waiting = at_hours(jobs.original_submission_time[own], start[own], np.ones(own.sum())) > 0
        limits = {}
        if waiting.sum() >= 6:
            held = at_hours(start[own], end[own], cpus)[waiting]
            limits = {"grp_tres": {"cpu": max(float(np.quantile(held, _PART)), float(cpus.max()))}}
        rows.append({"account": "all", "user": f"u{user}", "limits": limits})
    parameters = {
        "batch_sched_delay": 60,
        "sched_interval": 300,
        "default_queue_depth": 500,
        "bf_interval": 600,
        "bf_resolution": 600,
        "bf_window": 4320,
        "bf_max_job_test": 100,
        "bf_max_job_user": 10,
    }
    return site_of(
        {
            "nodes": {"n": {"nodes": "n[1-1024]", "cpus": 8, "cores_per_socket": 8, "memory": 12_000}},
            "partitions": {"all": {"nodes": "ALL", "default": True, "max_time": 30 * _DAY}},
            "qos": {"normal": {}},
            "associations": rows,
            "priority": {"weight_fair_share": 10_000, "weight_age": 1_000},
            "slurm": {"enforce": ["associations", "limits"], "parameters": parameters},
        },
        "ricc",
    )


def bench(log: Log, given: argparse.Namespace) -> None:
    """Prints the agreement by week, partition and in all."""
    began = time.process_time()
    begin = first_moment(log, given.weeks)
    at = moments_of(begin, 2 * given.weeks + 1, given.moments, given.seed)

    def told(done: int) -> None:
        print(f"{done} of {len(at)} moments", file=sys.stderr, flush=True)

    days = given.days * _DAY
    found = sampled(log, at, given.scenarios, given.jobs, given.seed, days, given.processes, told)
    result = checked(found, begin, given.weeks, log.site.time_zone)
    for one in (*result.scores, result.scenarios):
        print(
            f"{one.name:16} {one.waits:5} waits, {one.coverage:6.1%} in the interval, error {one.error / _HOUR:6.2f} h"
            f", of the plan {one.plan / _HOUR:6.2f} h: {1 - one.error / one.plan:.0%} less"
        )
    print(f"{time.process_time() - began:.0f} s of CPU in this process")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", choices=["generated", "ricc"])
    parser.add_argument("--log", type=Path, default=Path("RICC-2010-2.swf.gz"))
    parser.add_argument("--weeks", type=int, default=3)
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--scenarios", type=int, default=12)
    parser.add_argument("--days", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    log = generated(arguments.weeks) if arguments.site == "generated" else ricc(arguments.log, arguments.weeks)
    bench(log, arguments)
