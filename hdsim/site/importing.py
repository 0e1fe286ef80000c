"""Import of the files of a Slurm site: a platform, jobs and the rules of the site."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.errors import ConfigError
from hdsim.site.accounting import read_associations, read_dump, read_qos
from hdsim.site.accounts import accounts_of
from hdsim.site.anonymous import Anonymizer
from hdsim.site.formats import expand_nodes, fold_nodes, time_zone
from hdsim.site.model import Site, site_of
from hdsim.site.notes import Notes
from hdsim.site.platform import nodes_of, platform_document
from hdsim.site.sacct import COMMAND, read_sacct
from hdsim.site.sacct_jobs import jobs_of
from hdsim.site.slurm_conf import included_files, read_slurm_conf, read_topology
from hdsim.site.state import read_reservations, read_sinfo
from hdsim.site.topology import topology_of
from hdsim.util.files import writable, write_bytes
from hdsim.workload.parquet import write_table

if TYPE_CHECKING:
    import polars as pl

#: Files of a site, with the command or the folder that they come from.
FILES = {
    "slurm.conf": "/etc/slurm/slurm.conf",
    "topology.conf": "/etc/slurm/topology.conf",
    "sacct.txt": COMMAND,
    "assoc.txt": "sacctmgr -P show assoc tree",
    "cluster.cfg": "sacctmgr dump CLUSTER",
    "qos.txt": "sacctmgr -P show qos",
    "reservations.txt": "scontrol -o show reservation",
    "sinfo.txt": "sinfo",
}
#: Files that an import writes.
WRITTEN = ("platform.json", "site.yaml", "jobs.parquet", "import.json")
#: States of nodes in slurm.conf with which they take no jobs.
_NOT_UP = ("DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE")
#: Names of files with jobs, of which there may be several.
_SACCT = re.compile(r"sacct.*\.txt(\.gz)?", re.IGNORECASE)
#: Beginnings of files by what they are, for files of other names.
_CONTENTS = {
    "sacct.txt": r"(.*\|)?JobID(Raw)?\|",
    "reservations.txt": r"(ReservationName=|No reservations)",
    "topology.conf": r"SwitchName=",
    "cluster.cfg": r"(# To edit this file|Cluster - )",
    "assoc.txt": r"(.*\|)?(Account|User)\|",
    "qos.txt": r"Name\|",
    "sinfo.txt": r"(.*\s|.*\|)?(PARTITION|NODELIST|STATE)\b",
    "slurm.conf": r"\w+\s*=",
}


def site_files(sources: Sequence[Path], notes: Notes) -> dict[str, list[Path]]:
    """Returns the files of a site by their names in `FILES`, from folders and from files of any name.

    In a folder names decide, ``sacct*.txt`` and ``sacct*.txt.gz`` for jobs; other files are noted.

    Raises:
        ConfigError: A source is missing, a file is none of a site, or two files are of the same kind.
    """
    found: dict[str, list[Path]] = {}
    others: list[Path] = []
    for source in sources:
        if source.is_dir():
            for path in sorted(source.iterdir()):
                kind = _kind(path.name)
                if kind and path.is_file():
                    found.setdefault(kind, []).append(path)
                elif path.name not in WRITTEN:
                    others.append(path)
        elif source.exists():
            found.setdefault(_kind(source.name) or _kind_of_content(source), []).append(source)
        else:
            raise ConfigError(f"expected a folder with {', '.join(FILES)}, or such files", where=str(source))
    for kind, paths in found.items():
        if len(paths) > 1 and kind != "sacct.txt":
            raise ConfigError(f"expected one file as {kind}, got {', '.join(map(str, paths))}", where=str(paths[1]))
    included = {
        each
        for kind in ("slurm.conf", "topology.conf")
        for path in found.get(kind, ())
        for each in included_files(path)
    }
    for path in others:
        if path not in included:
            notes.leave_out(path.name, "not one of the files of a site")
    return found


def _kind(name: str) -> str | None:
    """Returns the kind of a file by its name, None if the name does not tell."""
    if _SACCT.fullmatch(name):
        return "sacct.txt"
    return name if name in FILES else None


def _kind_of_content(path: Path) -> str:
    """Returns the kind of a file by its first lines.

    Raises:
        ConfigError: It is none of a site, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            start = file.read(1 << 16)
        if start.startswith(b"\x1f\x8b"):
            with gzip.open(path) as file:
                start = file.read(1 << 16)
    except (OSError, EOFError) as error:
        raise ConfigError(f"expected a file that can be read: {error}", where=str(path)) from None
    text = start.decode("utf-8-sig", "replace")
    lines = [line for line in text.splitlines() if line.strip() and not re.match(r"#(?! To edit)", line)]
    for kind, pattern in _CONTENTS.items():
        if lines and re.match(pattern, lines[0]):
            return kind
    raise ConfigError(f"expected one of {', '.join(FILES)}, or a file with such content", where=str(path))


def import_site(sources: Sequence[Path], zone: str, notes: Notes, *, anonymize: bool = False) -> tuple[Site, Any]:
    """Reads a site and its jobs, None without a dump of sacct; see :func:`write_site`.

    Args:
        sources: A folder, or files; see :func:`site_files`.
        zone: Time zone of the times in the files.
        notes: Takes what is read, changed and left out.
        anonymize: Whether users, accounts, groups, jobs and reservations get new names.

    Raises:
        ConfigError: See :func:`read_site`, :func:`hdsim.site.sacct.read_sacct` and
            :func:`hdsim.site.sacct_jobs.jobs_of`.
    """
    files = site_files(sources, notes)
    site, jobs = _read(files, zone, notes, str(sources[0])), None
    dumps = files.get("sacct.txt", [])
    if dumps:
        jobs = jobs_of(read_sacct(dumps, notes), dumps, site, notes)
        missing = sorted(set(jobs["queue"].drop_nulls().unique()) - set(site.qos))
        if missing:
            notes.change(dumps[0].name, f"QOS that no file defines, taken as without limits: {', '.join(missing)}")
        document = site.model_dump() | {"begin": float(jobs["submission_time"][0])}
        document["qos"] |= {name: {} for name in missing}
        document["down"] = _never_used(site.down, jobs, notes)
        site = site_of(document, site.name)
    note_refused(site, notes)
    if anonymize:
        names = Anonymizer()
        jobs = None if jobs is None else names.jobs(jobs)
        site = names.site(site)
    return site, jobs


def _never_used(down: str, jobs: pl.DataFrame, notes: Notes) -> str:
    """Returns those of the nodes out of service on which no job of the log ran; the others count as in service."""
    if not down:
        return down
    lists = jobs["recorded_nodes"].drop_nulls().unique().to_list()
    used = {name for text in lists for name in expand_nodes(text)}
    nodes = expand_nodes(down)
    kept = [name for name in nodes if name not in used]
    if len(kept) < len(nodes):
        back = fold_nodes([name for name in nodes if name in used])
        notes.change("sinfo.txt", f"nodes out of service on which jobs of the log ran, taken as in service: {back}")
    return fold_nodes(kept) if kept else ""


def read_site(folder: Path, zone: str, notes: Notes) -> Site:
    """Reads what a folder has of the files of a site, but for its jobs.

    Raises:
        ConfigError: The folder or ``slurm.conf`` is missing, a file is malformed, or the time zone is unknown.
    """
    return _read(site_files([folder], notes), zone, notes, str(folder))


def _read(files: Mapping[str, Sequence[Path]], zone: str, notes: Notes, where: str) -> Site:
    time_zone(zone)
    if "slurm.conf" not in files:
        raise ConfigError("expected slurm.conf, which has the nodes and the partitions", where=where)
    document = read_slurm_conf(files["slurm.conf"][0], notes)
    document["time_zone"] = zone
    name = document.get("name", "")
    readers: dict[str, tuple[str, Callable[[Path], Any]]] = {
        "topology.conf": ("switches", lambda path: read_topology(path, notes)),
        "qos.txt": ("qos", lambda path: read_qos(path, notes)),
        "assoc.txt": ("associations", lambda path: read_associations(path, name, notes)),
        "cluster.cfg": ("associations", lambda path: read_dump(path, notes)),
        "reservations.txt": ("reservations", lambda path: read_reservations(path, zone, notes)),
        "sinfo.txt": ("down", lambda path: read_sinfo(path, notes)),
    }
    for file, (key, read) in readers.items():
        if file not in files:
            continue
        if key in document:
            notes.leave_out(file, f"{key}: read from another file")
        else:
            document[key] = read(files[file][0])
    document["down"] = _out_of_service(document, notes)
    return _completed(site_of(document, where), notes)


def _out_of_service(document: Mapping[str, Any], notes: Notes) -> str:
    """Returns the nodes out of service: those that sinfo shows so, or those whose State in slurm.conf says so.

    Nodes that are still to come are in no sinfo.
    """
    states = ("FUTURE",) if "down" in document else _NOT_UP
    down = expand_nodes(document["down"]) if document.get("down") else []
    for nodes, kind in document["nodes"].items():
        if kind.get("state") in states:
            notes.change(
                "slurm.conf", f"State={kind['state']}: out of service all the time, if no job of the log ran there"
            )
            down += expand_nodes(nodes)
    return fold_nodes(dict.fromkeys(down)) if down else ""


def _completed(site: Site, notes: Notes) -> Site:
    """Adds the QOS that associations and partitions name and no file defines."""
    named = {name for one in site.associations for name in (*one.qos, one.default_qos) if name}
    named |= {partition.qos for partition in site.partitions.values() if partition.qos}
    missing = sorted(named - set(site.qos))
    document: dict[str, Any] = site.model_dump()
    have = {name for name, _ in nodes_of(site)}
    document["down"] = _known_nodes(site.down, have, "sinfo.txt", notes)
    for name, one in site.reservations.items():
        nodes = _known_nodes(one.nodes, have, "reservations.txt", notes)
        document["reservations"][name]["nodes"] = nodes
    if missing and site.qos:
        notes.change("qos.txt", f"QOS that the file lacks, taken as without limits: {', '.join(missing)}")
    document["qos"] |= {name: {} for name in missing}
    return site_of(document, site.name)


def _known_nodes(listed: str, have: set[str], file: str, notes: Notes) -> str:
    """Returns those of some nodes that slurm.conf has, and notes the others."""
    names = [] if listed.upper() in ("", "ALL") else expand_nodes(listed)
    strange = [name for name in names if name not in have]
    if not strange:
        return listed
    notes.leave_out(file, f"nodes that slurm.conf does not have: {fold_nodes(strange)}")
    known = [name for name in names if name in have]
    return fold_nodes(known) if known else ""


def note_refused(site: Site, notes: Notes) -> None:
    """Notes the rules of a site that are not simulated or contradict each other, so that a replay of it is refused."""
    from hdsim.site.scheduler import refuse

    for rule in refuse(site):
        notes.leave_out("slurm.conf", f"{rule}: not simulated, replays are refused")
    place = {name: row for row, (name, _) in enumerate(nodes_of(site))}
    checks: dict[str, Callable[[], Any]] = {
        "assoc.txt": lambda: accounts_of(site),
        "topology.conf": lambda: topology_of(site, place),
    }
    for file, check in checks.items():
        try:
            check()
        except ConfigError as error:
            notes.leave_out(file, f"{error}: replays are refused")


def write_site(site: Site, notes: Notes, output: Path, jobs: pl.DataFrame | None = None) -> None:
    """Writes ``platform.json``, ``site.yaml``, ``import.json`` and, of jobs, ``jobs.parquet`` to a folder.

    The folder is created; jobs of an earlier import are removed first and new ones come last, so that an import that is
    cut short has none.

    Raises:
        ConfigError: The folder cannot be written.
        WorkloadError: The jobs cannot be written.
    """
    with writable("a folder", output):
        output.mkdir(parents=True, exist_ok=True)
        (output / "jobs.parquet").unlink(missing_ok=True)
    texts = {
        "platform.json": json.dumps(platform_document(site), indent=2) + "\n",
        "site.yaml": site.to_yaml(),
        "import.json": json.dumps(notes.document(), indent=2) + "\n",
    }
    for name, text in texts.items():
        write_bytes(output / name, text.encode(), ConfigError)
    if jobs is not None:
        nodes = nodes_of(site)
        header = {
            "Computer": site.name,
            "MaxNodes": str(len(nodes)),
            "MaxProcs": str(sum(kind.cpus for _, kind in nodes)),
            "TimeZoneString": site.time_zone,
            "UnixStartTime": f"{site.begin:.0f}",
        }
        write_table(jobs, output / "jobs.parquet", header)
