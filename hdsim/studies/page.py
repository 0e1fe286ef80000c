"""The page of a study."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from urllib.parse import quote

from hdsim.report.charts import duration
from hdsim.report.page import facts, heading, look, versions
from hdsim.studies.perform import StudyOutcome
from hdsim.studies.study import FIGURE_TYPES
from hdsim.studies.tables import Table


def render(outcome: StudyOutcome) -> str:
    """Returns the page: question, answer, tables, figures, expected numbers, and where all of it comes from."""
    study, facts = outcome.study, outcome.facts
    wrong = [finding for finding in outcome.findings if not finding.holds]
    warning = f"{len(wrong)} of {len(outcome.findings)} expected numbers differ; see below." if wrong else ""
    machine = facts["machine"]
    header = {
        "Machine": f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}",
        "Versions": versions(facts),
        "Seeds": ", ".join(map(str, facts["seeds"])) or "none",
        "Started": str(facts["start"]).replace("T", " ").replace("+00:00", " UTC"),
        "Took": duration(facts["duration"]),
        "Command": f"hdsim study {study.argument}",
    }
    parts = [f"<p class='question'>{escape(study.question)}</p>", _paragraphs(study.answer)]
    parts += [_figure(study.figures[name].title, file, outcome.directory) for name, file in outcome.figures.items()]
    parts += [_table(name, found, outcome.directory) for name, found in outcome.tables.items()]
    parts += [_expected(outcome), _runs(outcome)]
    content = heading(study.title, "study", warning, header, facts) + "".join(parts)
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n<link rel='icon' href='data:,'>\n"
        f"<title>{escape(study.title)}</title>\n{look()}\n</head>\n<body>\n"
        f"<main class='study'>{content}</main>\n</body>\n</html>\n"
    )


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(part)}</p>" for part in text.strip().split("\n\n") if part)


def _figure(title: str, file: Path, directory: Path) -> str:
    source = f"data:{FIGURE_TYPES[file.suffix]};base64,{base64.b64encode(file.read_bytes()).decode()}"
    where = quote(str(file.parent.relative_to(directory)))
    pages = "".join(f"<a href='{where}/{quote(found.name)}'>page</a>, " for found in sorted(file.parent.glob("*.html")))
    return (
        f"<figure><img src='{source}' alt='{escape(title)}'>"
        f"<figcaption>{escape(title)} ({pages}<a href='{where}/'>all files</a>)</figcaption></figure>"
    )


def _table(name: str, found: Table, directory: Path) -> str:
    links = ", ".join(f"<a href='tables/{name}.{ending}'>{ending}</a>" for ending in ("csv", "tex", "md"))
    note = f"<p class='note'>{escape(found.note)}</p>" if found.note else ""
    rows = ([*line, ""] for line in found.lines())
    numbers = facts(["", *found.heads(), ""], rows)
    title = escape(found.title or name)
    return f"<h2>{title}</h2><div class='scroll'>{numbers}</div>{note}<p class='note'>{links}</p>"


def _expected(outcome: StudyOutcome) -> str:
    if not outcome.findings:
        return ""
    rows = (
        [f"{item.row}: {item.column}", item.expected, item.found, "" if item.holds else "differs"]
        for item in outcome.findings
    )
    summary = f"{len(outcome.findings)} expected numbers, {sum(item.holds for item in outcome.findings)} as found"
    return (
        f"<details{'' if all(item.holds for item in outcome.findings) else ' open'}><summary>{summary}</summary>"
        f"<div class='scroll'>{facts(['', 'expected', 'found', ''], rows)}</div></details>"
    )


def _runs(outcome: StudyOutcome) -> str:
    lines = []
    for name, paths in outcome.runs.items():
        links = " ".join(
            f"<a href='{quote(str(path.resolve().relative_to(outcome.directory.resolve())))}/'>{escape(path.name)}</a>"
            for path in paths
        )
        command = escape(outcome.facts["commands"][name])
        lines.append(f"<dt><code>hdsim {command}</code></dt><dd>{links}</dd>")
    return f"<h2>Runs</h2><dl class='runs'>{''.join(lines)}</dl>" if lines else ""
