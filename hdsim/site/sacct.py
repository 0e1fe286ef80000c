"""Reading of the lines of sacct: ``sacct --parsable2`` or ``--parsable``, any columns in any order, also gzip.

The rows of jobs become texts by column; steps are counted and left out. Rows that are broken over several lines or have
a ``|`` in a text are mended where that is possible in one way only, the others are left out, with their places.
"""

from __future__ import annotations

import gzip
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import polars as pl

from hdsim.errors import ConfigError
from hdsim.site.notes import Notes
from hdsim.util.text import shown

#: The columns that are read, by the names of sacct without blanks in lower case.
COLUMNS = (
    *("jobid", "jobidraw", "jobname", "user", "uid", "account", "group", "partition", "qos", "submit", "eligible"),
    *("start", "end", "elapsedraw", "elapsed", "timelimitraw", "timelimit", "suspended", "state", "nnodes", "ncpus"),
    *("allocnodes", "alloccpus", "reqcpus", "reqnodes", "reqmem", "reqtres", "alloctres", "reqgres", "allocgres"),
    *("nodelist", "priority", "reason", "reservation", "constraints", "licenses", "submitline", "restarts", "cluster"),
)
#: The command that gives all that an import can use.
_FORMAT = (
    "JobID,JobIDRaw,JobName,User,Account,Partition,QOS,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,Suspended,State,"
    "NNodes,NCPUS,ReqCPUS,ReqMem,ReqNodes,ReqTRES,AllocTRES,NodeList,Priority,Reason,Reservation,Constraints,SubmitLine"
)
COMMAND = f"sacct -a -D --parsable2 -S START -E END --format={_FORMAT}"
_MADE_BY = f"it is made by: {COMMAND}"
#: The columns that sacct prints by default.
DEFAULT_COLUMNS = ("jobid", "jobname", "partition", "account", "alloccpus", "state", "exitcode")
#: Slurm's words for states of jobs.
STATES = (
    *("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"),
    *("BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REQUEUED", "RESIZING", "REVOKED", "COMPLETING", "CONFIGURING"),
    *("SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"),
)
#: Columns of which a dump has at least one.
_NEEDED = {
    "a column Submit, or at least Start": {"submit", "eligible", "start"},
    "a column ElapsedRaw, Elapsed or End": {"elapsedraw", "elapsed", "end"},
    "a column with CPUs, such as NCPUS or AllocTRES": {"ncpus", "alloccpus", "reqcpus", "reqtres", "alloctres"},
}
#: Columns of free text, which may have a ``|``.
_FREE = (
    *("jobname", "comment", "admincomment", "systemcomment", "extra", "submitline", "workdir", "failednode"),
    "constraints",
)
#: Most ways to divide the surplus of a row that are tried.
_WAYS = 5000
#: The beginning of a text of SubmitLine as a rule.
_COMMAND = re.compile(r"\s*(\S*/)?(sbatch|srun|salloc)(\s|$)")
_JOB_ID = r"\d+(_(\d+|\[[^\]]*\]?))?(\+\d+)?"
_TIME = r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([+-]\d\d:?\d\d|Z)?|\d{1,12}|Unknown|None|N/A|INVALID|NONE)?"
#: Forms of the cells of some columns.
_PATTERNS = {
    "jobid": re.compile(rf"{_JOB_ID}(\..*)?"),
    "constraints": re.compile(r"([^\s|](\S*[^\s|])?)?"),
    "jobidraw": re.compile(r"\d+(\..*)?"),
    **dict.fromkeys(("submit", "eligible", "start", "end"), re.compile(_TIME)),
    "state": re.compile(rf"({'|'.join(STATES)})( by \S+|\+)?"),
    **dict.fromkeys(("elapsedraw", "priority", "nnodes", "reqnodes", "ncpus"), re.compile(r"-?\d*")),
    **dict.fromkeys(("elapsed", "suspended"), re.compile(r"[-\d:.]*|INVALID")),
    **dict.fromkeys(("exitcode", "derivedexitcode"), re.compile(r"[\d:]*")),
    **dict.fromkeys(("reqtres", "alloctres"), re.compile(r"([^=,]+=[^=,]*(,|$))*")),
}
#: Bytes of a file that are looked at together.
_BLOCK = 1 << 25
#: Malformed lines that are kept to be mended.
_KEPT = 100_000


@dataclass
class _Damaged:
    """Malformed lines of a file."""

    lines: list[tuple[int, str]] = field(default_factory=list)  # number and text
    count: int = 0

    def add(self, numbers: Sequence[int], texts: Sequence[str]) -> None:
        self.count += len(numbers)
        room = _KEPT - len(self.lines)
        self.lines += zip(numbers[:room], texts[:room], strict=True)


def read_sacct(paths: Sequence[Path], notes: Notes) -> pl.DataFrame:
    """Returns the rows of jobs of some files: columns of texts, and ``file`` and ``line``.

    Raises:
        ConfigError: A file cannot be read, has no header and other columns than the default ones, lacks job ids or
            times, or most of its lines are malformed.
    """
    return pl.concat([_read(path, number, notes) for number, path in enumerate(paths)], how="diagonal")


def _read(path: Path, number: int, notes: Notes) -> pl.DataFrame:
    header: list[str] = []
    frames: list[pl.DataFrame] = []
    damaged, rows, steps = _Damaged(), 0, 0
    for first, block in _blocks(path):
        lines = pl.DataFrame({"text": pl.Series([block]).str.split("\n").explode()})
        lines = lines.with_row_index("line", first).with_columns(pl.col("text").str.strip_chars_end("\r"))
        lines = lines.filter(pl.col("text").str.strip_chars() != "")
        if not header and lines.height:
            header = _header(lines["text"][0], f"{path}:{lines['line'][0]}")
        good, bad, again = _sorted_out(lines, header)
        for text in again:
            if _names(text) != header:
                expected = "expected one header in a file, got another one with other columns"
                raise ConfigError(f"{expected}; import the files one by one: {shown(text)}", where=str(path))
        rows += lines.height - len(again)
        steps += good[1]
        frames.append(good[0])
        damaged.add(bad["line"].to_list(), bad["text"].to_list())
    if not header:
        raise ConfigError(f"expected the output of sacct, got an empty file; {_MADE_BY}", where=str(path))
    mended = _mended(damaged.lines, header, path, notes)
    notes.leave_out(path.name, "damaged lines: more than are looked at", count=damaged.count - len(damaged.lines))
    left = damaged.count - sum(count for _, _, count in mended)
    if left > max(rows - damaged.count, 0) and left:
        line, text = damaged.lines[0]
        expected, others = f"expected {len(header)} columns separated by | as in its first line", "others"
        if text.count("|") + 1 == len(header):
            expected, others = f"{expected}, with number and state of a job", "something else"
        raise ConfigError(
            f"{expected}, got {left:,} of {rows:,} lines with {others}, the first with {text.count('|') + 1}: "
            f"{shown(text)}; {_MADE_BY}",
            where=f"{path}:{line}",
        )
    known = [name for name in COLUMNS if name in header]
    kept: dict[str, list[str]] = {name: [] for name in known}
    places: list[int] = []
    for line, cells, _ in mended:
        if re.match(r"\d[^.\[]*\.", cells[_id_place(header)]):
            steps += 1
            continue
        places.append(line)
        for name in known:
            kept[name].append(cells[header.index(name)])
    if places:
        schema = dict.fromkeys(known, pl.String)
        more = pl.DataFrame(kept, schema=schema).with_columns(pl.Series("line", places, pl.UInt32))
        frames.append(more.select(frames[0].columns))
    notes.read[path.name] = notes.read.get(path.name, 0) + rows
    notes.leave_out(path.name, "steps of jobs (.batch, .extern, .0)", count=steps)
    return pl.concat(frames).sort("line").with_columns(pl.lit(number, pl.UInt32).alias("file"))


def _blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the number of the first line, and whole lines, without the last line break."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            file: BinaryIO = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
            first, rest = 1, b""
            while block := file.read(_BLOCK):
                if first == 1 and not rest:
                    block = block.removeprefix(b"\xef\xbb\xbf")
                if block.startswith((b"\xff\xfe", b"\xfe\xff")) and first == 1:
                    raise ConfigError("expected text in UTF-8, got UTF-16", where=str(path))
                whole, line_break, rest_of_block = block.rpartition(b"\n")
                if not line_break:
                    rest += block
                    continue
                text = (rest + whole).decode("utf-8", "replace")
                yield first, text
                first, rest = first + text.count("\n") + 1, rest_of_block
            if rest:
                yield first, rest.decode("utf-8", "replace")
    except EOFError:
        raise ConfigError("expected a complete gzip file, got one that is cut off", where=str(path)) from None
    except OSError as error:
        raise ConfigError(f"expected a file that can be read: {error.strerror or error}", where=str(path)) from None


def _names(line: str) -> list[str]:
    """The names of columns as a header has them; empty for what stands behind the last ``|`` of --parsable."""
    return [re.sub(r"%.*|[^a-z0-9]", "", cell.lower()) for cell in line.split("|")]


def _is_header(line: str) -> bool:
    return not {"jobid", "jobidraw"}.isdisjoint(_names(line))


def _header(line: str, where: str) -> list[str]:
    """Returns the columns of a file from its first line.

    Raises:
        ConfigError: They are unknown, or lack what an import needs.
    """
    if _is_header(line):
        names = _names(line)
        twice = next((name for name in names if name and names.count(name) > 1), None)
        if twice:
            raise ConfigError(f"expected each column once, got {twice} twice", where=where)
    else:
        names = _guessed(line, where)
    for wanted, columns in _NEEDED.items():
        if not columns & set(names):
            got = ", ".join(names[:12])
            raise ConfigError(f"expected {wanted}, got {got}; {_MADE_BY}", where=where)
    return names


def _guessed(line: str, where: str) -> list[str]:
    """Returns the columns of a file without a header: those of `COMMAND`, or those that sacct prints by default."""
    cells = line.split("|")
    if len(cells) == 1:
        expected = "expected columns separated by |, as sacct --parsable2 prints"
        raise ConfigError(f"{expected}, got {shown(line)}; {_MADE_BY}", where=where)
    end = [""] if not cells[-1] else []
    for columns in (_names(_FORMAT.replace(",", "|")), list(DEFAULT_COLUMNS)):
        for names in (columns, [*columns, *end]):
            if len(names) == len(cells) and _matches(cells, names):
                return names
    expected = "expected a header such as JobID|JobName|Submit"
    told = "leave out --noheader of sacct, or add the names of the columns as the first line"
    raise ConfigError(f"{expected}, got {len(cells)} columns without one: {shown(line)}; {told}", where=where)


def _id_place(header: Sequence[str]) -> int:
    """The place of the column with the id of a job."""
    return header.index("jobid") if "jobid" in header else header.index("jobidraw")


def _sorted_out(lines: pl.DataFrame, header: Sequence[str]) -> tuple[tuple[pl.DataFrame, int], pl.DataFrame, list[str]]:
    """Returns the rows of jobs by column with the number of steps, the malformed lines, and further headers."""
    separators, text = len(header) - 1, pl.col("text")
    place = _id_place(header)
    before = rf"^(?:[^|]*\|){{{place}}}" if place else "^"
    lines = lines.with_columns(
        found=text.str.count_matches("|", literal=True), id=text.str.extract(rf"{before}([^|]*)", 1).str.strip_chars()
    )
    is_header = pl.col("id").str.to_lowercase().is_in(["jobid", "jobidraw"]).fill_null(False)
    again = lines.filter(is_header)["text"].to_list()
    step = pl.col("id").str.contains(r"^\d[^.\[]*\.").fill_null(False)
    whole = (pl.col("found") == separators) & (step | pl.col("id").str.contains(rf"^({_JOB_ID})$").fill_null(False))
    if "state" in header:
        at = header.index("state")
        state = text.str.extract(rf"^(?:[^|]*\|){{{at}}}\s*([A-Z_]*)", 1)
        whole &= step | state.is_in(STATES).fill_null(False)
    lines = lines.filter(~is_header).with_columns(step=step, whole=whole)
    steps = lines.select((pl.col("step") & pl.col("whole")).sum()).item()
    bad = lines.filter(~pl.col("whole")).select("line", "text")
    jobs = lines.filter(pl.col("whole") & ~pl.col("step"))
    if separators:
        jobs = jobs.select("line", text.str.split_exact("|", separators).struct.rename_fields(list(_unique(header))))
        jobs = jobs.unnest("text")
    else:
        jobs = jobs.select("line", text.alias(header[0]))
    known = [name for name in COLUMNS if name in header]
    return (jobs.select("line", *(pl.col(name).str.strip_chars() for name in known)), int(steps)), bad, again


def _unique(header: Sequence[str]) -> Iterator[str]:
    for place, name in enumerate(header):
        yield name or f"column {place}"


def _mended(
    lines: Sequence[tuple[int, str]], header: Sequence[str], path: Path, notes: Notes
) -> list[tuple[int, list[str], int]]:
    """Returns line, cells and number of lines of rows that can be mended, and notes the others."""
    mended: list[tuple[int, list[str], int]] = []
    position = 0
    while position < len(lines):
        number, text = lines[position]
        joined = _joined(lines, position, header)
        if joined is not None:
            cells, count = joined
            notes.change(path.name, "rows broken over several lines: joined", f"{path.name}:{number}")
            mended.append((number, cells, count))
            position += count
            continue
        whole = _without_surplus(text, header)
        where = f"{path.name}:{number}"
        if whole:
            notes.change(path.name, "rows with a | in a text: mended", where)
            mended.append((number, whole, 1))
        else:
            got = text.count("|") + 1
            if got == len(header):
                reason = "damaged lines: no number or state of a job"
            else:
                kind = "too few" if got < len(header) else "too many"
                reason = f"damaged lines: {kind} columns"
            notes.leave_out(path.name, reason, where)
        position += 1
    return mended


def _joined(lines: Sequence[tuple[int, str]], position: int, header: Sequence[str]) -> tuple[list[str], int] | None:
    """Returns the cells of a row that some lines in sequence make, and their number, at least 2."""
    number, text = lines[position]
    for count in range(1, min(50, len(lines) - position)):
        following, more = lines[position + count]
        if following != number + count:
            return None
        text = f"{text} {more}"
        cells = text.split("|")
        if len(cells) > len(header):
            return None
        if len(cells) == len(header) and _matches(cells, header):
            return cells, count + 1
    return None


def _without_surplus(text: str, header: Sequence[str]) -> list[str] | None:
    """Returns the cells of a row with too many, if the surplus can be in texts in one way only.

    Of several ways the one with a command in SubmitLine counts.
    """
    cells = text.split("|")
    surplus = len(cells) - len(header)
    if surplus <= 0:
        return None
    free = [place for place, name in enumerate(header) if name in _FREE]
    found = []
    for ends in itertools.islice(itertools.combinations_with_replacement(free, surplus), _WAYS):
        made, position = [], 0
        for place in range(len(header)):
            more = ends.count(place)
            made.append("|".join(cells[position : position + more + 1]))
            position += more + 1
        if _matches(made, header):
            found.append(made)
    if len(found) > 1 and "submitline" in header:
        at = header.index("submitline")
        found = [made for made in found if _COMMAND.match(made[at])]
    return found[0] if len(found) == 1 else None


def _matches(cells: Sequence[str], header: Sequence[str]) -> bool:
    """Whether cells look like those of their columns."""
    return all(
        name not in _PATTERNS or _PATTERNS[name].fullmatch(cell.strip())
        for cell, name in zip(cells, header, strict=True)
    )
