"""``hdsim kwok record``: the bindings of a scheduler in a file."""

from __future__ import annotations

from pathlib import Path

import click

from hdsim.cli.kwok.options import kubeconfig
from hdsim.cli.parameters import OUTPUT
from hdsim.errors import ConfigError


@click.command()
@kubeconfig
@click.option("-o", "--output", required=True, type=OUTPUT, help="File to write: JSON lines.")
@click.option("--scheduler-name", default="default-scheduler", show_default=True, help="Scheduler to record.")
@click.option("--bindings", type=click.IntRange(1), help="End after so many bindings.")
@click.option(
    "--stop-when-idle", type=click.FloatRange(0, min_open=True), help="End after so many seconds without a binding."
)
def record(
    kubeconfig: Path | None, output: Path, scheduler_name: str, bindings: int | None, stop_when_idle: float | None
) -> None:
    """Record what a scheduler decides: one line per binding, with the state before it, until SIGINT or SIGTERM.

    The file fills a replay buffer (agent=dqn agent.replay_from=FILE) or is imitated (agent=imitation
    agent.recording=FILE), on a platform of the recorded nodes.
    """
    from hdsim.kubernetes.connection import Connection
    from hdsim.kubernetes.recording import Recorder
    from hdsim.simulation.terminal import signals_received

    with Connection(kubeconfig, where="--kubeconfig") as connection, signals_received() as stop:
        try:
            file = output.open("xb")
        except FileExistsError:
            raise ConfigError(f"expected a new file, '{output}' exists", where="--output") from None
        with file:
            try:
                recorder = Recorder(connection, scheduler_name, file)
                click.echo(f"recording {scheduler_name} on {connection.server}", err=True)
                recorder.run(stop, bindings=bindings, idle=stop_when_idle)
            finally:
                if not file.tell():
                    output.unlink()
    click.echo(f"{output}: {recorder.bindings:,} bindings")
    if recorder.left_out:
        click.echo(f"{recorder.left_out:,} pods on nodes that came after the begin are left out")
    if recorder.relists:
        click.echo(f"the watch was renewed {recorder.relists:,} times; the order of the bindings in between is a guess")
