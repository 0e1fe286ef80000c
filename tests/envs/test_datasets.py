"""Recordings of environments as Minari data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.errors import ConfigError
from hdsim.learning.datasets import record

pytestmark = [
    pytest.mark.requires("minari"),
    # Minari asks for the names of authors.
    pytest.mark.filterwarnings("ignore::UserWarning:minari"),
]
SETTINGS = {"platform": "homogeneous_256", "workload": {"model": "lublin", "jobs": 400, "arrival_factor": 0.5}}
KINDS: list[tuple[str, dict[str, Any]]] = [
    (
        "sjf",
        {"action": "job", "observation": "jobs", "queue_size": 40, "void": True, "objective": "avg_bounded_slowdown"},
    ),
    ("easy-sjbf", {"action": "backfill", "observation": "graph", "queue_size": 40}),
    ("sjf", {"action": "accept", "observation": "proposal"}),
    ("shortest-low_power", {"action": "policy_pair"}),
]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def parts(observations: Any) -> dict[str, Any]:
    return observations if isinstance(observations, dict) else {"": observations}


@pytest.mark.parametrize(("policy", "kind"), KINDS)
def test_a_recording_is_repeated_by_its_environment(policy: str, kind: dict[str, Any]) -> None:
    import minari

    record("hdsim/test-v0", policy, 2, jobs=150, seed=5, **SETTINGS, **kind)
    data = minari.load_dataset("hdsim/test-v0")
    assert data.total_episodes == 2
    env = data.recover_environment()
    for number, episode in enumerate(data.iterate_episodes()):
        seen, info = env.reset(seed=5 + number)
        rewards, legal = [], [info["action_mask"]]
        for t, action in enumerate(episode.actions):
            kept = parts(episode.observations)
            assert all(np.array_equal(each, kept[name][t]) for name, each in parts(seen).items())
            assert legal[-1][action]
            seen, reward, terminated, _, info = env.step(action)
            rewards.append(reward)
            legal.append(info["action_mask"])
        assert terminated
        assert rewards == episode.rewards.tolist()
        assert np.array_equal(legal, episode.infos["action_mask"])
        jobs = env.unwrapped.cluster.workload
        if kind["action"] != "accept":
            expected = hdsim.simulate(SETTINGS["platform"], jobs, policy)
            assert env.unwrapped.result.jobs["starting_time"].tolist() == expected.jobs["starting_time"].tolist()


def test_mistakes() -> None:
    settings = {**SETTINGS, "jobs": 20, "action": "job", "observation": "jobs"}
    with pytest.raises(ConfigError, match="dataset_id: Malformed dataset ID: a b"):
        record("a b", "sjf", 1, **settings)
    with pytest.raises(ConfigError, match="episodes: expected at least 1, got 0"):
        record("hdsim/test-v0", "sjf", 0, **settings)
    with pytest.raises(ConfigError, match=r"policy: .*sfj"):
        record("hdsim/test-v0", "sfj", 1, **settings)
    record("hdsim/test-v0", "sjf", 1, **settings)
    with pytest.raises(ConfigError, match="dataset_id: expected a new name, got hdsim/test-v0"):
        record("hdsim/test-v0", "sjf", 1, **settings)
