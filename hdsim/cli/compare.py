"""``hdsim compare``: one page, one table and figures over runs or sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hdsim.cli import completion
from hdsim.cli.parameters import FILE, FOLDER, PATH, figure_format
from hdsim.errors import ConfigError

#: Largest number of scenarios each of which is printed with its intervals and differences.
_MOST_SCENARIOS = 2
#: Largest number of distinguishable schedules in one figure.
_MOST_SCHEDULES = 8


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", type=PATH)
@click.option(
    "-o",
    "--output",
    type=FOLDER,
    default=Path(),
    metavar="DIR",
    help="Where compare.csv, compare.html and compare.png go  [default: the working directory].",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    shell_complete=completion.metrics,
    help="A metric to compare; give it several times.",
)
@click.option(
    "--baseline",
    type=PATH,
    metavar="RUN|LABEL",
    help="Configuration that the others are compared with: one of its runs, or its label  [default: the first run's].",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=RUN",
    help="Label of the configuration of a run; give it several times.",
)
@click.option(
    "--by",
    metavar="COLUMN",
    help="Compare the jobs of each partition, account, qos, user, group, queue or reason apart.",
)
@click.option("--details", is_flag=True, help="Print intervals and differences also of more than two scenarios.")
@click.option("--strict", is_flag=True, help="Refuse runs that did not finish, instead of leaving them out.")
@click.option("--html", "page", type=FILE, help="Where the page goes  [default: DIR/compare.html].")
@click.option("--latex", type=FILE, help="Also write a LaTeX table.")
@click.option(
    "--heatmap", is_flag=True, help="Also draw configurations by metrics, relative to the best or to --baseline."
)
@click.option(
    "--schedules", is_flag=True, help="Also draw the schedules of the runs beside each other, to DIR/schedules.png."
)
@figure_format("--figure-format")
def compare(
    runs: tuple[Path, ...],
    output: Path,
    metrics: tuple[str, ...],
    baseline: Path | None,
    labels: tuple[str, ...],
    page: Path | None,
    latex: Path | None,
    figure_format: str,
    by: str | None,
    *,
    details: bool,
    strict: bool,
    heatmap: bool,
    schedules: bool,
) -> None:
    """Compares runs: means, paired differences, bootstrap confidence intervals, rankings.

    RUN is a run directory, or a sweep: a directory with run directories in it. Directories of trainings are compared by
    their test windows, with the best classic policy as the baseline. The results are a page, a figure and a table.
    """
    from hdsim.report import compare as comparing
    from hdsim.report import compare_figures, compare_output, compare_page
    from hdsim.report.pairing import joined
    from hdsim.report.ranking import standings
    from hdsim.report.ratios import ratios
    from hdsim.report.relative import relative
    from hdsim.results.run_directory.replications import seed_warning
    from hdsim.results.run_directory.supersteps import is_gang
    from hdsim.util.files import writable

    comparison = comparing.compare(runs, metrics, baseline, _by_name(labels), strict=strict, by=by)
    if not comparison.rows:
        raise ConfigError(
            "expected runs with a metric in common, such as replays alone or gangs alone, got runs of different kinds"
        )
    if schedules and len(comparison.runs) > _MOST_SCHEDULES:
        raise ConfigError(
            f"expected at most {_MOST_SCHEDULES} runs to draw, got {len(comparison.runs)}", where="--schedules"
        )
    if comparison.left_out:
        count = len(comparison.left_out) + len(comparison.runs)
        click.echo(f"hdsim: warning: {len(comparison.left_out)} of {count} runs are left out:", err=True)
        for path, reason in comparison.left_out.items():
            click.echo(f"  {path}: {reason}", err=True)
    if comparison.sources:
        click.echo("hdsim: warning: the runs differ in software or inputs:", err=True)
        for line in comparison.sources:
            click.echo(f"  {line}", err=True)
    # Partitions of a machine are no independent blocks to rank over.
    ranks, relations = ([], []) if by else (standings(comparison), ratios(comparison))
    short = compare_output.short_labels(comparison)
    whole = details or len({row.scenario for row in comparison.rows}) <= _MOST_SCENARIOS
    table = (compare_output.table if whole else compare_output.summary)(comparison, ranks, relations)
    page = page or output / "compare.html"
    written: dict[Path, str] = {}

    def figure(name: str) -> Path:
        path = output / f"{name}.{figure_format}"
        written[path] = "figure"
        return path

    def rows_of(what: str, name: str, rows: Sequence[Any]) -> None:
        compare_output.write_csv(rows, output / f"{name}.csv")
        written[output / f"{name}.csv"] = what

    with writable("a directory", output):
        for directory in {output, page.parent, *([latex.parent] if latex else [])}:
            directory.mkdir(parents=True, exist_ok=True)
        rows_of("table", "compare", comparison.rows)
        compare_figures.write_figure(comparison, figure("compare"))
        if comparison.windows:
            rows_of("runs", "compare_windows", comparison.windows)
            if any(row.pairs for row in comparison.rows):
                compare_figures.write_windows(comparison, figure("compare_windows"))
        if relations:
            rows_of("ratios", "compare_ratios", relations)
        if ranks:
            rows_of("ranks", "compare_ranks", ranks)
            compare_figures.write_ranks(ranks, short, figure("compare_ranks"))
        if heatmap:
            factors = relative(comparison, "baseline" if baseline else "best")
            names = [joined(short[row.scenario], short[row.configuration]) for row in factors.rows]
            compare_figures.write_heatmap(factors, names, figure("compare_heatmap"))
        if latex:
            compare_output.write_latex(comparison, latex, name=latex.stem)
            written[latex] = "latex"
        if all(map(is_gang, comparison.runs)):
            path = figure("compare_supersteps")
            if not compare_figures.write_progress(comparison, path):
                del written[path]
        if schedules:
            from hdsim.report.figures import write_schedules
            from hdsim.results.run_directory.reader import read

            write_schedules({name: read(path) for path, name in comparison.runs.items()}, figure("schedules"))
        compare_page.write_page(comparison, ranks, page, ratios=relations, to="baseline" if baseline else "best")
        written[page] = "page"
    click.echo(table)
    if not whole:
        click.echo("\nintervals and differences of each scenario: the page, the table, or --details")
    if warning := seed_warning(comparison.runs):
        click.echo(f"hdsim: warning: {warning}", err=True)
    click.echo()
    for path, what in written.items():
        click.echo(f"{what:<7} {path}")


def _by_name(labels: tuple[str, ...]) -> dict[str, Path]:
    """Runs by label, from texts ``NAME=RUN``; both parts may have further equals signs, of which RUN exists."""
    found: dict[str, Path] = {}
    for given in labels:
        signs = [place for place, letter in enumerate(given) if letter == "="]
        sign = next((place for place in signs if Path(given[place + 1 :].strip()).exists()), given.find("="))
        name, run = given[:sign].strip(), given[sign + 1 :].strip()
        if sign < 0 or not (name and run) or name in found:
            got = "the same name twice" if name in found else f"'{given}'"
            raise ConfigError(f"expected NAME=RUN, got {got}", where=f"--label {given}")
        found[name] = Path(run)
    return found
