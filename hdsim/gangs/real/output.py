"""Files of a real run in a run directory, besides those of a simulated one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hdsim.gangs.output import write_run
from hdsim.gangs.real.run import RealRun
from hdsim.util.files import write_csv

_TIMES = ("entered", "began", "ended")


def write_real_run(path: Path, run: RealRun) -> dict[str, Any]:
    """Writes ``supersteps.csv``, ``metrics.json``, ``barriers.csv`` and ``faults.csv``.

    Returns:
        Entries of the manifest.
    """
    begin = run.begin
    reports = [list(entry["tasks"].values()) for entry in run.entries]
    columns = {
        "attempts": [str(entry["attempt"]) for entry in run.entries],
        "predicted": [f"{value:.6f}" for value in run.predicted.max(axis=1)],
        **{f"predicted_{task}": [f"{value:.6f}" for value in run.predicted[:, j]] for j, task in enumerate(run.tasks)},
    }
    write_run(path, run, np.array([min(report["began"] for report in each) for each in reports]) - begin, columns)
    write_csv(
        path / "barriers.csv",
        ["superstep", "attempt", "task", "process", *_TIMES],
        (
            [entry["superstep"], entry["attempt"], task, report["member"]]
            + [f"{report[key] - begin:.6f}" for key in _TIMES]
            for entry in run.entries
            for task, report in entry["tasks"].items()
        ),
    )
    write_csv(
        path / "faults.csv",
        ["time", "superstep", "attempt", "fault"],
        ([f"{each['time'] - begin:.6f}", each["superstep"], each["attempt"], each["fault"]] for each in run.faults),
    )
    return {"starts": len(run.starts)}
