"""``hdsim run``: one replay, or a sweep of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import click

from hdsim.cli.launch import configured, launch
from hdsim.runs.command import RunOutcome
from hdsim.runs.replays import COMMAND, Inputs, replay
from hdsim.util.files import shown
from hdsim.util.text import folded, format_number


@configured("config")
@click.option(
    "--live", metavar="[=PORT]", type=click.IntRange(0, 65535), help="Show the replay, or the sweep, in a browser."
)
def run(overrides: tuple[str, ...], live: int | None, **options: Any) -> None:
    """Replays a workload on a platform with an agent and writes a run directory.

    \b
    hdsim run
    hdsim run platform=pik workload.path=log.swf.gz workload.jobs=10000 agent=easy
    hdsim run agent=shortest-low_power contention=threshold
    hdsim run -m agent=fcfs,sjf,easy-saf seed=1,2,3 hydra.sweep.dir=runs/orders

    An agent goes by a short name (fcfs, sjf, saf, f1, wfp3, easy, conservative, easy-sjf, shortest-high_gflops, ...),
    by agent.path=FILE.py or by agent._target_=package.Class. hdsim show agents and hdsim show keys list them all.
    """  # noqa: D301 - click reads the backspace character
    if live is None or options["multirun"]:
        launch(COMMAND, report_replay, overrides, live=live, **options)
    else:
        _watched(live, overrides, **options)


def _watched(port: int, overrides: Sequence[str], **options: Any) -> None:
    """Runs with a live page, and writes the report, which the page shows at the end."""
    import numpy as np

    from hdsim.cluster.state import FinalState
    from hdsim.report.html import agent_name, render
    from hdsim.report.live import LivePage
    from hdsim.results.moment import Moment
    from hdsim.results.run_directory.reader import read
    from hdsim.util.files import replacing

    with LivePage(port) as page:
        click.echo(f"live page      {page.url}", err=True)

        def watched(config: Mapping[str, Any], inputs: Inputs, directory: Path) -> Any:
            title = f"{agent_name(config)} on {inputs.platform.name}"
            page.begin(title, len(inputs.workload), inputs.platform.n_cpu_cores)
            result, facts = replay(config, inputs, directory, page.watch)
            waiting, ended = (result.state == FinalState.QUEUED).sum(), np.isfinite(result.finish_time).sum()
            page.watch(Moment(result.end_time, int(ended), int(waiting), 0, 0.0))
            return result, facts

        def report(inputs: Inputs, outcome: RunOutcome) -> None:
            report_replay(inputs, outcome)
            html = render(read(outcome.directory))
            with replacing(outcome.directory / "report.html") as file:
                file.write(html)
            page.end("finished", html)

        launch(dataclasses.replace(COMMAND, run=watched), report, overrides, **options)


def report_replay(inputs: Inputs, outcome: RunOutcome) -> None:
    """Prints the metrics of a replay."""
    workload, platform = inputs.workload, inputs.platform
    jobs = f"{len(workload):,} jobs of {Path(workload.source).name}" if len(workload) else "the pods of the cluster"
    click.echo(
        f"{jobs} on {platform.name}, {platform.n_cpu_cores:,} cores"
        f"{f' and {platform.n_gpus:,} GPUs' if platform.n_gpus else ''}\n"
    )
    click.echo(_metrics_table(outcome.metrics))
    if summary := inputs.backend.summary():
        click.echo(f"\n{summary}")
    click.echo(f"\nrun directory  {shown(outcome.directory)}")
    click.echo(f"report         hdsim report {shown(outcome.directory)}")


def _metrics_table(metrics: Mapping[str, float]) -> str:
    """Statistics of one quantity per line, where a job has any, then the other metrics one per line, with units."""
    from hdsim.results.metrics import STATISTICS, families, unit

    quantities, others = families(metrics)
    rows = [["", *STATISTICS, ""]]
    defined = [name for name in quantities if not math.isnan(metrics[f"mean_{name}"])]
    for quantity in defined:
        numbers = (format_number(metrics[f"{kind}_{quantity}"]) for kind in STATISTICS)
        rows.append([quantity, *numbers, unit(f"mean_{quantity}")])
    width = max(map(len, others))
    lines = [f"{name:{width}}  {format_number(metrics[name]):>16} {unit(name)}".rstrip() for name in others]
    statistics = [folded(rows, get_terminal_size((120, 24)).columns)] if defined else []
    return "\n\n".join([*statistics, "\n".join(lines)])
