"""Metrics of one's own: in runs, comparisons and searches."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.errors import ConfigError
from hdsim.results.own_metrics import evaluate, load_metrics

Hdsim = Callable[..., "subprocess.CompletedProcess[str]"]
SMALL = ("platform=teaching", "workload.path=even_1000", "workload.jobs=30")
MINE = '''
import numpy as np
import hdsim


@hdsim.metric(unit="s", better="lower")
def last_wait(result):
    """Waiting time of the last job."""
    return result.jobs["waiting_time"][-1]


@hdsim.metric(better="higher")
def area(result):
    """Cores times execution time."""
    return result.jobs["execution_time"] * result.workload.requested_cores


@hdsim.metric
def undefined(result):
    return None


def helper(result):
    return 1
'''


def metrics_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "metrics.json").read_text())
    return found


def one(tmp_path: Path, body: str) -> str:
    """Writes a file with one metric, `mine`, of a body."""
    (tmp_path / "one.py").write_text(f"import hdsim\n\n\n@hdsim.metric\ndef mine(result):\n    {body}\n")
    return str(tmp_path / "one.py")


def test_numbers_arrays_and_none(hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    done = hdsim("run", *SMALL, "agent=fcfs", "metrics=[mine.py]", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    plain = hdsim("run", *SMALL, "agent=fcfs", "hydra.run.dir=plain")
    assert plain.returncode == 0, plain.stderr
    own, known = metrics_of(tmp_path / "run"), metrics_of(tmp_path / "plain")
    assert {name: own[name] for name in known} == known
    lines = [line.split(",") for line in (tmp_path / "run/jobs.csv").read_text().splitlines()]
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    area = [float(row["execution_time"]) * int(row["requested_number_of_resources"]) for row in rows]
    assert own["last_wait"] == pytest.approx(float(rows[-1]["waiting_time"]), abs=1e-6)
    assert own["undefined"] is None
    assert own["mean_area"] == pytest.approx(np.mean(area), rel=1e-6)
    assert own["p95_area"] == pytest.approx(np.percentile(area, 95), rel=1e-6)
    assert own["max_area"] == pytest.approx(max(area), rel=1e-6)
    table = [line.split() for line in done.stdout.splitlines()]
    assert any(line[0] == "last_wait" and line[-1] == "s" for line in table if line)
    assert any(line[0] == "area" for line in table if line)


@pytest.mark.ci
def test_comparison_knows_the_direction(hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    sweep = ("run", "-m", *SMALL, "agent=fcfs,sjf", "metrics=mine.py", "hydra.sweep.dir=sweep")
    assert hdsim(*sweep).returncode == 0
    # The file is not needed to compare, and metrics are no setting in which runs differ.
    assert hdsim("run", *SMALL, "agent=easy", "metrics=[mine.py]", "hydra.run.dir=single").returncode == 0
    (tmp_path / "mine.py").rename(tmp_path / "gone.py")
    compared = hdsim("compare", "sweep", "single", "--metric", "mean_area", "--metric", "last_wait")
    assert compared.returncode == 0, compared.stderr
    assert "mean_area (higher is better)" in compared.stdout
    assert "last_wait (s, lower is better)" in compared.stdout
    assert "metrics=" not in compared.stdout
    listed = hdsim("compare", "sweep")
    assert "mean_area (higher is better)" in listed.stdout
    assert "max_area" not in listed.stdout
    page = hdsim("report", "single")
    assert page.returncode == 0, page.stderr
    assert "last wait" in (tmp_path / "single/report.html").read_text()


@pytest.mark.requires("optuna")
def test_a_search_by_a_metric(hdsim: Hdsim, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    given = ("tune", *SMALL, "agent=classic", "tune.space.agent=choice(fcfs,sjf)", "tune.trials=2", "metrics=[mine.py]")
    tuned = hdsim(*given, "tune.metric=last_wait", "hydra.run.dir=tune")
    assert tuned.returncode == 0, tuned.stderr
    assert "last_wait" in (tmp_path / "tune/tune.csv").read_text().splitlines()[0]
    refused = hdsim(*given, "tune.metric=undefined", "hydra.run.dir=other")
    assert refused.returncode == 2
    assert "tune.metric: expected a metric whose high or low values are better" in refused.stderr


@pytest.mark.ci
def test_runs_with_other_definitions_are_not_compared(hdsim: Hdsim, tmp_path: Path) -> None:
    for number, text in enumerate((MINE, MINE.replace('unit="s", better="lower"', 'unit="s", better="higher"'))):
        (tmp_path / "mine.py").write_text(text)
        run = hdsim(
            "run", *SMALL, f"agent={('fcfs', 'sjf')[number]}", "metrics=[mine.py]", f"hydra.run.dir=run{number}"
        )
        assert run.returncode == 0, run.stderr
    compared = hdsim("compare", "run0", "run1", "--metric", "last_wait")
    assert compared.returncode == 2
    assert "got lower [s] in " in compared.stderr and "run0 and higher [s] in " in compared.stderr
    assert hdsim("compare", "run0", "run1", "--metric", "makespan").returncode == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1 / 0", "metric 'mine': ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "metric 'mine': SystemExit: 3"),
        ("return 'much'", "metric 'mine': expected a number, None or an array of numbers, got str"),
        ("return float('inf')", "metric 'mine': expected finite numbers, got inf"),
    ],
)
def test_a_metric_that_fails_keeps_the_results(hdsim: Hdsim, tmp_path: Path, body: str, message: str) -> None:
    one(tmp_path, body)
    done = hdsim("run", *SMALL, "agent=fcfs", "metrics=[one.py]", "hydra.run.dir=run")
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "run/manifest.json").read_text())["status"] == "failed"
    found = metrics_of(tmp_path / "run")
    assert found["mine"] is None
    assert found["jobs_completed"] == 30
    assert len((tmp_path / "run/jobs.csv").read_text().splitlines()) == 31


@pytest.mark.parametrize(
    ("key", "content", "message"),
    [
        ("mine.py", "def f(result):\n    return 1\n", "marked with @hdsim.metric, found functions: f"),
        (
            "mine.py",
            "import hdsim\n\n\n@hdsim.metric\ndef makespan(result):\n    return 1\n",
            "expected another name than that of a metric of hdsim, got 'makespan'",
        ),
        (
            "mine.py",
            "import hdsim\n\n\n@hdsim.metric\ndef p95_waiting_time(result):\n    return 1\n",
            "expected another name than that of a metric of hdsim, got 'p95_waiting_time'",
        ),
        (
            "mine.py",
            "import hdsim\n\n\n@hdsim.metric(better='less')\ndef f(result):\n    return 1\n",
            "better: expected one of lower, neither, higher, got 'less'",
        ),
        ("nime.py", "import hdsim\n", "found no file 'nime.py' (did you mean 'mine.py'?)"),
        ("mine", "import hdsim\n", "a metric of an installed package, got 'mine'; installed: none"),
        ("math:cos", "import hdsim\n", "expected a function marked with @hdsim.metric, got <built-in function cos>"),
        ("math:cosine", "import hdsim\n", "'math' has no 'cosine'"),
        ("no_such:f", "import hdsim\n", "No module named 'no_such'"),
    ],
)
def test_mistakes_are_one_line_before_the_replay(
    hdsim: Hdsim, tmp_path: Path, key: str, content: str, message: str
) -> None:
    (tmp_path / "mine.py").write_text(content)
    done = hdsim("run", *SMALL, "agent=fcfs", f"metrics=[{key}]", "hydra.run.dir=run")
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run/jobs.csv").exists()


@pytest.mark.requires("torch")
def test_training_refuses(hdsim: Hdsim, tmp_path: Path) -> None:
    one(tmp_path, "return 1")
    done = hdsim("train", *SMALL, "metrics=[one.py]")
    assert done.returncode == 2
    assert "metrics: expected null" in done.stderr


def test_an_installed_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hdsim: Hdsim) -> None:
    (tmp_path / "their_metrics.py").write_text("import hdsim\n\n\n@hdsim.metric\ndef f(result):\n    return 7\n")
    info = tmp_path / "their_metrics-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-metrics\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hdsim.metrics]\nseven = their_metrics:f\n")
    done = hdsim("run", *SMALL, "agent=fcfs", "metrics=[seven,their_metrics:f]", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    found = metrics_of(tmp_path / "run")
    assert (found["seven"], found["f"]) == (7, 7)
    assert "seven" in hdsim("show", "metrics").stdout


def test_a_metric_is_a_function_at_the_prompt(tmp_path: Path) -> None:
    own = load_metrics(one(tmp_path, "return result.metrics['makespan'] * 2"))
    result = hdsim.simulate("teaching", "even_1000", "fcfs")
    values, faults = evaluate(own, result)
    assert not faults
    assert values["mine"] == own[0].function(result) == 2 * result.metrics["makespan"]
    with pytest.raises(ConfigError, match="better: expected one of"):
        hdsim.metric(better="best")
