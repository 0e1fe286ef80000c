"""``hdsim report``: the report of a run as a page, or its panels as static figures."""

from __future__ import annotations

from pathlib import Path

import click

from hdsim.errors import ConfigError


@click.command()
@click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Page to write.  [RUN/report.html]"
)
@click.option(
    "--figures", metavar="DIR", type=click.Path(path_type=Path), help="Write static figures here instead of a page."
)
@click.option(
    "--format", "kind", type=click.Choice(["png", "svg"]), default="png", show_default=True, help="Of the figures."
)
def report(directory: Path, output: Path | None, figures: Path | None, kind: str) -> None:
    """Writes the report of a run: RUN/report.html, one page that any browser opens without a network.

    \b
    hdsim report runs/gaia
    hdsim report runs/gaia -o gaia.html
    hdsim report runs/gaia --figures figures --format svg
    """  # noqa: D301 - click reads the backspace character
    from hdsim.results.run_directory.reader import read

    run = read(directory)
    if run.dead:
        click.echo(f"hdsim: {directory}: {run.dead}; the report shows what it has left", err=True)
    if figures:
        from hdsim.report.figures import write_all

        try:
            written = write_all(run, figures, kind)
        except OSError as error:
            raise _unwritable("a directory", error, figures) from None
        for path in written:
            click.echo(path)
    if output or not figures:
        from hdsim.report.html import write

        page = output or directory / "report.html"
        try:
            write(run, page)
        except OSError as error:
            raise _unwritable("a file", error, page) from None
        click.echo(page)


def _unwritable(what: str, error: OSError, path: Path) -> ConfigError:
    return ConfigError(f"expected {what} that can be written, got: {error.strerror}", where=str(path))
