"""Agents as people first write them: what works, and what ends in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hdsim
from hdsim.cluster.state import FinalState
from hdsim.errors import ConfigError, DecisionError

JOBS = hdsim.Workload.from_columns(submission_time=[0, 0, 5, 5], runtime=[10, 10, 10, 10], requested_cores=[2, 2, 8, 1])
PLATFORM = hdsim.Platform.homogeneous(nodes=1, cores_per_node=8)


def every_job_that_fits(cluster: Any) -> None:
    for job in cluster.queue:
        if cluster.fits(job):
            cluster.start(job)


def test_a_loop_over_the_queue_may_start_jobs_and_a_function_is_an_agent() -> None:
    greedy = hdsim.simulate(PLATFORM, JOBS, "greedy").starting_time.tolist()
    assert hdsim.simulate(PLATFORM, JOBS, every_job_that_fits, check=True).starting_time.tolist() == greedy


def test_the_one_function_of_a_file_is_an_agent(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "def _queued(cluster):\n    return cluster.queue\n\n"
        "def mine(cluster):\n    for job in _queued(cluster):\n        cluster.fits(job) and cluster.start(job)\n"
    )
    greedy = hdsim.simulate(PLATFORM, JOBS, "greedy").starting_time.tolist()
    assert hdsim.simulate(PLATFORM, JOBS, {"path": str(path)}).starting_time.tolist() == greedy


def stops_the_clock(cluster: Any) -> None:
    every_job_that_fits(cluster)
    if cluster.now:
        cluster.now = 0.0


def shrinks_jobs(cluster: Any) -> None:
    for job in cluster.queue:
        cluster.size[job] = 1
    every_job_that_fits(cluster)


def shortens_jobs(cluster: Any) -> None:
    cluster.requested_time[0] = 1.0


def asks_for_less_memory(cluster: Any) -> None:
    cluster.requests.memory[0] = 0.0


def exchanges_estimates(cluster: Any) -> None:
    every_job_that_fits(cluster)
    cluster.requested_time = list(cluster.requested_time)


def forgets_jobs(cluster: Any) -> None:
    cluster.queue.clear()


def forgets_one_job(cluster: Any) -> None:
    every_job_that_fits(cluster)
    cluster.queue.pop(2, None)


def writes_a_date(cluster: Any) -> None:
    every_job_that_fits(cluster)
    cluster.finish_time[0] = 5.0


def replaces_states(cluster: Any) -> None:
    cluster.state.clear()


def forgets_what_runs(cluster: Any) -> None:
    every_job_that_fits(cluster)
    cluster.running.clear()


def exchanges_placements(cluster: Any) -> None:
    every_job_that_fits(cluster)
    cluster.running[0] = cluster.running[1]


def invents_a_start(cluster: Any) -> None:
    every_job_that_fits(cluster)
    cluster.starting[0] = 1.0


def replaces_the_queue(cluster: Any) -> None:
    every_job_that_fits(cluster)
    cluster.queue = None


OWNED = "cluster.queue, running, starting, starting_time, finish_time, state or requests"
CHANGED = f"has changed {OWNED}: agents read the state"


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (writes_a_date, f"writes_a_date {CHANGED}"),
        (replaces_states, f"replaces_states {CHANGED}"),
        (forgets_what_runs, f"forgets_what_runs {CHANGED}"),
        (exchanges_placements, f"exchanges_placements {CHANGED}"),
        (invents_a_start, f"invents_a_start {CHANGED}"),
        (replaces_the_queue, f"replaces_the_queue has replaced {OWNED}, size or requested_time"),
        (exchanges_estimates, f"exchanges_estimates has replaced {OWNED}"),
        (stops_the_clock, "stops_the_clock has changed cluster.now from 5 to 0"),
        (shrinks_jobs, "shrinks_jobs has changed the state of the cluster: job 0 has another size than it asked for"),
        (shortens_jobs, "shortens_jobs has changed the state of the cluster: job 0 has another requested time"),
        (asks_for_less_memory, f"asks_for_less_memory {CHANGED}"),
        (forgets_jobs, f"forgets_jobs {CHANGED}"),
        (forgets_one_job, f"forgets_one_job {CHANGED}"),
    ],
)
def test_an_agent_cannot_change_what_the_simulation_says(agent: Any, message: str) -> None:
    with pytest.raises(DecisionError, match=message):
        hdsim.simulate(PLATFORM, JOBS, agent)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("cores", "ids"), ("cores", "cores"), ("cores", "nodes"), ("quantities", "nodes"), ("quantities", "cpu")],
)
def test_placements_cannot_be_changed(kind: str, name: str) -> None:
    def writes_into_a_placement(cluster: Any) -> None:
        every_job_that_fits(cluster)
        for placement in cluster.running.values():
            getattr(placement, name)[0] = 7

    with pytest.raises(ValueError, match="read-only"):
        hdsim.simulate(hdsim.load_platform("ten_nodes", kind=kind), JOBS, writes_into_a_placement)


def test_the_author_is_named_by_class_and_method_in_single_steps_too() -> None:
    class Forgetful(hdsim.Agent):
        def decide(self, cluster: Any) -> None:
            cluster.queue.clear()

    simulation = hdsim.Simulation(PLATFORM, JOBS, Forgetful())
    with pytest.raises(DecisionError, match=r"Forgetful\.decide has changed cluster\.queue"):
        simulation.step()


@pytest.mark.parametrize("job", [None, "0", 1.0, True, [0]])
def test_what_is_no_job_cannot_be_started(job: Any) -> None:
    def agent(cluster: Any) -> None:
        cluster.start(job) if not isinstance(job, list) else cluster.kill(0.5)

    with pytest.raises(DecisionError, match="expected the number of a job"):
        hdsim.simulate(PLATFORM, JOBS, agent)


def test_a_run_is_checked_where_asked_for(hdsim: Any, tmp_path: Path) -> None:
    quick = ("run", "platform=teaching", "workload.path=even_1000", "workload.jobs=10")
    done = hdsim(*quick, "check=true", "hydra.run.dir=out")
    assert done.returncode == 0 and '"mode": "events"' in (tmp_path / "out/manifest.json").read_text()
    refused = hdsim(*quick, "check=maybe")
    assert refused.returncode == 2 and "check: expected true or false" in refused.stderr


def test_mistakes_with_classes_are_told() -> None:
    class Mine(hdsim.Agent):
        pass

    with pytest.raises(ConfigError, match=r"such as Mine\(\), got the class Mine"):
        hdsim.simulate(PLATFORM, JOBS, Mine)
    with pytest.raises(DecisionError, match=r"expected a method decide\(self, cluster\) of agent Mine"):
        hdsim.simulate(PLATFORM, JOBS, Mine())


def test_timers_that_start_nothing_end(caplog: pytest.LogCaptureFixture) -> None:
    passes = []

    def waits(cluster: Any) -> None:
        passes.append(cluster.now)
        cluster.call_me_later(cluster.now + 1)

    result = hdsim.simulate(PLATFORM, JOBS, waits)
    assert result.metrics["jobs_unfinished"] == 4
    assert 10_000 <= len(passes) < 10_100
    assert "none was started at 10000 instants on an idle platform" in caplog.text


@pytest.mark.ci
def test_a_pass_that_does_not_return_is_named_and_the_first_interruption_ends_it(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(
        "import hdsim\nfrom hdsim.simulation import watch\nwatch.NAMED = 1.0\n"
        "class Loop(hdsim.Agent):\n    def decide(self, cluster):\n        while True:\n            pass\n"
    )
    command = [sys.executable, "-m", "hdsim", "run", "platform=teaching", "workload.path=even_1000", "workload.jobs=5"]
    run = subprocess.Popen(
        [*command, "agent.path=loop.py", "hydra.run.dir=out"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(hdsim.__file__).parents[1])},
    )
    assert run.stderr is not None
    lines = []
    while not (lines and "decide() has run for" in lines[-1]):
        lines.append(run.stderr.readline())
        assert run.poll() is None
    run.send_signal(signal.SIGINT)
    _, rest = run.communicate()
    assert run.returncode == 1
    assert any(f"(loop.py:{line})" in lines[-1] for line in (6, 7))
    assert "hdsim: interrupted: decide() had run for" in rest and "(loop.py:" in rest
    assert '"status": "interrupted"' in (tmp_path / "out/manifest.json").read_text()


def test_timers_may_wait_for_the_night() -> None:
    def waits(cluster: Any) -> None:
        if cluster.now < 5000:
            cluster.call_me_later(cluster.now + 100)
        else:
            every_job_that_fits(cluster)

    assert hdsim.simulate(PLATFORM, JOBS, waits).starting_time.min() >= 5000


def test_a_cluster_and_its_queue_can_be_printed() -> None:
    simulation = hdsim.Simulation(PLATFORM, JOBS, "void")
    simulation.step()
    assert str(simulation.cluster) == "t=0 s, 8 of 8 cores idle, 0 running, queue: 0 (2 cores), 1 (2 cores)"
    assert str(simulation.cluster.queue) == "[0, 1]"
    listed = dir(simulation.cluster)
    assert {"now", "queue", "start", "fits", "kill", "call_me_later"} < set(listed)
    assert not {"adopt", "confirm_start", "hold", "release"} & set(listed)
    assert all(hasattr(simulation.cluster, name) for name in listed)


CALLS = ["sys.exit(0)", "raise EOFError", "raise GeneratorExit", "import click; raise click.Abort"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("at", ["import", "decide"])
def test_a_plug_in_cannot_end_the_program_without_a_word(hdsim: Any, tmp_path: Path, call: str, at: str) -> None:
    body = f"import sys\nimport hdsim\n{call if at == 'import' else ''}\nclass Mine(hdsim.Agent):\n"
    body += f"    def decide(self, cluster):\n        {call}\n"
    (tmp_path / "mine.py").write_text(body)
    done = hdsim(
        "run",
        "-m",
        "platform=teaching",
        "workload.path=even_1000",
        "workload.jobs=10",
        "agent.path=mine.py",
        "seed=1,2",
        "hydra.sweep.dir=out",
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "mine.py" in done.stderr + done.stdout
    assert not list(tmp_path.rglob(".lock"))


@pytest.mark.parametrize("platform", ["teaching", "ten_nodes"])
def test_a_job_is_shown_as_the_scheduler_may_see_it(platform: str) -> None:
    machine = hdsim.load_platform(platform)
    jobs = hdsim.Workload.from_columns(submission_time=[0, 5], runtime=[3, 4], requested_cores=[2, 1], user=[7, -1])
    simulation = hdsim.Simulation(machine, jobs, agent="fcfs")
    cluster = simulation.cluster
    for wrong in (0, 2, -1, "0", True):
        with pytest.raises(DecisionError, match="cannot be shown"):
            cluster.job(wrong)
    simulation.run_until(1.0)
    job = cluster.job(0)
    assert job[:4] == (0, FinalState.RUNNING, 2, 0) and (job.submission_time, job.requested_time, job.user) == (0, 3, 7)
    assert dict(job.extra) == {}
    assert job.starting_time == 0 and set(job.nodes) <= set(machine.node_names) and 1 <= len(job.nodes) <= 2
    simulation.run_until(9.5)
    assert cluster.job(0).state.name == "COMPLETED_SUCCESSFULLY" and not cluster.job(0).nodes
