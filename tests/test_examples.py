"""The examples run as their own headers say."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_best_fit(hdsim):
    done = hdsim("run", f"agent.path={EXAMPLES / 'best_fit.py'}", "agent.patience=3600", "workload.jobs=200")
    assert done.returncode == 0, done.stderr
    assert "jobs_completed" in done.stdout


def test_energy_of_pairs(tmp_path, root):
    done = subprocess.run(
        [sys.executable, EXAMPLES / "energy_of_pairs.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 7


def test_look_ahead(hdsim):
    done = hdsim("run", f"agent.path={EXAMPLES / 'look_ahead.py'}", "agent.candidates=[fcfs,sjf]", "workload.jobs=40")
    assert done.returncode == 0, done.stderr
    assert "jobs_completed" in done.stdout
