"""Workloads of a gang: the sizes that its tasks execute, and predictions of them, from series of measured values.

The files of a series have a row for each time t and a column for each of t, t + 1, ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hdsim.errors import ConfigError, nearest
from hdsim.gangs.planner import PLANNERS, Budget, Planner
from hdsim.gangs.profile import read_profile
from hdsim.util.arrays import Floats
from hdsim.util.inputs import read_text
from hdsim.util.resources import resolve
from hdsim.util.text import number_in

#: Words in place of a folder.
GENERATED, PERFECT = "generated", "actual"
#: Smallest and largest workload size.
SIZES = (10.0, 50.0)
#: Scalings of values to sizes: each column of each table by its own range, as Kube_Gang_Scheduling does it; predictions
#: and executed values by the range of the executed ones; or values are sizes.
BY_COLUMN, BY_ACTUAL, AS_IS = SCALINGS = ("columns", "actual", "none")
#: Values of a day, the period of the forecasts.
DAY = 48
#: Rows and columns of the tables, as in those of measured series.
ROWS, COLUMNS = 1000, 20
_WEEK = 7 * DAY
_HARMONICS = 3
_PERSISTENCE = 0.9
#: Keys of a configuration that are the arguments of :func:`load_gang`.
GANG_KEYS = ("profile", "tasks", "actual", "forecasts", "scaling", "planner", "shares", "seed")


@dataclass(frozen=True)
class Workloads:
    """Workload sizes of the J tasks of a gang."""

    actual: Floats  # (R, J) sizes that are executed at each row of the series
    predictions: Floats  # (R, F, J) sizes predicted at each row for this row and the F - 1 rows after it
    certain: bool = False  # whether the predictions are what is executed


def read_workloads(
    tasks: Mapping[str, str], actual: str, forecasts: str, seed: int = 1, scaling: str = BY_COLUMN
) -> Workloads:
    """Reads or generates the workloads of a gang.

    Args:
        tasks: Name of the series of each task.
        actual: Folder with ``<series>_actual.csv`` or ``.csv.gz`` for each series; or ``generated``.
        forecasts: Folder with ``<series>_forecasts.csv`` or ``.csv.gz``; ``generated``, of generated series; or
            ``actual``, which predicts what is executed.
        seed: Seed of generated series.
        scaling: One of `SCALINGS`.

    Raises:
        ConfigError: A file is missing or no table of numbers, the tables differ in size, or there is no such scaling.
    """
    if scaling not in SCALINGS:
        message = f"expected {', '.join(SCALINGS[:-1])} or {SCALINGS[-1]}, got '{scaling}'{nearest(scaling, SCALINGS)}"
        raise ConfigError(message, where="scaling")
    if scaling == AS_IS and actual == GENERATED:
        message = f"expected {BY_COLUMN} or {BY_ACTUAL}, as generated series are no sizes, got {AS_IS}"
        raise ConfigError(message, where="scaling")
    if forecasts == GENERATED != actual:
        raise ConfigError(
            f"expected a folder or {PERFECT}, as the series are not generated, got {GENERATED}", where="forecasts"
        )
    known = _tables(tasks, actual, "actual", seed)
    predicted = known if forecasts == PERFECT else _tables(tasks, forecasts, "forecasts", seed)
    if len(predicted) != len(known):
        raise ConfigError(f"expected {len(known)} rows as in {actual}, got {len(predicted)}", where=forecasts)
    if scaling == BY_COLUMN:
        known, predicted = scaled(known), scaled(predicted)
    elif scaling == BY_ACTUAL:
        executed = known[:, :1]
        known, predicted = scaled(known, executed), scaled(predicted, executed)
    return Workloads(known[:, 0], predicted, forecasts == PERFECT)


def check_rows(needed: int, rows: int, *, where: str = "supersteps", parts: str = "start + supersteps") -> None:
    """Checks that series have the row before `needed`, or raises ConfigError with the key and the words for it."""
    if needed > rows:
        raise ConfigError(f"expected {parts} of at most {rows}, the rows of the series, got {needed}", where=where)


def scaled(values: Floats, reference: Floats | None = None) -> Floats:
    """Scales each column of a (R, ...) table to the range of workload sizes, as scikit-learn's MinMaxScaler does it.

    The columns of a reference of the same or a broadcast shape may have the range instead. A column that is constant
    there becomes the smallest size.
    """
    reference = values if reference is None else reference
    low, high = reference.min(axis=0), reference.max(axis=0)
    factor = (SIZES[1] - SIZES[0]) / np.where(high > low, high - low, 1.0)
    return values * factor + (SIZES[0] - low * factor)


def _tables(tasks: Mapping[str, str], source: str, kind: str, seed: int) -> Floats:
    """(R, F, J) values."""
    names = dict.fromkeys(tasks.values())
    if source == GENERATED:
        make = actual_table if kind == "actual" else forecast_table
        tables = {name: make(series(seed, number)) for number, name in enumerate(names)}
    else:
        tables = _read_tables(names, Path(source), kind)
    return np.stack([tables[name] for name in tasks.values()], axis=2)


def _read_tables(names: Iterable[str], folder: Path, kind: str) -> dict[str, Floats]:
    tables: dict[str, Floats] = {}
    for name in names:
        path = csv_file(folder, f"{name}_{kind}")
        tables[name] = _read_table(path)
        first = next(iter(tables.values()))
        if tables[name].shape != first.shape:
            got = " x ".join(map(str, tables[name].shape))
            raise ConfigError(
                f"expected {first.shape[0]} x {first.shape[1]} values as in the other files, got {got}", where=str(path)
            )
    return tables


def csv_file(folder: Path, name: str) -> Path:
    """Returns the file ``NAME.csv`` or ``NAME.csv.gz`` of a folder; ConfigError if there is neither."""
    plain, packed = folder / f"{name}.csv", folder / f"{name}.csv.gz"
    for path in (plain, packed):
        if path.is_file():
            return path
    raise ConfigError(f"expected {plain.name} or {packed.name}, found neither", where=str(folder))


def _read_table(path: Path) -> Floats:
    rows: list[list[float]] = []
    for line, text in enumerate(read_text(path, ConfigError, "series").splitlines(), 1):
        if text.startswith("#"):
            continue
        try:
            rows.append([number_in(field) for field in text.split(",")])
        except ValueError as error:
            raise ConfigError(f"expected numbers: {error}", where=f"{path}:{line}") from None
        if len(rows[-1]) != len(rows[0]) or not np.isfinite(rows[-1]).all():
            raise ConfigError(f"expected {len(rows[0])} finite numbers, got {text[:60]!r}", where=f"{path}:{line}")
    if not rows:
        raise ConfigError("expected rows of numbers, got none", where=str(path))
    return np.array(rows)


def series(seed: int, number: int, length: int = 2 * _WEEK + ROWS + COLUMNS - 1) -> Floats:
    """Generates a series; different numbers give independent series.

    It has a daily cycle, smaller at weekends, and autoregressive noise of the order 1. Series of an odd number have a
    weak cycle and much noise.
    """
    rng = np.random.default_rng((seed, number))
    cycle, noise = (1.0, 0.25) if number % 2 == 0 else (0.4, 0.5)
    time = np.arange(length)
    phases = rng.uniform(0.0, 2.0 * np.pi, _HARMONICS)
    daily = sum(np.sin(2.0 * np.pi * (k + 1) * time / DAY + phases[k]) / (k + 1) ** 2 for k in range(_HARMONICS))
    weekend = np.where(time % _WEEK >= 5 * DAY, rng.uniform(0.5, 1.0), 1.0)
    shocks = rng.normal(0.0, np.sqrt(1.0 - _PERSISTENCE**2), length)
    drift = np.empty(length)
    drift[0] = rng.normal()
    for t in range(1, length):
        drift[t] = _PERSISTENCE * drift[t - 1] + shocks[t]
    return cycle * daily * weekend + noise * drift


def actual_table(values: Floats) -> Floats:
    """(R, F) values of the last rows of a series and of the F - 1 rows after each."""
    return np.lib.stride_tricks.sliding_window_view(values, COLUMNS)[-ROWS:]


def forecast_table(values: Floats) -> Floats:
    """(R, F) forecasts of :func:`actual_table`, each made from the values before its row.

    The forecast is the value of a day before (seasonal naive) plus the latest difference from that, which decays.
    """
    origin = np.arange(len(values) - ROWS - COLUMNS + 1, len(values) - COLUMNS + 1)[:, None]
    ahead = np.arange(COLUMNS)
    latest = values[origin - 1] - values[origin - 1 - DAY]
    return values[origin + ahead - DAY] + _PERSISTENCE ** (ahead + 1) * latest


def load_gang(
    profile: str,
    tasks: Mapping[str, str] | None,
    actual: str,
    forecasts: str,
    scaling: str,
    planner: str,
    shares: Mapping[str, int],
    seed: int,
) -> tuple[Planner, Workloads]:
    """Reads or generates the parts of a gang.

    The profile is a file or the name of a bundled one. Without `tasks`, all tasks of the profile have a series of their
    own. `actual`, `forecasts` and `scaling` are those of :func:`read_workloads`, `shares` are settings of
    :class:`hdsim.gangs.planner.Budget`, and the planner is ``greedy`` or ``exact``.

    Raises:
        ConfigError: A file or a setting cannot be used.
    """
    if planner not in PLANNERS:
        message = f"expected {' or '.join(PLANNERS)}, got '{planner}'{nearest(planner, PLANNERS)}"
        raise ConfigError(message, where="planner")
    measured, budget = read_profile(resolve("profiles", profile, where="profile")), Budget(**shares)
    tasks = {task: task for task in measured.tasks} if tasks is None else tasks
    measured = measured.of(list(tasks))
    budget.check(len(tasks))
    workloads = read_workloads(tasks, actual, forecasts, seed, scaling)
    return PLANNERS[planner](measured, budget, workloads.predictions), workloads
