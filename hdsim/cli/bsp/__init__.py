"""``hdsim bsp``: gangs of tasks whose CPU shares change between supersteps."""

from __future__ import annotations

import click

from hdsim.cli import LazyGroup

SUBCOMMANDS = {
    "profile": "Measure the durations of real tasks by workload size and CPU share.",
    "forecast": "Forecast the workloads of a gang from series of measured values.",
    "run": "Run the supersteps of a gang with a controller of its CPU shares.",
    "share": "Simulate gangs that share machines with each other and with other jobs.",
    "train": "Train an agent that controls the CPU shares of a gang.",
    "plan": "Plan all supersteps with perfect knowledge, and bound every plan from below.",
    "account": "Account for the seconds between a run and a lower bound of every plan.",
}


@click.group(cls=LazyGroup, package="hdsim.cli.bsp", subcommands=SUBCOMMANDS)
def bsp() -> None:
    """Plan the CPU shares of a BSP gang, and run it.

    The tasks of a gang meet at a barrier after each superstep, so the slowest task determines its duration. Their
    workloads vary from superstep to superstep, and CPU shares are planned again between supersteps at a price.
    """
