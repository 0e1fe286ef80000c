"""Import of the files of a Slurm site: a platform, jobs and the rules of the site."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.site.accounting import read_associations, read_dump, read_qos
from hdsim.site.formats import time_zone
from hdsim.site.model import Site, site_of
from hdsim.site.notes import Notes
from hdsim.site.platform import platform_document
from hdsim.site.slurm_conf import read_slurm_conf, read_topology
from hdsim.site.state import read_reservations, read_sinfo

#: Files of a site, with the command or the folder that they come from.
FILES = {
    "slurm.conf": "/etc/slurm/slurm.conf",
    "topology.conf": "/etc/slurm/topology.conf",
    "sacct.txt": "sacct -a -D --parsable2",
    "assoc.txt": "sacctmgr -P show assoc tree",
    "cluster.cfg": "sacctmgr dump CLUSTER",
    "qos.txt": "sacctmgr -P show qos",
    "reservations.txt": "scontrol -o show reservation",
    "sinfo.txt": "sinfo",
}


def read_site(folder: Path, zone: str, notes: Notes) -> Site:
    """Reads what a folder has of the files of a site, but for its jobs.

    Raises:
        ConfigError: The folder or ``slurm.conf`` is missing, a file is malformed, or the time zone is unknown.
    """
    time_zone(zone)
    if not folder.is_dir():
        raise ConfigError(f"expected a folder with {', '.join(FILES)}", where=str(folder))
    if not (folder / "slurm.conf").is_file():
        raise ConfigError("expected slurm.conf, which has the nodes and the partitions", where=str(folder))
    document = read_slurm_conf(folder / "slurm.conf", notes)
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
        if not (folder / file).is_file():
            continue
        if key in document:
            notes.leave_out(file, f"{key}: read from another file")
        else:
            document[key] = read(folder / file)
    for path in sorted(folder.iterdir()):
        if path.name not in FILES and path.name.removesuffix(".gz") not in FILES:
            notes.leave_out(path.name, "not one of the files of a site")
    return _completed(site_of(document, str(folder)), notes)


def _completed(site: Site, notes: Notes) -> Site:
    """Adds the QOS that associations and partitions name and no file defines."""
    named = {name for one in site.associations for name in (*one.qos, one.default_qos) if name}
    named |= {partition.qos for partition in site.partitions.values() if partition.qos}
    missing = sorted(named - set(site.qos))
    document: dict[str, Any] = site.model_dump()
    if missing and site.qos:
        notes.change("qos.txt", f"QOS that the file lacks, taken as without limits: {', '.join(missing)}")
    document["qos"] |= {name: {} for name in missing}
    return site_of(document, site.name)


def write_site(site: Site, notes: Notes, output: Path) -> None:
    """Writes ``platform.json``, ``site.yaml`` and ``import.json`` to a folder, which is created.

    Raises:
        ConfigError: The folder cannot be written.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        text = json.dumps(platform_document(site), indent=2)
        (output / "platform.json").write_text(f"{text}\n", encoding="utf-8")
        (output / "site.yaml").write_text(site.to_yaml(), encoding="utf-8")
        (output / "import.json").write_text(f"{json.dumps(notes.document(), indent=2)}\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", where=str(output)) from None
