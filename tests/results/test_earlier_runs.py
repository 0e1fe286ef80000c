"""Rows of jobs.csv for runs of requeued jobs that a scheduler has noted."""

from __future__ import annotations

import csv
from pathlib import Path

import hdsim
from hdsim.cluster.state import Cluster
from hdsim.results.run_directory.writers import write_jobs


class Requeues(hdsim.Agent):
    """Requeues the only job after two seconds, and has a further column from then on."""

    def begin(self, cluster: Cluster) -> None:
        self._restarts = [0]
        cluster.columns["restart"] = self._restarts

    def decide(self, cluster: Cluster) -> None:
        for job in cluster.ended:
            if job in cluster.queue:
                self._restarts[job] = cluster.note_run(job)
                cluster.columns["told"] = ["later"]
        if 0 in cluster.queue:
            cluster.start(0, cluster.pick(0))
            cluster.call_me_later(cluster.now + 2.0)
        elif 0 in cluster.running and cluster.now >= 2.0 and not self._restarts[0]:
            cluster.requeue(0)


def test_a_column_that_came_after_a_run_is_empty_in_its_row(tmp_path: Path) -> None:
    jobs = hdsim.Workload.from_columns(submission_time=[0], runtime=[5], requested_cores=[1])
    result = hdsim.simulate(hdsim.Platform.homogeneous(nodes=1, cores_per_node=1), jobs, Requeues())
    write_jobs(tmp_path / "jobs.csv", result)
    with (tmp_path / "jobs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["restart"], row["told"], float(row["finish_time"])) for row in rows] == [
        ("0", "", 2.0),
        ("1", "later", 7.0),
    ]
