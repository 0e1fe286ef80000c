"""Agents are found by name, file, class and entry point, and every mistake is one clear error."""

import subprocess
import sys

import pytest

import hdsim
from hdsim.agents.classic import ClassicAgent
from hdsim.errors import ConfigError
from hdsim.scheduling import backfill
from hdsim.scheduling.agent import BACKFILLS, classic_name, make_agent, parse_name
from hdsim.scheduling.rules import NUMBERS, name_and_depth, rule_label

OWN = """
import hdsim


class Mine(hdsim.Agent):
    def __init__(self, limit=3):
        self.limit = limit

    def decide(self, cluster):
        for job in list(cluster.queue)[: self.limit]:
            if cluster.pick(job) is not None:
                cluster.start(job)
"""


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fcfs", {"job_policy": "fcfs"}),
        ("shortest-high_mem_bw", {"job_policy": "shortest", "core_policy": "high_mem_bw"}),
        ("easy", {"job_policy": "fcfs", "backfill": "easy"}),
        ("easy-saf", {"job_policy": "saf", "backfill": "easy"}),
        ("easy-sjbf", {"job_policy": "fcfs", "backfill": "easy", "backfill_order": "sjf"}),
        ("conservative-sjf-low_power", {"job_policy": "sjf", "backfill": "conservative", "core_policy": "low_power"}),
        ("void", {"job_policy": "void"}),
    ],
)
def test_names(name, settings):
    assert parse_name(name) == settings
    assert isinstance(make_agent(name), ClassicAgent)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fcsf", r"got 'fcsf'.*did you mean 'fcfs'"),
        ("sjf-high_gflop", r"'high_gflop' is none of.*did you mean 'high_gflops'"),
        ("easy-", "expected an agent such as"),
        ({"job_policy": "shrtest"}, "agent.job_policy: expected one of.*did you mean 'shortest'"),
        ({"core_policy": "fast"}, "agent.core_policy: expected one of random, high_gflops"),
        ({"backfill": "eazy"}, "agent.backfill: .*did you mean 'easy'"),
        ({"job_polcy": "sjf"}, "'job_polcy'.*did you mean 'job_policy'.*allowed keys: job_policy, core_policy"),
        ({"_target_": "nowhere.Thing"}, "agent._target_: cannot import 'nowhere'"),
        ({"_target_": "hdsim.agents.classic.Classic"}, "has no 'Classic'.*did you mean 'ClassicAgent'"),
        ({"_target_": "Thing"}, "expected 'package.Class', got 'Thing'"),
        ({"_target_": "collections.OrderedDict"}, "expected a subclass of hdsim.Agent, got OrderedDict"),
        ({"path": "missing.py"}, "agent.path: .*found no file 'missing.py'"),
        (3, "expected a name, a mapping, an Agent or a function, got int"),
    ],
)
def test_mistakes(spec, message):
    with pytest.raises(ConfigError, match=message):
        make_agent(spec)


def test_own_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    agent = make_agent({"path": str(path), "limit": 1})
    assert agent.limit == 1
    platform = hdsim.Platform.homogeneous(nodes=1, cores_per_node=4)
    workload = hdsim.Workload.from_columns(submission_time=[0, 1], runtime=[5, 5], requested_cores=[2, 2])
    assert hdsim.simulate(platform, workload, agent).metrics["jobs_completed"] == 2
    with pytest.raises(ConfigError, match="did you mean 'limit'"):
        make_agent({"path": str(path), "limt": 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "expected exactly one Agent subclass or one function in .* found none"),
        ("def one(cluster): ...\n\ndef two(cluster): ...", "or one function in .* found one, two"),
        (OWN + OWN.replace("Mine", "Other"), "found Mine, Other"),
        ("import nothing_of_this_name", "cannot be loaded: ModuleNotFoundError"),
        ("def (", "cannot be loaded: SyntaxError"),
    ],
)
def test_own_file_mistakes(tmp_path, text, message):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        make_agent({"path": str(path)})


def test_a_class_with_a_second_name_is_one_class(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(f"{OWN}\nagent = Mine\n")
    assert type(make_agent({"path": str(path)})).__name__ == "Mine"


AT_MOST = """
import hdsim
from hdsim.scheduling.backfill.base import start_queued

class AtMost(hdsim.Backfill):
    def __init__(self, cluster, most=1):
        self.most = most

    def backfill(self, cluster, queue, order, head):
        left = self.most
        for job in list(order.jobs):
            placement = cluster.pick(job) if left and job != head else None
            if placement is not None:
                start_queued(cluster, queue, order, job, placement)
                left -= 1
"""


def test_installed_package(tmp_path):
    """A distribution made on the spot registers an agent and a backfilling algorithm by entry point."""
    (tmp_path / "their_agents.py").write_text(OWN + AT_MOST)
    info = tmp_path / "their_agents-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-agents\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[hdsim.agents]\ntheirs = their_agents:Mine\n[hdsim.backfills]\nat_most = their_agents:AtMost\n"
    )
    code = """
from hdsim.config.catalog import policies
from hdsim.config.completion import overrides
from hdsim.scheduling.agent import make_agent
print(type(make_agent("theirs")).__module__, make_agent({"backfill": "at_most"}).rules.backfill)
print(policies()["at_most"].summary, *overrides("agent.backfill=at_m", []))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(["", *sys.path])},
    )
    told = "their_agents at_most\nbackfill: of their_agents:AtMost agent.backfill=at_most\n"
    assert done.stdout == told, done.stderr


def test_backfilling_of_ones_own(tmp_path, caplog):
    """One job per pass runs beside the wide job that waits; with two per pass both do. No compiled replay knows it."""
    path = tmp_path / "at_most.py"
    path.write_text(AT_MOST)
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=1)
    columns = {"submission_time": [0, 1, 1, 1], "runtime": [10, 10, 5, 5], "requested_cores": [2, 4, 1, 1]}
    workload = hdsim.Workload.from_columns(**columns)

    def starts(backfill):
        result = hdsim.simulate(platform, workload, {"job_policy": "fcfs", "backfill": backfill})
        assert result.engine["mode"] == "events"
        return result.starting_time.tolist()

    assert starts(str(path)) == starts({"path": str(path)}) == [0, 11, 1, 6]
    assert starts({"path": str(path), "most": 2}) == [0, 10, 1, 1]
    assert caplog.text.count("replays go through the engine") == 1
    for wrong, message in (
        ({"path": str(path), "mist": 2}, "got an unexpected keyword argument 'mist'.*did you mean 'most'"),
        ({"most": 2}, "agent.backfill: expected one of none, easy"),
        (str(tmp_path / "at_moss.py"), "found no file .*did you mean '.*at_most.py'"),
    ):
        with pytest.raises(ConfigError, match=message):
            starts(wrong)
    with pytest.raises(ConfigError, match=r"agent.backfill: rollout: expected one of .*at_most.py"):
        make_agent({"_target_": "hdsim.agents.rollout.Rollout", "backfill": str(path)})
    assert classic_name({"job_policy": "sjf", "backfill": {"path": str(path), "most": 2}}) == (
        "at_most-sjf",
        {"backfill.most": 2},
    )


def test_two_replays_of_one_agent_are_equal():
    platform = hdsim.Platform.homogeneous(nodes=4, cores_per_node=1)
    workload = hdsim.Workload.from_columns(submission_time=[0, 1, 2], runtime=[5, 5, 5], requested_cores=[3, 3, 1])
    agent = make_agent("easy")
    first, second = (hdsim.simulate(platform, workload, agent).starting_time.tolist() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("spec", "expected"),
    [(0, "greedy"), ("1", "easy"), (4, "hybrid4"), ("hybrid4", "hybrid4"), ("hybrid", "hybrid"), ("easy", "easy")],
)
def test_a_number_of_reservations_names_a_rule(spec: int | str, expected: str) -> None:
    rule = rule_label(spec)
    assert rule == expected
    settings = {"job_policy": "sjf", "backfill": spec}
    assert classic_name(settings, cores=False)[0] == f"{rule}-sjf"
    given, named = make_agent(settings), make_agent(f"{rule}-sjf")
    assert isinstance(given, ClassicAgent)
    assert isinstance(named, ClassicAgent)
    assert (given.rules, given.rules and given.rules.backfill) == (named.rules, name_and_depth(spec)[0])


def test_a_negative_number_of_reservations_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"agent\.backfill: expected one of none, easy.*hybrid.*got '-1'"):
        make_agent({"backfill": -1})


def test_every_backfilling_algorithm_has_a_number_a_class_and_a_sentence() -> None:
    assert set(NUMBERS) == set(BACKFILLS) == set(backfill.BACKFILL.bundled)
