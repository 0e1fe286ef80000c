"""``hdsim site priority``: priorities of pending jobs and shares of accounts."""

from __future__ import annotations

from pathlib import Path

import click

from hdsim.cli.parameters import FOLDER


@click.command()
@click.argument("site", type=FOLDER)
@click.option(
    "--at", required=True, type=click.FloatRange(0), metavar="SECONDS", help="Seconds after the first submission."
)
@click.option("--shares", is_flag=True, help="The columns of sshare -a -l instead of those of sprio -l.")
@click.option("--simulated", is_flag=True, help="Jobs start as in the simulation instead of as recorded.")
@click.option(
    "--phase",
    type=float,
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds after the first submission of one of slurmctld's calculations, which the log does not tell.",
)
def priority(site: Path, at: float, phase: float, *, shares: bool, simulated: bool) -> None:
    """Print the priorities of the pending jobs of SITE, a folder of 'hdsim site import', at a moment of its log.

    Age and fair share are those of the last calculation (PriorityCalcPeriod).
    """
    from hdsim.util.plugins import optional

    for package in ("ClusterShell", "polars", "pydantic"):
        optional(package)
    from hdsim.platform.load import load_platform
    from hdsim.site.model import load_site
    from hdsim.site.replaying import recorded_state
    from hdsim.site.tables import priority_table, share_table
    from hdsim.site.workload import names
    from hdsim.workload.load import load_workload

    rules = load_site(site)
    platform = load_platform(site / "platform.json")
    jobs = load_workload(site / "jobs.parquet", platform, memory="none", memory_bandwidth="none")
    if simulated:
        from hdsim.agents.slurm import SlurmAgent
        from hdsim.simulation.simulation import Simulation

        agent = SlurmAgent(rules)
        simulation = Simulation(platform, jobs, agent)
        simulation.run_until(at)
        scheduler = agent.state_at(at)
    else:
        scheduler = recorded_state(rules, jobs, at, phase)
    table = share_table(scheduler) if shares else priority_table(scheduler, jobs.job_id, names(jobs, "user"))
    click.echo("\n".join("|".join(row) for row in table))
