"""Traces like a log: sessions of users drawn again by the hour of the week."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import hdsim
from hdsim.config.composer import Composer
from hdsim.config.inputs import read_platform, read_workload
from hdsim.errors import ConfigError
from hdsim.results.run_directory.inputs import digest
from hdsim.simulation.window_sets import WindowSet
from hdsim.workload.generators.like import Like, draw_sessions, sessions
from hdsim.workload.swf import write_swf

WEEK = 604800


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of eight weeks whose users have sessions in the cycles of day and week."""
    path = tmp_path_factory.mktemp("log") / "log.swf"
    write_swf(hdsim.draw_workload("debug_production", 3, 6000), path)
    return path


@pytest.fixture(scope="module")
def log(log_file: Path) -> hdsim.Workload:
    return hdsim.load_workload(log_file, memory_bandwidth="trace")


def drawn(log_file: Path, seed: int = 1, jobs: int = 6000, **settings: object) -> hdsim.Workload:
    made = Like(log_file, jobs, **settings).generate(None, seed)  # type: ignore[arg-type]
    assert isinstance(made, hdsim.Workload)
    return made


def test_sessions_end_where_a_user_pauses() -> None:
    log = hdsim.Workload.from_columns(
        submission_time=[0, 10, 20, 3000, 3700, 7300, 7400],
        runtime=1,
        requested_cores=1,
        user=[1, 2, 1, 1, -1, 1, -1],
    )
    found = sessions(log, gap=3000)
    parts = [found.rows[low:high].tolist() for low, high in pairwise(found.first)]
    assert parts == [[0, 2, 3], [1], [4], [5], [6]]
    assert found.hour.tolist() == [0, 0, 1, 2, 2]


def test_jobs_are_those_of_the_log(log_file: Path, log: hdsim.Workload) -> None:
    trace = drawn(log_file)
    assert len(trace) == 6000 and trace.cluster_cores == log.cluster_cores
    rows = dict.fromkeys(zip(log.user, log.runtime, log.requested_time, log.requested_cores, strict=True))
    assert all(
        row in rows for row in zip(trace.user, trace.runtime, trace.requested_time, trace.requested_cores, strict=True)
    )
    # Sessions of one draw are dependent, so the distance has no closed significance; other halves differ as much.
    for column in ("runtime", "requested_time", "requested_cores"):
        assert stats.ks_2samp(getattr(trace, column), getattr(log, column)).statistic < 0.08
    loads = [drawn(log_file, seed).offered_load for seed in range(6)]
    assert np.mean(loads) == pytest.approx(log.offered_load, rel=0.15)


def test_sessions_stay_together(log: hdsim.Workload) -> None:
    own, place, broken = sessions(log), 0, 0
    parts = {own.rows[low]: own.rows[low:high].tolist() for low, high in pairwise(own.first)}
    rows, times = draw_sessions(log, own, 6000, np.random.default_rng(1))
    while place < 6000:
        whole = parts[rows[place]]
        got, when = rows[place : place + len(whole)].tolist(), times[place : place + len(whole)]
        assert got == whole[: len(got)]
        broken += np.diff(when).tolist() != np.diff(log.original_submission_time[got]).tolist()
        # The hour of the week of a session's first job is that in the log.
        assert (when[0] - log.original_submission_time[got[0]]) % WEEK == 0
        place += len(whole)
    # Sessions that are under way at the end of the trace have their other part at its begin.
    assert broken <= 5


def test_hours_of_the_week_are_those_of_the_log(log_file: Path, log: hdsim.Workload) -> None:
    def profile(trace: hdsim.Workload) -> np.ndarray:
        found = sessions(trace)
        return np.bincount(found.hour % 168, minlength=168) / len(found.hour)

    pooled = sum(profile(drawn(log_file, seed)) for seed in range(8)) / 8
    assert np.corrcoef(pooled, profile(log))[0, 1] > 0.95


def test_seeds_splits_and_parts(log_file: Path, log: hdsim.Workload) -> None:
    assert digest(drawn(log_file)) == digest(drawn(log_file))
    others = [drawn(log_file, 2), drawn(log_file, split="test"), drawn(log_file, part=[0, 0.5])]
    assert len({digest(each) for each in (drawn(log_file), *others)}) == 4
    late = drawn(log_file, jobs=500, part=[0.8, 1.0])
    first = {*zip(log.runtime[:4000].tolist(), log.requested_time[:4000].tolist(), strict=True)}
    last = {*zip(log.runtime[4800:].tolist(), log.requested_time[4800:].tolist(), strict=True)}
    got = {*zip(late.runtime.tolist(), late.requested_time.tolist(), strict=True)}
    assert got <= last and got - first


def test_jobs_without_users_are_sessions_of_their_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "few.swf"
    write_swf(hdsim.draw_workload("home", 1, 200), path)
    assert len(drawn(path, jobs=300)) == 300
    assert "200 of 200 jobs have no user; each is a session of its own" in caplog.text


def test_the_log_is_the_path_of_the_workload(log_file: Path) -> None:
    words = ["workload=like", f"workload.path={log_file}", "workload.generate.jobs=200", "platform=homogeneous_256"]
    composer = Composer()
    config = composer.compose(composer.overrides([*words, "seed=5"]))
    found = read_workload(config, read_platform(config))
    expected = hdsim.load_workload({"model": "like", "path": str(log_file), "jobs": 200}, read_platform(config), seed=5)
    assert digest(found) == digest(expected)
    config = composer.compose(composer.overrides(["workload=like", "platform=homogeneous_256"]))
    with pytest.raises(ConfigError, match=r"workload.path: expected the log that workload=like is fitted to, got null"):
        read_workload(config, read_platform(config))


def test_windows_are_drawn_from_the_part_of_their_split(log_file: Path, log: hdsim.Workload) -> None:
    held = WindowSet(str(log_file), "test", traces=2, count=1, jobs=100, warmup=20, like=True)
    last = {*zip(log.runtime[4800:].tolist(), log.user[4800:].tolist(), strict=True)}
    for window in held.windows:
        assert {*zip(window.workload.runtime.tolist(), window.workload.user.tolist(), strict=True)} <= last
    assert held.described()["source"] == "like log.swf"
    with pytest.raises(ConfigError, match="expected a trace file for arrival_factor, whole, since and like"):
        WindowSet("home", like=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"part": [0.5, 0.2]}, r"workload.generate.part: expected \[low, high\] with 0 <= low < high <= 1"),
        ({"gap": 0}, "workload.generate.gap: expected a number > 0"),
        ({"split": "tets"}, "workload.generate.split: expected one of train, validation, test"),
    ],
)
def test_wrong_settings(log_file: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        drawn(log_file, **settings)
