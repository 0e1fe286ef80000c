"""Accounting of the seconds between a run of a gang and a lower bound: closed forms, sums, and the command."""

from __future__ import annotations

import csv
import itertools
import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import Warm
from gang_inputs import noisy, random_generators
from hypothesis import given
from numpy.typing import NDArray
from tiers import examples

from hdsim.gangs.accounting import Knowledge, account, shapley
from hdsim.gangs.controllers import DynamicMpc
from hdsim.gangs.planner import Budget, ExactPlanner, GreedyPlanner
from hdsim.gangs.simulation import Gang
from hdsim.simulation.alone import run_alone

THREE = ("~tasks", "+tasks={cap: a, zero: b, memcpy: c}", "shares.total=9000")


def test_the_slowest_task_alone_is_the_airport_game() -> None:
    # Errors of task j make a superstep c_j seconds longer, and the largest one counts. Littlechild and Owen (1973): all
    # three share the first second, the last two the next two seconds, and the rest is due to the last task.
    costs = np.array([1.0, 3.0, 6.0])

    def longest(known: frozenset[int]) -> NDArray[np.float64]:
        left = [costs[task] for task in range(3) if task not in known]
        return np.array([max(left, default=0.0)])

    shares, errors = shapley(longest, 3, orders=6)
    assert shares[:, 0] == pytest.approx([1 / 3, 1 / 3 + 2 / 2, 1 / 3 + 2 / 2 + 3])
    assert (errors == 0).all()


@examples(20)
@given(random_generators)
def test_sampled_orders_add_up_and_are_exact_for_costs_that_add_up(rng: np.random.Generator) -> None:
    tasks, orders = int(rng.integers(4, 8)), int(rng.integers(2, 9))
    table = {
        subset: rng.normal(1e4, 1e3, 2)
        for size in range(tasks + 1)
        for subset in itertools.combinations(range(tasks), size)
    }
    shares, _ = shapley(lambda known: table[tuple(sorted(known))], tasks, orders)
    assert shares.sum(axis=0) == pytest.approx(table[()] - table[tuple(range(tasks))], abs=1e-6)
    own = rng.normal(0, 100, (tasks, 2))
    shares, errors = shapley(lambda known: -own[list(known)].sum(axis=0), tasks, orders)
    assert shares == pytest.approx(own)
    assert (errors < 1e-9).all() if orders > 2 else np.isnan(errors).all()


def test_sampled_orders_approach_the_mean_over_all() -> None:
    rng = np.random.default_rng(3)
    errors = rng.uniform(0, 100, (40, 5))  # of 40 supersteps
    costs = lambda known: np.array([np.delete(errors, list(known), axis=1).max(axis=1, initial=0.0).sum()])  # noqa: E731
    exact, _ = shapley(costs, 5, orders=120)
    sampled, deviations = shapley(costs, 5, orders=60)
    assert (np.abs(sampled - exact)[:, 0] < 4 * deviations).all() and (deviations < 0.15 * exact[:, 0]).all()


def test_items_of_two_tasks_are_those_computed_by_hand() -> None:
    rng = np.random.default_rng(1)
    profile, budget = noisy(rng, 2), Budget(total=8000)
    actual = rng.uniform(10, 50, (20, 2))
    perfect = np.stack([np.roll(actual, -lead, axis=0) for lead in range(8)], axis=1)
    wrong = np.clip(perfect + rng.normal(0, 8, perfect.shape), 10, 50)

    def costs(knowledge: Knowledge) -> NDArray[np.float64]:
        predictions = np.where([task in knowledge.known for task in range(2)], perfect, wrong)
        planner = (ExactPlanner if knowledge.exact else GreedyPlanner)(profile, budget, predictions)
        controller = DynamicMpc(horizon=3)
        run = run_alone(Gang(planner, actual, controller, 0, 12, 5.0, knowledge.certain))
        return np.array([run.metrics["duration"], 5.0 * run.metrics["checkpoints"]])

    none, first, second, both = (costs(Knowledge(frozenset(known))) for known in ((), (0,), (1,), (0, 1)))
    offline = np.array([700.0, 20.0])
    items = account(costs, ("one", "two"), offline, 690.0, orders=2)
    by_cause = {item.cause: item for item in items}
    expected = ((none - first) + (second - both)) / 2, ((none - second) + (first - both)) / 2
    for task, parts in zip(("one", "two"), expected, strict=True):
        item = by_cause[f"errors of the predictions of {task}"]
        assert [item.duration, item.penalty] == pytest.approx(parts)
        assert item.seconds == pytest.approx(parts.sum()) and item.error == 0
    assert items[0].seconds == 690.0 and items[1].seconds == 30.0
    assert items[2].seconds == pytest.approx(
        costs(Knowledge(frozenset({0, 1}), certain=True, exact=True)).sum() - 720.0
    )
    assert items[4].seconds == 0  # this controller treats certain predictions as any others
    assert sum(item.seconds for item in items) == pytest.approx(none.sum(), abs=1e-6)
    known = [item for item in items if not math.isnan(item.duration)]
    assert offline + np.sum([(item.duration, item.penalty) for item in known], axis=0) == pytest.approx(none)


def hdsim(warm: Warm, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*warm.command("hdsim"), *arguments], cwd=folder, capture_output=True, text=True)


@pytest.fixture
def sweep(warm: Warm, tmp_path: Path) -> Path:
    """A run with predictions and one with perfect knowledge."""
    done = hdsim(
        warm,
        tmp_path,
        "bsp",
        "run",
        "-m",
        *THREE,
        "controller=best",
        "controller.horizon=3",
        "supersteps=12",
        "forecasts=generated,actual",
        "hydra.sweep.dir=sweep",
        "hydra.sweep.subdir=${hydra.job.num}",
    )
    assert done.returncode == 0, done.stderr
    return tmp_path / "sweep"


@pytest.mark.ci
def test_the_command_adds_up_to_the_total_of_each_run(warm: Warm, tmp_path: Path, sweep: Path) -> None:
    done = hdsim(warm, tmp_path, "bsp", "account", "sweep", "--orders", "6")
    assert done.returncode == 0, done.stderr
    causes = {}
    for name in ("0", "1"):
        total = json.loads((sweep / name / "metrics.json").read_text())["total"]
        rows = list(csv.DictReader((sweep / name / "accounting.csv").open()))
        assert sum(float(row["seconds"]) for row in rows) == pytest.approx(total, abs=1e-6)
        assert f"{total:,.2f}" in done.stdout
        causes[name] = {row["cause"]: float(row["seconds"]) for row in rows}
    assert len(causes["0"]) == 8 and len(causes["1"]) == 4
    assert causes["1"]["planner in place of exact plans"] == 0  # best plans exactly


def test_a_mistake_is_one_message(warm: Warm, tmp_path: Path, sweep: Path) -> None:
    run = sweep / "0"
    manifest, metrics = (run / name for name in ("manifest.json", "metrics.json"))
    content, total = manifest.read_text(), json.loads(metrics.read_text())["total"]
    (tmp_path / "empty").mkdir()

    def message(*arguments: str) -> str:
        done = hdsim(warm, tmp_path, "bsp", "account", *arguments)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
        return done.stderr

    assert "expected a run directory or a sweep" in message("nothing")
    assert "expected a run directory or a sweep" in message("empty")
    assert "RUN" in message()
    assert "orders" in message(str(run), "--orders", "0")
    manifest.write_text(content.replace('"finished"', '"failed"'))
    assert "expected a finished run, got one that is failed" in message(str(run))
    manifest.write_text(content.replace('"controller"', '"agent"'))
    assert "expected a run of hdsim bsp, got one of another command" in message(str(run))
    manifest.write_text(content.replace('"scaling"', '"other"'))
    assert "expected a run of this version of hdsim, got one without the keys scaling" in message(str(run))
    real = json.loads(content)
    real["config"]["runner"] = {"_target_": "hdsim.gangs.real.processes.Processes"}
    manifest.write_text(json.dumps(real))
    assert "expected a simulated run, got a real one" in message(str(run))
    manifest.write_text(content.replace('"seed": 1', '"seed": 2'))
    told = message(str(run))
    assert "expected a run that repeats itself" in told and f"in place of {total:.6f} s" in told
    manifest.write_text(content)
    metrics.write_text("{}")
    assert "expected a metric total" in message(str(run))
