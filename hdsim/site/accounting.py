"""Reading of accounts and QOS: ``sacctmgr -P show assoc``, ``sacctmgr -P show qos`` and ``sacctmgr dump``.

Source of the columns: the manual page sacctmgr(1) of Slurm 22.05.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.site.formats import parse_time, parse_tres, read_text, read_value
from hdsim.site.notes import Notes
from hdsim.site.slurm_conf import count, grace, names, number

#: Columns of limits (lower case, without blanks), their keys in a site and how to read them.
_LIMITS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "grptres": ("grp_tres", parse_tres),
    "grptresmins": ("grp_tres_mins", parse_tres),
    "grptresrunmins": ("grp_tres_run_mins", parse_tres),
    "grpjobs": ("grp_jobs", count),
    "grpsubmit": ("grp_submit", count),
    "grpsubmitjobs": ("grp_submit", count),
    "grpwall": ("grp_wall", parse_time),
    "maxtres": ("max_tres", parse_tres),
    "maxtresperjob": ("max_tres", parse_tres),
    "maxtrespernode": ("max_tres_per_node", parse_tres),
    "maxtresmins": ("max_tres_mins", parse_tres),
    "maxtresminsperjob": ("max_tres_mins", parse_tres),
    "maxwall": ("max_wall", parse_time),
    "maxwalldurationperjob": ("max_wall", parse_time),
    "maxjobs": ("max_jobs", count),
    "maxsubmit": ("max_submit", count),
    "maxsubmitjobs": ("max_submit", count),
    "mintres": ("min_tres", parse_tres),
    "mintresperjob": ("min_tres", parse_tres),
}
#: Of QOS alone.
_QOS_LIMITS: dict[str, tuple[str, Callable[[str], Any]]] = {
    **_LIMITS,
    "maxtrespu": ("max_tres_per_user", parse_tres),
    "maxtresperuser": ("max_tres_per_user", parse_tres),
    "maxtrespa": ("max_tres_per_account", parse_tres),
    "maxtresperaccount": ("max_tres_per_account", parse_tres),
    "maxjobspu": ("max_jobs", count),
    "maxjobsperuser": ("max_jobs", count),
    "maxjobspa": ("max_jobs_per_account", count),
    "maxjobsperaccount": ("max_jobs_per_account", count),
    "maxsubmitpu": ("max_submit", count),
    "maxsubmitperuser": ("max_submit", count),
    "maxsubmitjobsperuser": ("max_submit", count),
    "maxsubmitpa": ("max_submit_per_account", count),
    "maxsubmitperaccount": ("max_submit_per_account", count),
    "maxsubmitjobsperaccount": ("max_submit_per_account", count),
}


#: A setting of a line of a dump.
_SETTING = re.compile(r":(\w+)=(?:'([^']*)'|([^:]*))")


def _qos_names(text: str) -> list[str]:
    return [name.lstrip("+") for name in names(text)]


def _shares(text: str) -> int | str:
    return "parent" if text.lower() == "parent" else int(number(text))


_QOS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "priority": ("priority", count),
    "gracetime": ("grace_time", grace),
    "preempt": ("preempt", _qos_names),
    "preemptexempttime": ("preempt_exempt_time", parse_time),
    "preemptmode": ("preempt_mode", str.upper),
    "flags": ("flags", names),
    "usagefactor": ("usage_factor", number),
    "usagethres": ("usage_threshold", number),
    "usagethreshold": ("usage_threshold", number),
}
_ASSOCIATION: dict[str, tuple[str, Callable[[str], Any]]] = {
    "share": ("shares", _shares),
    "fairshare": ("shares", _shares),
    "rawshares": ("shares", _shares),
    "priority": ("priority", count),
    "qos": ("qos", _qos_names),
    "defqos": ("default_qos", str),
    "defaultqos": ("default_qos", str),
    "partition": ("partition", str),
}
#: Columns that have no influence.
_IGNORED = re.compile(
    r"id|cluster|lft|rgt|parentid|defaultaccount|defaultwckey|adminlevel|coordinators?|description|organization|comment"
    r"|maxtresrunmins(pu|pa)?|classification|flags|wckeys?|partitionname"
)


def rows(path: Path) -> Iterator[tuple[dict[str, str], str]]:
    """Yields each row of a table with ``|`` between columns, by lower-case name without blanks, and its place.

    Raises:
        ConfigError: The file cannot be read, has no header, or a row has another number of columns.
    """
    header: list[str] = []
    for place, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        cells = line.split("|")
        if not header:
            if len(cells) < 2:
                expected = "expected a header such as Account|User|Share, as sacctmgr -P show prints"
                raise ConfigError(f"{expected}, got '{line[:60]}'", where=f"{path}:{place}")
            header = [re.sub(r"[^a-z]", "", cell.lower()) for cell in cells]
            continue
        if len(cells) != len(header):
            raise ConfigError(f"expected {len(header)} columns, got {len(cells)}", where=f"{path}:{place}")
        yield dict(zip(header, cells, strict=True)), f"{path}:{place}"


def _values(
    row: Mapping[str, str],
    table: Mapping[str, tuple[str, Callable[[str], Any]]],
    where: str,
) -> dict[str, Any]:
    """The values of a row that a table knows; empty ones are not set."""
    made = {}
    for column, (key, read) in table.items():
        text = row.get(column, "").strip()
        if not text:
            continue
        value = read_value(text, read, f"{where}: {column}")
        if not (value is None or (isinstance(value, float) and math.isinf(value))):
            made[key] = value
    return made


def _left(row: Iterable[str], tables: Iterable[Mapping[str, Any]], file: str, notes: Notes, where: str) -> None:
    """Notes the columns that nothing reads."""
    known = {column for table in tables for column in table}
    for column in row:
        if column and column not in known and not _IGNORED.fullmatch(column):
            notes.leave_out(file, f"{column}: not used", where)


def read_qos(path: Path, notes: Notes) -> dict[str, Any]:
    """Returns the documents of QOS by name; see `rows` for errors."""
    made: dict[str, Any] = {}
    for row, where in rows(path):
        if "name" not in row:
            raise ConfigError("expected a column Name, as sacctmgr -P show qos prints", where=where)
        _left([key for key in row if row[key].strip()], (_QOS, _QOS_LIMITS, {"name": 0}), path.name, notes, where)
        if row["name"] in made:
            notes.change(path.name, "QOS on several lines: as on the last one", where)
        made[row["name"]] = _qos(row, where)
    notes.read[path.name] = len(made)
    return made


def _qos(row: Mapping[str, str], where: str) -> dict[str, Any]:
    values = _values(row, _QOS, where)
    if values.get("preempt_mode") == "CLUSTER":
        del values["preempt_mode"]
    limits = _values(row, _QOS_LIMITS, where)
    return values | ({"limits": limits} if limits else {})


def _association(row: Mapping[str, str], where: str) -> dict[str, Any]:
    limits = _values(row, _LIMITS, where)
    return _values(row, _ASSOCIATION, where) | ({"limits": limits} if limits else {})


def read_associations(path: Path, cluster: str, notes: Notes) -> list[dict[str, Any]]:
    """Returns the documents of the associations of a cluster, accounts before their users; see `rows` for errors.

    The account above an account is that of the column ParentName or follows from the indentation of
    ``sacctmgr -P show assoc tree``; without either it is root.
    """
    made: list[tuple[int, dict[str, Any]]] = []
    above: list[tuple[int, str]] = []
    read = orphans = 0
    for row, where in rows(path):
        if "account" not in row:
            raise ConfigError("expected columns Account and User, as sacctmgr -P show assoc prints", where=where)
        read += 1
        if row.get("cluster", cluster) not in (cluster, ""):
            notes.leave_out(path.name, f"of cluster {row['cluster']}", where)
            continue
        others = dict.fromkeys(("account", "user", "parentname"))
        _left([key for key in row if row[key].strip()], (_ASSOCIATION, _LIMITS, others), path.name, notes, where)
        account, user = row["account"].strip(), row.get("user", "").strip()
        indent = len(row["account"]) - len(row["account"].lstrip())
        while above and above[-1][0] >= indent:
            above.pop()
        parent = row.get("parentname", "").strip() or (above[-1][1] if above else "")
        if not user:
            above.append((indent, account))
            orphans += not parent and account != "root"
        place = int(row["id"]) if row.get("id", "").isdecimal() else len(made)
        one = {"account": account, **({"user": user} if user else {}), **_association(row, where)}
        if parent not in ("", "root") and not user:
            one["parent"] = parent
        made.append((place, one))
    notes.read[path.name] = read
    if orphans > 1:
        reason = "account without a parent, taken as below root (add ParentName or use 'sacctmgr show assoc tree')"
        notes.change(path.name, reason, count=orphans)
    made.sort(key=lambda each: each[0])
    return [one for _, one in made]


def read_dump(path: Path, notes: Notes) -> list[dict[str, Any]]:
    """Returns the documents of the associations of a cluster from ``sacctmgr dump``.

    Raises:
        ConfigError: The file cannot be read, or a line has another form.
    """
    made: list[dict[str, Any]] = []
    parent, read = "root", 0
    for place, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{path}:{place}"
        found = re.match(r"\s*(\w+)\s*-\s*'?([^':]*)'?(.*)", line)
        if not found or found[1].lower() not in ("cluster", "parent", "account", "project", "user"):
            raise ConfigError(
                f"expected Cluster -, Parent -, Account - or User -, as sacctmgr dump writes, got '{line[:60]}'",
                where=where,
            )
        kind, name, rest = found[1].lower(), found[2].strip(), found[3]
        values = {key.lower(): quoted or bare for key, quoted, bare in _SETTING.findall(rest)}
        read += 1
        if kind == "parent":
            parent = name
        elif kind != "cluster":
            _left(values, (_ASSOCIATION, _LIMITS), path.name, notes, where)
            one = _association(values, where)
            if kind == "user":
                made.append({"account": parent, "user": name, **one})
            elif name != "root":
                made.append({"account": name, **({} if parent == "root" else {"parent": parent}), **one})
    notes.read[path.name] = read
    if not made:
        raise ConfigError("expected lines Account - and User -, as sacctmgr dump writes, got none", where=str(path))
    return made
