"""``hdsim plan``: start, nodes and reason of waiting of each of a handful of jobs."""

from __future__ import annotations

import math
from pathlib import Path

import click

from hdsim.cli.parameters import FILE


@click.command()
@click.argument("file", type=FILE)
def plan(file: Path) -> None:
    """Tell when slurmctld would start each of a handful of jobs, on which nodes, and the reason why not earlier.

    FILE is YAML with the keys of a site file (nodes, partitions, qos, priority ...) and jobs:

    \b
    nodes: {n: {nodes: "n[1-4]", cpus: 8}}
    jobs:
    - {cpus: 32, runtime: 1h, time: 2h}
    - {cpus: 8, runtime: 10min, time: 30min, at: 60}

    docs/slurm.md explains the keys.
    """  # noqa: D301 - click reads the backspace character
    from hdsim.util.plugins import optional

    for package in ("ClusterShell", "pydantic"):
        optional(package)
    from hdsim.agents.slurm import SlurmAgent
    from hdsim.platform.model import Platform
    from hdsim.report.charts import duration
    from hdsim.simulation.simulation import simulate
    from hdsim.site.plans import read_plan
    from hdsim.site.platform import platform_document
    from hdsim.util.text import format_table

    site, jobs = read_plan(file)
    platform = Platform.from_dict(platform_document(site), str(file))
    result = simulate(platform, jobs, SlurmAgent(site), kill_at_walltime=True)
    rows = [["job", "submitted", "start", "end", "waits", "nodes", "reason"]]
    submitted = jobs.submission_time + jobs.original_submission_time[0]
    for row, identity in enumerate(jobs.job_id.tolist()):
        start, end = float(result.starting_time[row]), float(result.finish_time[row])
        shift = float(jobs.original_submission_time[0])
        times = ["-" if math.isnan(time) else duration(time + shift) for time in (start, end)]
        waited = "never" if math.isnan(start) else duration(start + shift - float(submitted[row]))
        reason = str(result.columns["reason"][row])
        cells = [duration(float(submitted[row])), *times, waited, str(result.columns["nodes"][row]) or "-"]
        rows.append([str(identity), *cells, "-" if reason == "None" else reason])
    click.echo(format_table(rows))
