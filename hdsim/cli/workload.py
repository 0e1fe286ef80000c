"""``hdsim workload``: statistics, faults, conversion and generation of workloads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli.completion import input_file
from hdsim.cli.parameters import OUTPUT, Parsed, list_of
from hdsim.errors import WorkloadError
from hdsim.util.text import number_in

if TYPE_CHECKING:
    import numpy as np

    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Heading and quantile of each statistic; the mean is between the median and the upper quartile.
_STATISTICS = (
    ("min", 0.0),
    ("p25", 0.25),
    ("median", 0.5),
    ("mean", None),
    ("p75", 0.75),
    ("p99", 0.99),
    ("max", 1.0),
)

#: Of `convert`, for BSP jobs.
_BSP_OPTIONS = ("supersteps", "communication", "pattern", "imbalance", "latency", "bandwidth")

_file = input_file("workloads")
_platform = click.option("--platform", metavar="FILE", help="Platform to replay on: a file or a bundled name.")
_output = click.option("-o", "--output", required=True, type=OUTPUT, help="File to write.")
_arrival_factor = click.option(
    "--arrival-factor", type=float, default=1.0, show_default=True, help="Multiply inter-arrival times."
)


def _amount_or(*words: str) -> Parsed:
    """A number, or one of some words."""
    known = ", ".join(words)
    return Parsed("amount", lambda text: text if text in words else number_in(text), f"{known} or a number")


_AMOUNTS = list_of("amounts", number_in, "numbers separated by commas")


@click.group()
def workload() -> None:
    """Show, validate, convert or generate a workload.

    FILE is an SWF trace or a Batsim/HDeepRM JSON workload, either may be gzip, a table in Parquet, or the name of a
    bundled workload.
    """


@workload.command()
@_file
@_platform
def show(file: str, platform: str | None) -> None:
    """Print what a workload asks for, and the load it offers."""
    from hdsim.workload.load import load_workload

    machine = _load_platform(platform)
    jobs = load_workload(_find(file), machine, memory_bandwidth="trace")
    click.echo("\n".join(_summary(jobs, machine)))


@workload.command()
@_file
@_platform
def validate(file: str, platform: str | None) -> None:
    """List all faults of a workload; exit with 2 if there are any.

    With --platform, jobs that do not fit on it are faults too.
    """
    from hdsim.workload.load import validate_workload

    path = _find(file)
    errors = validate_workload(path, _load_platform(platform))
    if errors:
        raise WorkloadError.many(errors)
    click.echo(f"{path}: no fault")


@workload.command()
@_file
@_output
@click.option(
    "--to", type=click.Choice(["swf", "json", "parquet"]), help="Format, by default that of the output's extension."
)
@_platform
@click.option("--jobs", type=int, help="How many jobs to take, by default all.")
@click.option("--start", type=int, default=0, show_default=True, help="First job to take.")
@_arrival_factor
@click.option("--seed", type=int, default=0, show_default=True, help="Of what is drawn.")
@click.option(
    "--memory-bandwidth",
    type=_amount_or("trace", "none", "draw"),
    default="trace",
    show_default=True,
    help="GB/s a core: those of the file, none, a draw from 4 to 24, or a number.",
)
@click.option(
    "--memory",
    type=_amount_or("trace", "none"),
    default="trace",
    show_default=True,
    help="MB a core: those of the file, none, or a number.",
)
@click.option(
    "--runtime",
    type=click.Choice(["trace", "requested", "hdeeprm"]),
    default="trace",
    show_default=True,
    help="Run times: those of the file, the requested times, or a random share of these.",
)
@click.option(
    "--status",
    type=click.Choice(["recorded", "queued", "completed", "ignore"]),
    default="recorded",
    show_default=True,
    help="Use of the status of jobs, as workload.status of a run.",
)
@click.option("--strict", is_flag=True, help="Fail on a job that cannot be replayed rather than leave it out.")
@click.option(
    "--supersteps",
    type=_AMOUNTS,
    metavar="N[,MAX]",
    help="Make BSP jobs of rigid ones, with so many supersteps; needs --platform, and JSON as output.",
)
@click.option(
    "--communication", type=_AMOUNTS, metavar="X[,MAX]", help="Share of the run time for messages.  [default: 0.2]"
)
@click.option("--pattern", metavar="NAME,...", help="Patterns to draw from.  [default: h_relation]")
@click.option(
    "--imbalance",
    type=_AMOUNTS,
    metavar="X[,MAX]",
    help="Coefficient of variation of the work of a job's tasks.  [default: 0]",
)
@click.option("--latency", type=float, help="Seconds of a barrier.  [default: 0]")
@click.option("--bandwidth", type=float, help="GB/s that turn communication time into bytes.  [default: slowest link]")
def convert(file: str, output: Path, to: str | None, platform: str | None, **options: Any) -> None:
    """Write a workload, or a part of it, in SWF, JSON or Parquet.

    With --platform, JSON profiles count operations at the platform's reference speed (HDeepRM's form); without it they
    are delays in seconds.
    """
    from hdsim.workload.load import is_json, load_workload

    machine = _load_platform(platform)
    given = {key: options.pop(key) for key in _BSP_OPTIONS}
    bsp = {key: value for key, value in given.items() if value is not None}
    if bsp:
        if "supersteps" not in bsp or machine is None or not (to == "json" or (to is None and is_json(output))):
            raise click.UsageError(f"--{next(iter(bsp))}: expected --supersteps, --platform and JSON as output with it")
        if "pattern" in bsp:
            bsp["pattern"] = bsp["pattern"].split(",")
    jobs = load_workload(_find(file), machine, **options)
    if bsp and machine is not None:
        from hdsim.workload.generators.bsp import with_supersteps

        jobs = with_supersteps(jobs, machine, **bsp, seed=options["seed"])
    _write(jobs, output, to, machine)
    click.echo(f"{output}: {len(jobs)} jobs")


@workload.command()
@_output
@click.option("--jobs", type=int, help="Number of jobs.")
@click.option("--cores", type=int, default=256, show_default=True, help="Size of the machine.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all draws.")
@click.option("--typeless", is_flag=True, help="One class of jobs rather than interactive and batch jobs.")
@click.option(
    "--estimates",
    type=click.Choice(["none", "tsafrir"]),
    default="none",
    show_default=True,
    help="Requested times: the run times, or Tsafrir's model of users.",
)
@click.option(
    "--max-estimate", type=float, help="Longest requested time in s of tsafrir, by default that of the longest job."
)
@click.option("--memory", type=_AMOUNTS, help="MB a core, e.g. 500,1000,2000: each job draws one of them.")
@_arrival_factor
@click.option("--model", metavar="NAME", help="Another generator: a Python file, package.Class or a name.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="A setting of that generator.")
@_platform
def generate(output: Path, model: str | None, changes: tuple[str, ...], platform: str | None, **options: Any) -> None:
    """Make a workload by the Lublin-Feitelson model or another one.

    Another model (--model) takes --seed, --set and --platform. The same options give the same file.
    """
    import dataclasses

    if model is not None:
        _generate(output, model, changes, platform, options["seed"])
        return
    if changes or platform is not None:
        raise click.UsageError("expected --model with --set and --platform")
    if options["jobs"] is None:
        raise click.UsageError("Missing option '--jobs'.")
    from hdsim.workload.generators.lublin import generate as make

    command = _command(options)
    options["typed"] = not options.pop("typeless")
    jobs = make(**options)
    jobs = dataclasses.replace(jobs, header={**jobs.header, "Note": f"made by: {command}"})
    _write(jobs, output, None, None)
    click.echo(f"{output}: {len(jobs)} jobs")


def _generate(output: Path, model: str, changes: tuple[str, ...], platform: str | None, seed: int) -> None:
    """Makes a workload by a generator of any kind."""
    import yaml

    from hdsim.workload.load import load_workload

    context = click.get_current_context()
    for name in context.params:
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and name not in ("output", "model", "changes", "platform", "seed"):
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option}: expected --set with --model, such as --set {name}=VALUE")
    settings: dict[str, Any] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise click.UsageError(f"--set: expected KEY=VALUE, got '{change}'")
        settings[key] = yaml.safe_load(value)
    machine = _load_platform(platform)
    jobs = load_workload({**settings, "model": model}, machine, seed=seed, memory_bandwidth="trace")
    _write(jobs, output, None, machine)
    click.echo(f"{output}: {len(jobs)} jobs")


def _command(options: dict[str, Any]) -> str:
    """The command line that makes the same workload, without the file name."""
    words = ["hdsim", "workload", "generate"]
    for key, value in options.items():
        if value is None or value is False:
            continue
        words.append("--" + key.replace("_", "-"))
        if value is not True:
            words.append(",".join(f"{amount:g}" for amount in value) if isinstance(value, list) else str(value))
    return " ".join(words)


def _find(file: str) -> Path:
    from hdsim.util.resources import resolve

    return resolve("workloads", file)


def _load_platform(name: str | None) -> Platform | None:
    from hdsim.platform.load import load_platform
    from hdsim.util.resources import resolve

    return None if name is None else load_platform(resolve("platforms", name, where="--platform"))


def _write(jobs: Workload, output: Path, to: str | None, platform: Platform | None) -> None:
    from hdsim.workload.load import is_json
    from hdsim.workload.parquet import is_parquet, write_parquet

    if to is None:
        to = "json" if is_json(output) else "parquet" if is_parquet(output) else None
        if to is None and ".swf" not in output.suffixes[-2:]:
            raise WorkloadError(
                "expected a name that ends in .swf, .json (or these with .gz) or .parquet", where=str(output)
            )
    if to == "parquet":
        write_parquet(jobs, output)
    elif to == "json":
        from hdsim.workload.batsim_json import write_batsim

        write_batsim(jobs, output, platform)
    else:
        from hdsim.workload.swf import write_swf

        write_swf(jobs, output)


def _summary(jobs: Workload, platform: Platform | None) -> list[str]:
    """Lines that describe a workload to a person."""
    import numpy as np

    from hdsim.util.text import format_number, format_table
    from hdsim.workload.swf import STATES

    cores = platform.n_cpu_cores if platform else jobs.cluster_cores
    machine = f"the {cores} cores of {platform.name}" if platform else f"{cores} cores"
    days = float(jobs.submission_time[-1]) / 86400
    rows = [
        ("run time (s)", jobs.runtime),
        ("requested time (s)", jobs.requested_time),
        ("requested cores", jobs.requested_cores),
        *([("requested GPUs", jobs.requested_gpus)] if jobs.asks_for_gpus else []),
        ("memory (MB/core)", jobs.memory),
        ("bandwidth (GB/s/core)", jobs.memory_bandwidth),
    ]
    if len(jobs) > 1:
        rows.append(("inter-arrival time (s)", np.diff(jobs.submission_time)))
    owners = [
        f"{len(known):,} {name}{'s' * (len(known) != 1)}"
        for name in ("user", "group", "queue", "partition")
        if len(known := {value for value in getattr(jobs, name).tolist() if value != -1})
    ]
    states = Counter(STATES.get(state, str(state)) for state in jobs.status.tolist() if state != -1)
    return [
        str(jobs.source),
        f"{len(jobs)} jobs submitted over {days:.2f} days, {len(jobs.dropped)} dropped",
        f"offered load on {machine}: {jobs.offered_load * jobs.cluster_cores / cores:.3f}",
        *([f"of {', '.join(owners)}"] if owners else []),
        *([f"recorded ends: {', '.join(f'{n:,} {state}' for state, n in states.most_common())}"] if states else []),
        "",
        format_table(
            [
                ["", *(heading for heading, _ in _STATISTICS)],
                *([name, *map(format_number, _statistics(column))] for name, column in rows),
            ]
        ),
    ]


def _statistics(column: np.ndarray) -> list[float]:
    import numpy as np

    return [float(column.mean() if share is None else np.quantile(column, share)) for _, share in _STATISTICS]
