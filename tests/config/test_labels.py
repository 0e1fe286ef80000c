"""Labels of runs: names that `agent=` takes, only what differs, unambiguous, at most 40 characters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdsim.cluster.policies import CORE_POLICIES, SCORES
from hdsim.report.labels import WIDTH, clipped, labels
from hdsim.scheduling.agent import BACKFILLS, classic_name, parse_name
from hdsim.scheduling.orders import ORDERS

DEFAULTS = {"core_policy": "high_gflops", "backfill": "none", "backfill_order": None, "commit_head": False}
CLASSIC = st.fixed_dictionaries(
    {
        "job_policy": st.sampled_from(sorted(ORDERS)),
        "core_policy": st.sampled_from(sorted(set(CORE_POLICIES) - set(SCORES))),
        "backfill": st.sampled_from(list(BACKFILLS)),
        "backfill_order": st.sampled_from([None, "sjf", "saf"]),
        "commit_head": st.booleans(),
    }
)


def run(agent: str | dict[str, Any], **others: Any) -> dict[str, Any]:
    """A configuration with an agent by its short name or its settings."""
    return {"agent": DEFAULTS | parse_name(agent) if isinstance(agent, str) else agent, "seed": 1, **others}


def test_classic_agents_go_by_the_names_that_select_them() -> None:
    names = [
        "fcfs",
        "sjf",
        "easy",
        "easy-saf",
        "easy-sjbf",
        "conservative",
        "conservative-sjf",
        "greedy",
        "least_allocated",
    ]
    assert labels([run(name) for name in names]) == names


def test_core_policies_are_told_where_they_differ() -> None:
    names = ["shortest-high_gflops", "shortest-low_power", "easy-fcfs-high_gflops", "easy-saf-random"]
    assert labels([run(name) for name in names]) == names
    assert labels([run("shortest-low_power"), run("easy-fcfs-low_power")]) == ["shortest", "easy"]


@pytest.mark.parametrize(
    ("key", "values", "names"),
    [
        ("job_policy", ["saf", "mine/saf.py"], ["easy-saf", "easy-saf.py"]),
        ("job_policy", ["mine/x.py", "yours/x.py"], ["easy-mine/x", "easy-yours/x"]),
        ("job_policy", ["mine/x.py", "yours/y.py"], ["easy-x", "easy-y"]),
        ("core_policy", ["pack", "pack.py"], ["easy-saf-pack", "easy-saf-pack.py"]),
        ("core_policy", ["mine/x.py", "yours/x.py"], ["easy-saf-mine/x", "easy-saf-yours/x"]),
        ("backfill", ["mine/x.py", "yours/x.py"], ["mine/x-saf", "yours/x-saf"]),
        ("backfill", ["easy", "easy.py"], ["easy-saf", "easy.py-saf"]),
    ],
)
def test_different_files_have_different_names(key: str, values: list[str], names: list[str]) -> None:
    settings = DEFAULTS | {"backfill": "easy", "job_policy": "saf"}
    assert labels([run(settings | {key: value}) for value in values]) == names


def test_a_trained_agent_has_no_settings_but_those_of_its_checkpoint() -> None:
    ours = {"_target_": "hdsim.agents.imitation.ImitationAgent", "num_envs": 1, "teacher": "sjf", "sample": False}
    agents = [{**ours, "checkpoint": "gaia_laf-1"}, {**ours, "checkpoint": "gaia_saf-1", "teacher": "saf"}]
    assert labels(list(map(run, agents))) == ["imitation(gaia_laf-1)", "imitation(gaia_saf-1)"]
    untrained = [{**agent, "checkpoint": None} for agent in agents]
    assert labels(list(map(run, untrained))) == ["imitation(teacher=sjf)", "imitation(teacher=saf)"]


@given(CLASSIC)
def test_a_name_and_the_rest_are_the_settings_of_a_classic_agent(settings: dict[str, Any]) -> None:
    for cores in (False, True):
        name, rest = classic_name(settings, cores=cores)
        assert DEFAULTS | parse_name(name) | rest == settings


@given(st.lists(CLASSIC, min_size=2, max_size=6))
def test_labels_are_equal_where_settings_are(agents: list[dict[str, Any]]) -> None:
    found = labels([run(agent) for agent in agents])
    for one, name in zip(agents, found, strict=True):
        same = [other for other, text in zip(agents, found, strict=True) if text == name]
        # Settings outside the short name count among the agents of that name.
        assert all(other == one for other in same)


def test_learning_agents_tell_their_checkpoint_and_what_differs() -> None:
    ppo = {
        "_target_": "hdsim.agents.ppo.PPOAgent",
        "checkpoint": "/runs/a/best.safetensors",
        "hidden": [64, 64],
        "start": None,
    }
    mine = {"path": "agents/mine.py"}
    configs = [run("easy"), run(ppo), run(mine), run(mine | {"guard": 7200}), run({"_target_": "package.OtherAgent"})]
    assert labels(configs) == ["easy", "ppo(best)", "mine", "mine(guard=7200)", "other"]
    wide = ppo | {"hidden": [128, 128]}
    assert labels([run(ppo), run(wide)]) == ["ppo(best,hidden=[64,64])", "ppo(best,hidden=[128,128])"]
    elsewhere = ppo | {"checkpoint": "/runs/b/best.safetensors"}
    assert labels([run(ppo), run(elsewhere)]) == ["ppo(a/best)", "ppo(b/best)"]
    assert labels([run({"path": "a/mine.py"}), run({"path": "b/mine.py"})]) == ["a/mine", "b/mine"]


def test_other_settings_follow_without_nulls() -> None:
    fair = {"_target_": "hdsim.contention.fair_share.FairShare", "fraction": 0.5}
    assert labels([run("easy", contention={"_target_": None}), run("sjf", contention=fair)]) == [
        "easy contention=none",
        "sjf contention=fair_share",
    ]
    assert labels([run("easy", contention=fair), run("easy", contention=fair | {"fraction": 1.0})]) == [
        "contention=fair_share(fraction=0.5)",
        "contention=fair_share(fraction=1.0)",
    ]
    assert labels([run("easy", workload={"jobs": None}), run("easy", workload={"jobs": 5})]) == ["easy", "easy jobs=5"]
    assert labels([run("easy", platform={"path": "a/gaia.json"}), run("easy", platform={"path": "b/big.json"})]) == [
        "platform=gaia",
        "platform=big",
    ]
    drawn = {"path": None, "generate": {"model": "lublin", "jobs": 100}}
    assert labels([run("easy", workload={"path": "lublin_4000", "generate": None}), run("easy", workload=drawn)]) == [
        "workload=lublin_4000",
        "workload=lublin",
    ]


@given(st.lists(st.text("ab/=(", max_size=90), max_size=20))
def test_clipped_labels_are_short_and_as_different_as_the_texts(texts: list[str]) -> None:
    found = clipped(texts)
    assert list(found) == list(dict.fromkeys(texts))
    assert len(set(found.values())) == len(found)
    for full, short in found.items():
        assert short == full if len(full) <= WIDTH else (len(short) <= WIDTH and "…" in short)
