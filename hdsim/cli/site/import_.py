"""``hdsim site import``: the files of a Slurm site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hdsim.cli.parameters import FOLDER, PATH

if TYPE_CHECKING:
    from hdsim.site.notes import Notes

#: Packages of the extra slurm.
_PACKAGES = ("ClusterShell", "polars", "pydantic")


@click.command(name="import")
@click.argument("sources", nargs=-1, required=True, type=PATH, metavar="FOLDER|FILE...")
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder to write, which is created.")
@click.option(
    "--timezone", default="UTC", show_default=True, metavar="ZONE", help="Zone of the times, such as Europe/Berlin."
)
@click.option("--anonymize", is_flag=True, help="Call users u1, accounts a1, groups g1, jobs j1 and reservations r1.")
def import_(sources: tuple[Path, ...], output: Path, timezone: str, *, anonymize: bool) -> None:
    """Read the files of a Slurm site.

    A folder holds slurm.conf and any of sacct.txt, or several sacct*.txt (sacct --parsable2), assoc.txt (sacctmgr -P
    show assoc) or cluster.cfg (sacctmgr dump), qos.txt (sacctmgr -P show qos), reservations.txt (scontrol -o show
    reservation), sinfo.txt and topology.conf. Files that are named one by one may have any name.
    """
    from hdsim.util.plugins import optional

    for package in _PACKAGES:
        optional(package)
    from hdsim.site.importing import import_site, write_site
    from hdsim.site.notes import Notes
    from hdsim.util.files import shown

    notes = Notes()
    site, jobs = import_site(sources, timezone, notes, anonymize=anonymize)
    write_site(site, notes, output, jobs)
    click.echo("\n".join(_told(notes, hidden=anonymize)))
    nodes = sum(len(group["names"]) for group in _groups(output))
    click.echo(f"\n{output}: {nodes:,} nodes, {len(site.partitions):,} partitions, {_jobs(jobs, timezone)}")
    folder = output.resolve()
    if jobs is None:
        click.echo("there is no sacct.txt, so there is no jobs.parquet; next:\n")
        click.echo(f"  hdsim platform show {shown(folder / 'platform.json')}")
    else:
        click.echo(f"next:\n\n  hdsim run site={shown(folder)}")


def _groups(output: Path) -> list[Any]:
    """The groups of nodes of the platform that was written."""
    import json

    document = json.loads((output / "platform.json").read_text(encoding="utf-8"))
    return [group for cluster in document["clusters"] for group in cluster["nodes"]]


def _jobs(jobs: Any, zone: str) -> str:
    """The number of jobs and their period, in words."""
    if jobs is None:
        return "no jobs"
    days = float(jobs["submission_time"][-1] - jobs["submission_time"][0]) / 86_400
    return f"{jobs.height:,} jobs submitted over {days:,.2f} days (times of the zone {zone}: --timezone)"


def _told(notes: Notes, *, hidden: bool) -> Sequence[str]:
    """Lines with what was read, left out and changed; places are not shown where they are hidden."""
    width = max(map(len, notes.read))
    lines = [f"{file.ljust(width)}  {count:>11,} read" for file, count in notes.read.items()]
    rows = list(notes.rows())
    if rows:
        width = max(len(file) for file, *_ in rows)
        lines.append("")
    for file, word, reason, count, places in rows:
        told = f"{file.ljust(width)}  {count:>11,} {word:<8}  {reason}"
        lines.append(f"{told} ({places})" if places and not hidden else told)
    return lines
