"""``hdsim compare``: one table and one figure over runs or sweeps."""

from __future__ import annotations

from pathlib import Path

import click

#: Largest number of distinguishable schedules in one figure.
_MOST_SCHEDULES = 8


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Where compare.csv and compare.png go  [default: the working directory].",
)
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="A metric to compare; give it several times.")
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Run whose configuration the others are compared with  [default: the first].",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=RUN",
    help="Label of the configuration of a run; give it several times.",
)
@click.option(
    "--schedules", is_flag=True, help="Also draw the schedules of the runs beside each other, to DIR/schedules.png."
)
def compare(
    runs: tuple[Path, ...],
    output: Path,
    metrics: tuple[str, ...],
    baseline: Path | None,
    labels: tuple[str, ...],
    *,
    schedules: bool,
) -> None:
    """Compares runs in one table and one figure: means, paired differences, bootstrap confidence intervals.

    RUN is a run directory, or a sweep: a directory with run directories in it. Directories of trainings are compared by
    their test windows, with the best classic policy as the baseline.
    """
    from hdsim.errors import ConfigError
    from hdsim.report import compare as comparing
    from hdsim.report import compare_output
    from hdsim.results.run_directory.replications import seed_warning
    from hdsim.results.run_directory.supersteps import is_gang

    comparison = comparing.compare(runs, metrics, baseline, _by_name(labels))
    if schedules and len(comparison.runs) > _MOST_SCHEDULES:
        raise ConfigError(
            f"expected at most {_MOST_SCHEDULES} runs to draw, got {len(comparison.runs)}", where="--schedules"
        )
    try:
        output.mkdir(parents=True, exist_ok=True)
        compare_output.write_csv(comparison.rows, output / "compare.csv")
        compare_output.write_figure(comparison, output / "compare.png")
        drawn = advanced = False
        if comparison.windows:
            compare_output.write_csv(comparison.windows, output / "compare_windows.csv")
            drawn = compare_output.write_windows(comparison, output / "compare_windows.png")
        if all(map(is_gang, comparison.runs)):
            advanced = compare_output.write_progress(comparison, output / "compare_supersteps.png")
        if schedules:
            from hdsim.report.figures import write_schedules
            from hdsim.results.run_directory.reader import read

            write_schedules({name: read(path) for path, name in comparison.runs.items()}, output / "schedules.png")
    except OSError as error:
        raise ConfigError(f"expected a directory that can be written to: {error}", where="--output") from None
    for path, told in comparison.dead.items():
        click.echo(f"hdsim: left out: {path}: {told}", err=True)
    click.echo(compare_output.table(comparison))
    warning = seed_warning(comparison.runs)
    if warning:
        click.echo(f"hdsim: warning: {warning}", err=True)
    click.echo(f"\ntable   {output / 'compare.csv'}\nfigure  {output / 'compare.png'}")
    if comparison.windows:
        click.echo(f"runs    {output / 'compare_windows.csv'}")
    if drawn:
        click.echo(f"figure  {output / 'compare_windows.png'}")
    if advanced:
        click.echo(f"figure  {output / 'compare_supersteps.png'}")
    if schedules:
        click.echo(f"figure  {output / 'schedules.png'}")


def _by_name(labels: tuple[str, ...]) -> dict[str, Path]:
    """Runs by label, from texts ``NAME=RUN``."""
    from hdsim.errors import ConfigError

    found: dict[str, Path] = {}
    for given in labels:
        name, equals, run = (part.strip() for part in given.partition("="))
        if not (name and equals and run) or name in found:
            got = "the same name twice" if name in found else f"'{given}'"
            raise ConfigError(f"expected NAME=RUN, got {got}", where=f"--label {given}")
        found[name] = Path(run)
    return found
