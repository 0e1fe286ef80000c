"""``hdsim study``: a whole table or figure by one command."""

from __future__ import annotations

import contextlib
import io
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from hdsim.cli.launch import stoppable
from hdsim.cli.parameters import FOLDER
from hdsim.util.files import replacing
from hdsim.util.text import format_table


@click.command()
@click.argument("name", required=False, metavar="[NAME]")
@click.option(
    "--check", is_flag=True, help="Execute the small version and compare its numbers; status 1 if one differs."
)
@click.option(
    "-o",
    "--output",
    type=FOLDER,
    metavar="DIR",
    help="Where all goes  [default: runs/NAME; of --check: nowhere].",
)
@click.option("-j", "--jobs", type=click.IntRange(1), metavar="N", help="Processes of each sweep.")
@click.option(
    "--data",
    type=FOLDER,
    default=Path("../shared/data"),
    metavar="DIR",
    show_default=True,
    help="Folder of reference data, for the studies that need some.",
)
def study(name: str | None, output: Path | None, jobs: int | None, data: Path, *, check: bool) -> None:
    """Executes a study: runs, tables, figures, a page, and a comparison with the numbers that are expected.

    NAME is that of a bundled study or a YAML file. Without it the bundled studies are listed.
    """
    from hdsim.studies.page import render
    from hdsim.studies.perform import perform
    from hdsim.studies.study import read_study, studies

    if name is None:
        known = studies()
        for key, value in known.items():
            click.echo(f"{key:{max(map(len, known))}}  {value.question}")
        return
    found = read_study(name)
    if check:
        found = found.small()
    with contextlib.ExitStack() as stack:
        if output is None:
            output = Path("runs", found.name)
            if check:
                output = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hdsim-")))
        output.mkdir(parents=True, exist_ok=True)
        stack.enter_context(stoppable("" if check else "; the same command goes on where it stopped"))
        outcome = perform(found, output, _launcher(jobs, quiet=check), data=data, figures=not check)
        page = output / "study.html"
        with replacing(page) as file:
            file.write(render(outcome))
    wrong = [finding for finding in outcome.findings if not finding.holds]
    if not check:
        for key, table in outcome.tables.items():
            click.echo(f"\n{table.title or key}\n{format_table([['', *table.columns], *table.lines()])}")
        click.echo(f"\npage    {page}\ntables  {output / 'tables'}")
    click.echo(f"{found.name}: {len(outcome.findings) - len(wrong)} of {len(outcome.findings)} numbers as expected")
    if wrong:
        lines = [(item.table, item.row, item.column, item.expected, item.found) for item in wrong]
        click.echo(format_table([("table", "row", "column", "expected", "found"), *lines]), err=True)
        raise click.exceptions.Exit(1)


def _launcher(jobs: int | None, *, quiet: bool) -> Callable[[Sequence[str]], None]:
    """Executes command lines of hdsim in this process; `quiet` shows what they print only if they fail."""
    commands = click.get_current_context().find_root().command

    def launch(arguments: Sequence[str]) -> None:
        line = list(arguments)
        if jobs and any(argument.startswith("hydra.sweep.dir=") for argument in line):
            line += ["--jobs", str(jobs)]
        printed = io.StringIO()
        try:
            with (
                contextlib.redirect_stdout(printed) if quiet else contextlib.nullcontext(),
                commands.make_context("hdsim", line) as context,
            ):
                commands.invoke(context)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None  # without its text, which is about one run or sweep
        except click.exceptions.Exit as ended:
            if ended.exit_code == 0:
                return
            click.echo(printed.getvalue(), nl=False)
            told = f"hdsim {shlex.join(arguments)} ended with status {ended.exit_code}"
            click.echo(f"hdsim: error: the study stops: {told}", err=True)
            raise

    return launch
