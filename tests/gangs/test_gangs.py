"""BSP gangs: the published results of Kube_Gang_Scheduling, and an implementation in plain loops as an oracle."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from gang_inputs import TASKS, noisy, random_generators, run
from gang_reference import Reference, read_series, surface
from gang_reference import read_profile as reference_profile
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from hdsim.errors import ConfigError, DecisionError
from hdsim.gangs import greedy
from hdsim.gangs.controllers import (
    Controller,
    DynamicMpc,
    DynamicWindow,
    GangState,
    Static,
    StaticWindow,
    make_controller,
)
from hdsim.gangs.planner import Budget, GreedyPlanner
from hdsim.gangs.profile import DurationProfile, read_profile, write_profile
from hdsim.gangs.simulation import GangRun
from hdsim.gangs.workloads import Workloads, read_workloads, scaled
from hdsim.util.resources import resolve


@pytest.fixture(scope="module")
def data(shared_data: Path) -> Path:
    return shared_data / "bsp"


def named(strategy: str) -> Controller:
    name, _, number = strategy.rpartition(" ")
    if name == "Static Window":
        return StaticWindow(int(number))
    return {"EXPPO": Static(), "Dynamic MPC": DynamicMpc()}[strategy]


def test_the_published_table_is_reproduced_row_by_row(
    data: Path, profile: DurationProfile, forecast: Workloads
) -> None:
    with (data / "published_forecast_400.csv").open() as file:
        _, *rows = csv.reader(file, skipinitialspace=True)
    assert len(rows) == 11
    for strategy, duration, checkpoints, total in rows:
        metrics = run(profile, forecast, named(strategy)).metrics
        assert metrics["checkpoints"] == int(checkpoints), strategy
        assert metrics["duration"] == pytest.approx(float(duration), rel=1e-9), strategy
        assert metrics["total"] == pytest.approx(float(total), rel=1e-9), strategy


@pytest.fixture(scope="module")
def references(data: Path) -> dict[str, Reference]:
    duration = reference_profile(data / "workload_profiling.csv", list(TASKS))
    series = {
        kind: [read_series(data / kind / f"{name}_{kind}.csv.gz") for name in TASKS.values()]
        for kind in ("actual", "forecasts")
    }
    made = {}
    for kind, tables in series.items():
        sizes = [[list(column) for column in zip(*rows, strict=True)] for rows in zip(*tables, strict=True)]
        executed = [[table[t][0] for table in series["actual"]] for t in range(len(sizes))]
        made[kind] = Reference(duration, sizes, executed)
    return made


def agree(found: GangRun, expected: tuple[float, int]) -> None:
    assert found.metrics["checkpoints"] == expected[1]
    assert found.metrics["duration"] == pytest.approx(expected[0], rel=1e-9)


@pytest.mark.parametrize("kind", ["actual", "forecasts"])
@pytest.mark.parametrize("width", [1, 2, 5, 9])
def test_static_windows_agree_with_the_plain_loops(
    kind: str,
    width: int,
    references: dict[str, Reference],
    profile: DurationProfile,
    forecast: Workloads,
    perfect: Workloads,
) -> None:
    workloads = forecast if kind == "forecasts" else perfect
    agree(run(profile, workloads, StaticWindow(width), supersteps=40), references[kind].static_window(width, 40))


@pytest.mark.parametrize("kind", ["actual", "forecasts"])
def test_dynamic_controllers_agree_with_the_plain_loops(
    kind: str, references: dict[str, Reference], profile: DurationProfile, forecast: Workloads, perfect: Workloads
) -> None:
    workloads, reference = forecast if kind == "forecasts" else perfect, references[kind]
    agree(run(profile, workloads, DynamicMpc(3), supersteps=12), reference.dynamic_mpc(3, 12))
    agree(run(profile, workloads, DynamicMpc(4, 1.05), supersteps=8), reference.dynamic_mpc(4, 8, 1.05))
    agree(run(profile, workloads, DynamicWindow(4), supersteps=12), reference.dynamic_window(4, 12))
    agree(run(profile, workloads, Static(), supersteps=30), reference.static(30))


def test_perfect_knowledge_is_what_is_executed(perfect: Workloads) -> None:
    for ahead in range(10):
        assert perfect.predictions[:400, ahead] == pytest.approx(perfect.actual[ahead : 400 + ahead], abs=1e-5)


@given(rng=random_generators, tasks=st.integers(1, 6), supersteps=st.integers(1, 6), horizon=st.integers(1, 4))
@examples(10, 20)
@pytest.mark.ci
def test_random_gangs_agree_with_the_plain_loops(
    rng: np.random.Generator, tasks: int, supersteps: int, horizon: int
) -> None:
    profile = noisy(rng, tasks)
    sizes = rng.uniform(10.0, 50.0, (8, 20, tasks))
    if rng.random() < 0.5:
        sizes = sizes.round(-1)  # equal sizes give equal durations
    workloads = Workloads(rng.uniform(10.0, 50.0, (8, tasks)), sizes)
    measured = [
        {(z, s): grid[i, k] for i, z in enumerate(profile.sizes) for k, s in enumerate(profile.shares)}
        for grid in profile.durations
    ]
    reference = Reference(surface(measured), workloads.predictions.tolist(), workloads.actual.tolist())
    agree(
        run(profile, workloads, DynamicMpc(horizon), supersteps=supersteps), reference.dynamic_mpc(horizon, supersteps)
    )
    agree(
        run(profile, workloads, StaticWindow(horizon), supersteps=supersteps),
        reference.static_window(horizon, supersteps),
    )
    agree(
        run(profile, workloads, DynamicWindow(horizon), supersteps=supersteps),
        reference.dynamic_window(horizon, supersteps),
    )


@given(rng=random_generators, tasks=st.integers(1, 9), windows=st.integers(1, 6))
@examples(40)
def test_windows_are_planned_together_as_alone(rng: np.random.Generator, tasks: int, windows: int) -> None:
    table = rng.uniform(1.0, 100.0, (tasks, 12, 7))
    first, width = rng.integers(0, 6, windows), rng.integers(1, 7, windows)
    together = greedy.allocate(table, first, width, 25, 0.95)
    assert (together.sum(axis=1) == 25).all()
    for number in range(windows):
        alone = greedy.allocate(table, first[number : number + 1], width[number : number + 1], 25, 0.95)
        assert (alone[0] == together[number]).all()


def test_of_equal_tasks_the_first_is_the_slowest() -> None:
    table = np.tile(np.array([9.0, 5.0, 3.0, 2.0, 1.0]), (3, 2, 1))
    assert greedy.allocate(table, np.array([0]), np.array([2]), 4, 0.95).tolist() == [[2, 1, 1]]


def test_plans_do_not_depend_on_the_rows_planned_in_advance(profile: DurationProfile, forecast: Workloads) -> None:
    spans = ((0, 1), (0, 3), (2, 2))
    long = GreedyPlanner(profile, Budget(), forecast.predictions[:60])
    for row in (0, 1, 2, 30, 31, 5, 59):
        alone = GreedyPlanner(profile, Budget(), forecast.predictions[: row + 1]).plans(row, spans)
        assert (long.plans(row, spans).shares == alone.shares).all()
        assert (long.plans(row, spans).durations == alone.durations).all()


def test_a_run_from_a_later_row_executes_the_rows_from_there(profile: DurationProfile, forecast: Workloads) -> None:
    later = Workloads(forecast.actual[300:], forecast.predictions[300:])
    whole, part = run(profile, forecast, DynamicMpc(3), 300, 30), run(profile, later, DynamicMpc(3), 0, 30)
    assert (whole.shares == part.shares).all() and whole.metrics == part.metrics


class Fixed(Controller):
    def __init__(self, shares: object) -> None:
        self.shares = shares

    def decide(self, state: GangState) -> np.ndarray | None:
        return self.shares  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        (np.full(8, 3001), "expected shares of at most 24000 millicores together, got 24008"),
        (np.full(7, 1000), "expected 8 shares"),
        (np.full(8, 0), "at least 1"),
        (np.full(8, 1000.5), "whole millicores"),
    ],
)
def test_impossible_shares_are_refused(
    profile: DurationProfile, forecast: Workloads, shares: np.ndarray, message: str
) -> None:
    with pytest.raises(DecisionError, match="superstep 0: ") as caught:
        run(profile, forecast, Fixed(shares))
    assert message in str(caught.value)


def test_the_metrics_add_up(profile: DurationProfile, forecast: Workloads) -> None:
    found = run(profile, forecast, StaticWindow(4), supersteps=10)
    assert found.replanned.tolist() == [True, False, False, False] * 2 + [True, False]
    slowest = [max(profile.at(found.sizes[n : n + 1], found.shares[n])[0]) for n in range(10)]
    assert found.metrics == {
        "duration": pytest.approx(sum(slowest)),
        "checkpoints": 2,
        "total": pytest.approx(sum(slowest) + 30.0),
    }


def test_a_profile_survives_writing(profile: DurationProfile, tmp_path: Path) -> None:
    write_profile(tmp_path / "profile.csv", profile)
    again = read_profile(tmp_path / "profile.csv")
    assert again.tasks == profile.tasks and (again.durations == profile.durations).all()


def test_durations_interpolate_the_profile_and_are_constant_outside(profile: DurationProfile) -> None:
    sizes = np.repeat(profile.sizes[:, None], 8, axis=1)
    table = profile.table(sizes, profile.shares)
    assert table == pytest.approx(profile.durations, rel=1e-12)
    outside = profile.at(np.array([[60.0] * 8, [49.0] * 8]), np.array([[20_000] * 8, [8500] * 8]))
    assert (outside[0] == outside[1]).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", ":1: expected the columns Task Name, Workload Size, CPU Shares, Duration"),
        (
            "Task Name, Workload Size, CPU Shares, Duration\nx, 1, 2, fast\n",
            ":2: Duration: expected a number > 0 and at most 1e+12, got 'fast'",
        ),
        (
            "Task Name, Workload Size, CPU Shares, Duration\nx, 1, 2, 1e19\n",
            ":2: Duration: expected a number > 0 and at most 1e+12, got '1e19'",
        ),
        ("Task Name, Workload Size, CPU Shares, Duration\nx, 1, 2, 3\nx, 1, 2, 3\n", ":3: expected one row for x"),
        ("Task Name, Workload Size, CPU Shares, Duration\nx, 1, 2, 3\n", ": expected at least 4 workload sizes, got 1"),
    ],
)
def test_faults_of_a_profile_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "profile.csv").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_profile(tmp_path / "profile.csv")
    assert f"{tmp_path / 'profile.csv'}{message}" in str(caught.value)


def test_a_missing_measurement_is_named(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    lines = resolve("profiles", "synthetic").read_text().splitlines()
    path.write_text("\n".join(lines[:50] + lines[51:]))
    with pytest.raises(ConfigError, match=r"expected a row for atomic, size 18 and 1000 millicores, found none"):
        read_profile(path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "expected x_actual.csv or x_actual.csv.gz, found neither"),
        ({"x_actual.csv": "# t\n1,2\n3,z\n"}, "x_actual.csv:3: expected numbers"),
        ({"x_actual.csv": "# t\n1,2\n3,1_0\n"}, "x_actual.csv:3: expected numbers: could not convert"),
        ({"x_actual.csv": "# t\n1,2\n3\n"}, "x_actual.csv:3: expected 2 finite numbers"),
        ({"x_actual.csv": "# t\n"}, "expected rows of numbers, got none"),
        (
            {"x_actual.csv": "1,2\n", "y_actual.csv": "1,2\n3,4\n"},
            "expected 1 x 2 values as in the other files, got 2 x 2",
        ),
    ],
)
def test_faults_of_series_are_named(files: dict[str, str], message: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_workloads({"a": "x", "b": "y"}, str(tmp_path), "actual")
    assert message in str(caught.value)


def test_a_constant_series_has_the_smallest_size() -> None:
    assert (scaled(np.full((4, 2), 7.0)) == 10.0).all()


def test_values_become_sizes_by_the_range_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x_actual.csv").write_text("0,5\n4,9\n2,3\n")
    (tmp_path / "x_forecasts.csv").write_text("1,2\n3,4\n6,6\n")

    def predicted(scaling: str) -> list[list[float]]:
        made = read_workloads({"a": "x"}, str(tmp_path), str(tmp_path), scaling=scaling)
        assert made.actual[:, 0].tolist() == ([0, 4, 2] if scaling == "none" else [10, 50, 30])
        return made.predictions[:, :, 0].tolist()

    assert predicted("columns") == [[10, 10], [26, 30], [50, 50]]
    assert predicted("actual") == [[20, 30], [40, 50], [70, 70]]
    assert predicted("none") == [[1, 2], [3, 4], [6, 6]]


def test_generated_forecasts_know_nothing_of_the_future() -> None:
    from hdsim.gangs.workloads import COLUMNS, ROWS, forecast_table, series

    values = series(1, 0)
    row = 200
    begin = len(values) - ROWS - COLUMNS + 1 + row
    changed = values.copy()
    changed[begin:] += 100.0
    assert (forecast_table(values)[: row + 1] == forecast_table(changed)[: row + 1]).all()
    assert (forecast_table(values)[row + 1] != forecast_table(changed)[row + 1]).any()


def test_a_controller_from_a_file(profile: DurationProfile, forecast: Workloads, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from hdsim.gangs.controllers import Controller\n"
        "class Mine(Controller):\n"
        "    def __init__(self, every=2):\n"
        "        self.every = every\n"
        "    def decide(self, state):\n"
        "        return None if state.superstep % self.every else np.full(8, 3000)\n"
    )
    controller = make_controller({"path": str(tmp_path / "mine.py"), "_target_": None, "every": 5})
    assert run(profile, forecast, controller, supersteps=11).metrics["checkpoints"] == 2


def test_an_unknown_controller_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a controller, got 'nope'"):
        make_controller("nope")


def test_a_horizon_beyond_the_predictions_is_refused(profile: DurationProfile, forecast: Workloads) -> None:
    with pytest.raises(ConfigError, match=r"controller.horizon: expected at most 20, .* got 21"):
        run(profile, forecast, DynamicMpc(21))
