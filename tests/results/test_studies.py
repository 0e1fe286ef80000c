"""Studies: files, expected numbers, tables, pages, and the check of each study that comes with hdsim."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from conftest import DATA
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples, nightly

import hdsim as hdsim_package
from hdsim.report.statistics import Interval
from hdsim.studies.expected import agrees
from hdsim.studies.study import Study, read_study, studies
from hdsim.studies.tables import Table, write

ROOT = Path(__file__).resolve().parents[2]
#: Studies that come with hdsim, and those of research/, which go by the paths of their files.
STUDIES = studies() | {f"research/{path.name}": read_study(path) for path in sorted((ROOT / "research").glob("*.yaml"))}
#: Studies whose check replays agents that need torch.
LEARNED = ("checkpoint=", "controller=learned")
#: Checks of every change and of CI; all of them are in the nightly tier.
FAST = ("consolidation", "gaia")
IN_CI = ("protocol", "simulators", "speed")

Hdsim = Callable[..., subprocess.CompletedProcess[str]]

MARGINS = """
title: An agent of one's own
question: Is it better than four baselines?
tables:
  fresh:
    measure: hdsim.studies.measures.margins
    settings:
      windows: platform=teaching contention=threshold workload.jobs=25 workload.start=100,300 workload.runtime=requested
      baselines: agent=fcfs,greedy-laf agent.core_policy=high_gflops,pack
      agents: "mine: classic job_policy=saf"
      metrics: makespan=mine utilization=mine
      parts: "2"
      split: test
expected:
  fresh:
    "makespan: mine": {best baseline: BEST}
"""

OWN = """
title: Two orders
question: Does the shortest job first wait less?
commands:
  orders: run -m platform=teaching workload.jobs=60 agent=fcfs,sjf
tables:
  orders:
    title: Orders of the queue
    compare: orders
    metrics: [mean_waiting_time, mean_bounded_slowdown]
    differences: mean_waiting_time
  whole:
    runs: orders
    metrics: jobs_completed
figures:
  orders:
    title: Means
    draw: compare $runs/orders -o $here
    file: compare.png
expected:
  whole:
    orders fcfs:
      jobs_completed: 60
check:
  commands:
    orders: run -m platform=teaching workload.jobs=30 agent=fcfs,sjf
  expected:
    whole:
      orders fcfs:
        jobs_completed: 30
      orders sjf:
        jobs_completed: at least 30
"""


@pytest.mark.parametrize(
    ("expected", "cell", "holds"),
    [
        ("72.8", 72.83, True),
        ("72.8", 72.86, False),
        ("72.80", 72.83, False),
        ("15,230", 15230.4, True),
        ("15,230", 15231.0, False),
        ("-0.0046", -0.00461, True),
        ("3.878e9", 3.8777e9, True),
        ("3.878e9", 3.8789e9, False),
        ("1 to 2", 1.5, True),
        ("1 to 2", 2.01, False),
        ("at least 2", 2.0, True),
        ("at least 2", 1.9, False),
        ("at most 5", 5.1, False),
        ("154 [89, 228]", Interval(154.2, 88.9, 228.4, 8), True),
        ("154 [89, 228]", Interval(154.2, 88.4, 228.4, 8), False),
        ("154 [89, 228]", 154.0, False),
        ("154", Interval(154.2, 88.4, 228.4, 8), True),
        ("baseline", "baseline", True),
        ("baseline", 1.0, False),
        ("1", float("nan"), False),
        ("at least 1", float("nan"), False),
    ],
)
def test_a_number_is_expected_as_exactly_as_it_is_written(
    expected: str, cell: Interval | float | str, holds: bool
) -> None:
    assert agrees(expected, cell) is holds


@examples(50, 500)
@given(st.floats(-1e8, 1e8), st.integers(0, 6))
def test_a_rounded_number_agrees_with_its_value_and_with_no_other(value: float, digits: int) -> None:
    text = f"{value:.{digits}f}"
    assert agrees(text, value)
    assert agrees(f"{value:,.{digits}f}", value)
    assert not agrees(text, float(text) + 1.01 * 10.0**-digits)
    assert not agrees(text, float(text) - 1.01 * 10.0**-digits)


def test_tables_are_written_in_three_formats(tmp_path: Path) -> None:
    rows = {
        "a_b | c": {"n": 1234.5, "n, difference": "baseline"},
        "d": {"n": 2.0, "n, difference": Interval(1, 0.5, 2, 9)},
    }
    paths = write(Table("T", rows), tmp_path / "tables" / "t")
    assert [path.name for path in paths] == ["t.csv", "t.md", "t.tex"]
    assert list(csv.reader(paths[0].open())) == [
        ["", "n", "n, difference", "n, difference, low", "n, difference, high"],
        ["a_b | c", "1234.5", "baseline", "", ""],
        ["d", "2.0", "1", "0.5", "2"],
    ]
    assert paths[1].read_text().splitlines()[2:] == ["| a_b / c | 1,234.50 | baseline |", "| d | 2 | +1 [0.5000, 2] |"]
    assert r"a\_b | c & 1,234.50 & baseline \\" in paths[2].read_text()


@pytest.mark.ci
def test_an_own_study(hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(OWN)
    done = hdsim("study", "orders.yaml", "--check")
    assert (done.returncode, done.stdout) == (0, "orders: 2 of 2 numbers as expected\n"), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["orders.yaml"]

    done = hdsim("study", "orders.yaml", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert "orders: 1 of 1 numbers as expected" in done.stdout
    facts = json.loads((tmp_path / "out/study.json").read_text())
    assert facts["status"] == "as expected" and facts["seeds"] == [1]
    assert facts["machine"]["cores"] >= 1 and "hdsim" in facts["versions"]
    page = (tmp_path / "out/study.html").read_text()
    for text in (
        "Does the shortest job first wait less?",
        "Orders of the queue",
        "data:image/png;base64,",
        "agent=fcfs,sjf",
        "hdsim study orders.yaml",
    ):
        assert text in page
    for link in re.findall(r"href='(?!data:)([^']+)'", page):
        assert (tmp_path / "out" / unquote(link)).exists(), link
    rows = {line[""]: line for line in csv.DictReader((tmp_path / "out/tables/orders.csv").open())}
    runs = {
        json.loads((path / "manifest.json").read_text())["config"]["agent"]["job_policy"]: json.loads(
            (path / "metrics.json").read_text()
        )
        for path in (tmp_path / "out/runs/orders").iterdir()
        if path.is_dir()
    }
    for order in ("fcfs", "sjf"):
        assert float(rows[order]["mean_waiting_time"]) == runs[order]["mean_waiting_time"]

    again = hdsim("study", "orders.yaml", "-o", "out")
    assert again.returncode == 0 and "2 of 2 runs finished before" in again.stdout
    (tmp_path / "orders.yaml").write_text(OWN.replace("agent=fcfs,sjf\ntables", "agent=fcfs,ljf\ntables"))
    other = hdsim("study", "orders.yaml", "-o", "out")
    assert other.returncode == 2 and "expected the runs of the same commands, got others for orders" in other.stderr


@pytest.mark.ci
def test_runs_on_other_reference_data_are_no_runs_of_the_study(hdsim: Hdsim, tmp_path: Path, root: Path) -> None:
    """They would be counted together with those on the first data."""
    lines = (root / "workloads/even_1000.swf").read_text().splitlines(keepends=True)
    for name, skipped in (("one", 0), ("two", 40)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.swf").write_text("".join(lines[skipped:]))
    (tmp_path / "orders.yaml").write_text(
        "title: t\nquestion: q\ncommands:\n  a: run -m platform=teaching workload.path=$data/log.swf workload.jobs=9 "
        "agent=fcfs,sjf\ntables:\n  a: {compare: a, metrics: makespan}\n"
    )
    assert hdsim("study", "orders.yaml", "--data", "one", "-o", "out").returncode == 0
    other = hdsim("study", "orders.yaml", "--data", "two", "-o", "out")
    assert other.returncode == 2 and "expected the runs of the same commands, got others for a" in other.stderr
    assert hdsim("study", "orders.yaml", "--data", "one", "-o", "out").returncode == 0


@pytest.mark.ci
def test_margins_are_those_of_replays(hdsim: Hdsim, tmp_path: Path) -> None:
    platform = hdsim_package.load_platform("teaching")
    windows = [
        hdsim_package.load_workload("lublin_4000", platform, runtime="requested", seed=1)[first : first + 25]
        for first in (100, 300)
    ]
    names = ("fcfs-high_gflops", "fcfs-pack", "greedy-laf-high_gflops", "greedy-laf-pack", "saf-high_gflops")
    replays = {
        name: [hdsim_package.simulate(platform, jobs, name, contention="threshold", seed=1) for jobs in windows]
        for name in names
    }
    means = {
        name: {key: np.mean([each.metrics[key] for each in found]) for key in ("makespan", "utilization")}
        for name, found in replays.items()
    }
    own = means.pop("saf-high_gflops")
    best = {"makespan": min(means, key=lambda name: means[name]["makespan"])}
    best["utilization"] = max(means, key=lambda name: means[name]["utilization"])

    (tmp_path / "margins.yaml").write_text(MARGINS.replace("BEST", best["makespan"]))
    done = hdsim("study", "margins.yaml", "-o", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    for row in csv.DictReader((tmp_path / "out/tables/fresh.csv").open()):
        metric = row[""].partition(":")[0]
        baseline = means[best[metric]][metric]
        assert row["best baseline"] == best[metric]
        assert float(row["mean"]) == pytest.approx(own[metric])
        assert float(row["difference"]) == pytest.approx(own[metric] - baseline)
        assert float(row["ratio of means"]) == pytest.approx(own[metric] / baseline)
    scores = list(csv.DictReader((tmp_path / "out/scores/lublin_4000_on_teaching.csv").open()))
    assert len(scores) == 2 * len({"mine", *best.values()})
    log = (tmp_path / "test_sets.md").read_text()
    assert "lublin_4000 on teaching, number 1: 2 windows of 25 jobs of 2 traces, empty" in log

    (tmp_path / "margins.yaml").write_text(MARGINS.replace("saf", "learned").replace("BEST", best["makespan"]))
    other = hdsim("study", "margins.yaml", "-o", "other")
    assert other.returncode == 2 and "expected a test set that test_sets.md does not have" in other.stderr


@pytest.mark.ci
@pytest.mark.parametrize("order", ["saf", "wfp3", "multifactor"])
@pytest.mark.parametrize("cores", ["high_gflops", *nightly("low_power", "spread")])
def test_rules_differ_only_where_a_job_waits(order: str, cores: str) -> None:
    # Margins do not replay a baseline whose strict counterpart lets no job wait.
    platform = hdsim_package.load_platform("gaia")
    jobs = hdsim_package.load_workload("lublin_4000", platform, jobs=30, start=500, arrival_factor=0.1)
    strict = hdsim_package.simulate(platform, jobs, f"{order}-{cores}", contention="threshold", seed=3)
    assert strict.metrics["max_waiting_time"] == 0 and len(set(strict.finish_time)) > 20
    for rule in ("greedy", "easy", "conservative"):
        other = hdsim_package.simulate(platform, jobs, f"{rule}-{order}-{cores}", contention="threshold", seed=3)
        assert list(other.jobs["allocated_resources"]) == list(strict.jobs["allocated_resources"])
        assert (other.finish_time == strict.finish_time).all()


def test_a_number_that_differs_is_named(hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(OWN.replace("at least 30", "at least 31").replace("orders sjf", "orders sjf"))
    done = hdsim("study", "orders.yaml", "--check")
    assert done.returncode == 1
    assert done.stdout == "orders: 1 of 2 numbers as expected\n"
    assert re.search(r"^whole +orders sjf +jobs_completed +at least 31 +30$", done.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("question:", "qestion:", r"unknown key 'qestion' \(did you mean 'question'\?\)"),
        ("    compare: orders", "    compare: order", r"tables\.orders: expected the name of a command, got 'order'"),
        ("    compare: orders\n", "", r"tables\.orders: expected one of compare, runs and measure"),
        ("runs: orders", "measure: none.py", r"none\.py: expected a Python file beside the study"),
        ("runs: orders", "measure: hdsim.none", "cannot import 'hdsim.none'"),
        (
            "runs: orders",
            "measure: hdsim.studies.measures.windows\n    settings: {sources: home, platform: gaia}",
            r"settings\.platform: unknown setting; allowed: sources, orders, agents, .*, again$",
        ),
        (
            "runs: orders",
            "measure: hdsim.studies.measures.windows\n    settings: {sources: home, trace: '3'}",
            r"settings\.trace: unknown setting \(did you mean 'traces'\?\); allowed: sources",
        ),
        ("runs: orders", "measure: hdsim.studies.measures.windows", r"missing a required argument: 'sources'"),
        ("runs: orders", "measure: json.tool", r"expected a function measure\(runs, data, \*\*settings\)"),
        ("  whole:\n    orders fcfs", "  hole:\n    orders fcfs", r"expected the name of a table, got 'hole'"),
        (
            "title: Two orders",
            "needs: no.swf\ntitle: x",
            r"expected no\.swf of the reference data, which the study orders",
        ),
        ("agent=fcfs,sjf", "agent=fcfs,sfj", "sfj"),
        ("check:", "check: [", "expected YAML"),
        (
            "check:",
            "x: " + "[" * 5000 + "]" * 5000 + "\ncheck:",
            r"expected YAML.* nest(ed|ing)",
        ),
        (
            "  orders:\n    title",
            "  ../orders:\n    title",
            r"tables: expected a name of letters, .* got '\.\./orders'",
        ),
        ("check:", "check: all\nx:", r"check: expected a mapping"),
        (
            "  whole:\n    orders fcfs:\n      jobs",
            "  whole:\n    - jobs",
            r"expected: expected numbers by tables, rows",
        ),
        ("runs: orders", "runs: [[orders]]", r"runs: expected a text or a list of texts"),
        ("runs: orders", "runs: orders\n    settings: {a: b}", r"expected settings of a table with measure"),
        ("title: Two orders", "title: [a]", r"title: expected a text"),
        ("orders: run", "orders: run '", "No closing quotation"),
        (
            "file: compare.png",
            "file: compare.pdf",
            r"figures\.orders: expected a file that ends in \.png or \.svg, got 'compare.pdf'",
        ),
        ("check:", "figures: {}\ncheck:", r"orders.yaml: expected YAML: the key figures is there twice, line 24"),
    ],
)
def test_a_mistake_in_a_study_is_one_message(
    hdsim: Hdsim, tmp_path: Path, before: str, after: str, message: str
) -> None:
    assert before in OWN
    (tmp_path / "orders.yaml").write_text(OWN.replace(before, after))
    done = hdsim("study", "orders.yaml", "--check")
    assert done.returncode == 2
    assert re.search(message, done.stderr) and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("return 3", 2, "expected of measure a mapping from rows to mappings from columns to numbers, got int"),
        ("return {'a': 3}", 2, "numbers, got 3 in the row 'a'"),
        ("return {'a': {2: 3}}", 2, "numbers, got {2: 3} in the row 'a'"),
        ("return {'a': {'b': None}}", 2, "numbers, got None in the row a, column b"),
        ("raise SystemExit", 1, "measure raised SystemExit()"),
    ],
)
def test_what_is_measured_is_checked(hdsim: Hdsim, tmp_path: Path, body: str, status: int, message: str) -> None:
    (tmp_path / "mine.py").write_text(f"def measure(runs, data):\n    {body}\n")
    (tmp_path / "mine.yaml").write_text("title: a\nquestion: b\ntables:\n  t:\n    title: c\n    measure: mine.py\n")
    done = hdsim("study", "mine.yaml", "-o", "mine")
    assert done.returncode == status
    assert done.stderr.startswith("hdsim: error: ") and "mine.yaml: measure: " in done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr


def test_a_command_that_fails_stops_the_study(hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "import hdsim\nclass Bad(hdsim.Agent):\n    def decide(self, cluster):\n        1 / 0\n"
    )
    (tmp_path / "orders.yaml").write_text(OWN.replace("agent=fcfs,sjf", "agent.path=bad.py seed=1,2"))
    done = hdsim("study", "orders.yaml", "--check")
    assert done.returncode == 1
    assert "the study stops: hdsim run -m platform=teaching" in done.stderr


def test_the_list_names_every_study(hdsim: Hdsim) -> None:
    done = hdsim("study")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == sorted(
        path.stem for path in (ROOT / "conf/study").glob("*.yaml")
    )


def test_pages_with_the_numbers_name_their_study() -> None:
    assert all(study.docs and study.expected and study.small().expected for study in STUDIES.values())
    pages = [(page, name) for name, study in STUDIES.items() for page in study.docs]
    assert not [(page, name) for page, name in pages if f"hdsim study {name}" not in (ROOT / page).read_text()]


def _marks(study: Study) -> list[pytest.MarkDecorator]:
    small = study.small()
    settings = [text for table in small.tables.values() for text in table.settings.values()]
    lines = " ".join([*small.commands.values(), *settings])
    marks = [pytest.mark.requires("torch", "torch-geometric")] if any(text in lines for text in LEARNED) else []
    marks += [pytest.mark.requires("reference data")] if study.needs else []
    later = [pytest.mark.ci] if study.name in IN_CI else [pytest.mark.nightly]
    return marks + ([] if study.name in FAST else later)


@pytest.mark.parametrize(
    "study", [pytest.param(study, id=name, marks=_marks(study)) for name, study in STUDIES.items()]
)
@pytest.mark.ci
def test_the_numbers_of_a_study(hdsim: Hdsim, study: Study) -> None:
    done = hdsim("study", study.path, "--check", "--data", DATA)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
def test_runs_of_studies_are_repeated_byte_by_byte(hdsim: Hdsim, tmp_path: Path) -> None:
    for name in ("consolidation", "backfilling", "gaia"):
        assert hdsim("study", name, "--check", "-o", name).returncode == 0
    runs = sorted(manifest.parent for manifest in tmp_path.rglob("manifest.json"))
    assert len(runs) == 10
    for number, run in enumerate(runs):
        done = hdsim("rerun", run, "-o", f"again{number}")
        assert done.returncode == 0 and "files are identical" in done.stdout, done.stdout + done.stderr


def test_the_first_comparison_takes_at_most_six_commands() -> None:
    """`tests/docs/test_docs.py` executes them; the trace and the platform are the user's own."""
    install, _, page = (ROOT / "docs/install.md").read_text().partition("\n## A first comparison\n")
    assert "\n$ pip install hdsim\n" in install
    commands = re.findall(r"^((?:pip|hdsim) .*)$", page.replace("\\\n", ""), re.MULTILINE)
    own = [command for command in commands if "workload generate" not in command]
    assert 3 <= len(own) <= 5 and any("--latex" in command for command in own)
