"""The live page: moments of replays against their results, the page in a browser, the command from begin to end."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lxml import html as dom
from test_report import Visit

import hdsim
from hdsim.errors import ConfigError
from hdsim.report.live import LivePage, SweepPage
from hdsim.results.moment import Moment
from hdsim.scheduling.agent import Agent
from hdsim.simulation import compiled, replay, terminal
from hdsim.util.resources import resolve

AGENT = """
import time
from hdsim.scheduling.agent import Agent

class Slow(Agent):
    def decide(self, cluster):
        time.sleep(0.002)
        for job in list(cluster.queue):
            if (placement := cluster.pick(job)) is None:
                break
            cluster.start(job, placement)
"""


def fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())


class First(Agent):
    """First come first served."""

    def decide(self, cluster: Any) -> None:
        for job in list(cluster.queue):
            if (placement := cluster.pick(job)) is None:
                break
            cluster.start(job, placement)


@pytest.mark.parametrize(("agent", "mode"), [("easy", "compiled"), (First(), "events")])
def test_moments_are_those_of_the_result(agent: str | Agent, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_INTERVAL", 0.0)
    monkeypatch.setattr(terminal, "_RATIO", 0)
    monkeypatch.setattr(replay, "_INSTANTS_PER_UPDATE", 7)
    monkeypatch.setattr(compiled, "_INSTANTS", 7)
    platform = hdsim.Platform.homogeneous(nodes=64, cores_per_node=4)
    workload = hdsim.load_workload(resolve("workloads", "lublin_4000"), platform=platform, jobs=300, seed=1)
    moments: list[Moment] = []
    result = hdsim.simulate(platform, workload, agent, progress=moments.append)
    assert result.engine["mode"] == mode
    assert len(moments) > 30
    start, finish, cores = result.starting_time, result.finish_time, workload.requested_cores
    for moment in moments:
        ended, running = finish <= moment.now, (start <= moment.now) & (finish > moment.now)
        waiting = (workload.submission_time <= moment.now) & (start > moment.now)
        expected = Moment(moment.now, ended.sum(), waiting.sum(), running.sum(), cores[running].sum())
        assert moment == expected
    unwatched = hdsim.simulate(platform, workload, agent)
    np.testing.assert_array_equal(unwatched.finish_time, finish)


@pytest.mark.nightly
def test_the_browser_keeps_the_last_state_and_the_report(browse: Callable[..., tuple[str, list[str]]]) -> None:
    with LivePage() as page:
        page.begin("easy on <b>pik</b>", 5_000, 64)
        for count in range(5_000):  # more than the page keeps
            page.watch(Moment(60.0 * count, count, count % 90, 3, 32.0))
        page.end("finished", "<!DOCTYPE html><title>the report</title>")
        content, complaints = browse(page.url)
    seen = Visit(dom.fromstring(content), complaints)
    assert seen.complaints == []
    assert seen.page.get("data-status") == "finished"
    assert "easy on <b>pik</b>" in seen.text() and "of 5,000 jobs ended" in seen.text() and "4,999" in seen.text()
    (link,) = seen.page.get_element_by_id("status").findall("a")
    assert link.text == "report" and link.get("href").startswith("blob:")
    curves = seen.curves()
    assert set(curves) == {"utilization", "queue", "running", "progress"}
    assert min(curves["queue"]) > 1_000 and max(curves["queue"]) <= 4_100  # two points a step


def test_a_page_that_nobody_opens_ends_at_once() -> None:
    begin = time.monotonic()
    with LivePage() as page:
        page.begin("easy on pik", 10, 64)
        address = page.url
    assert time.monotonic() - begin < 2.5
    with pytest.raises(urllib.error.URLError):
        fetch(f"{address}state")


@pytest.mark.ci
def test_answers() -> None:
    with LivePage() as page:
        page.begin("easy on pik", 10, 64)
        before = json.loads(fetch(f"{page.url}state"))
        page.watch(Moment(3.0, 2, 1, 1, 16.0))
        after = json.loads(fetch(f"{page.url}state"))
        for path in ("report", "etc/passwd", "../secret"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                fetch(page.url + path)
        with pytest.raises(ConfigError, match=r"^--live: port \d+: .*a free one is taken"):
            LivePage(int(page.url.rpartition(":")[2].strip("/")))
        with LivePage() as other:
            assert other.url != page.url
    assert (before["status"], before["charts"]["queue"]["lines"][0]["y"]) == ("running", [0, 0])
    assert after["charts"]["queue"]["lines"][0]["y"] == [0, 1, 1]
    assert after["charts"]["utilization"]["lines"][0]["y"] == [0, 25, 25]


@pytest.mark.ci
def test_hosts_and_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that another site gives this machine is refused, and a connection that asks nothing is closed."""
    monkeypatch.setattr("hdsim.report.live._IDLE", 0.2)
    with LivePage() as page:
        page.begin("easy on pik", 10, 64)
        port = int(page.url.rpartition(":")[2].strip("/"))
        for host, status in (
            ("evil.example", 421),
            (f"evil.example:{port}", 421),
            ("localhost:1", 200),
            ("[::1]", 200),
        ):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/state", headers={"Host": host})
            answer = connection.getresponse()
            assert answer.status == status
            assert ("charts" in answer.read().decode()) == (status == 200)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as idle:
            assert idle.recv(1) == b""


@pytest.mark.ci
def test_command(tmp_path: Path, hdsim: Callable[..., Any]) -> None:
    (tmp_path / "slow.py").write_text(AGENT)
    settings = ["platform=teaching", "workload.jobs=300", "agent.path=slow.py"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hdsim", "run", "--live", *settings, "hydra.run.dir=watched"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout and process.stderr
    found = re.fullmatch(r"live page      (http://127\.0\.0\.1:\d+/)\n", process.stderr.readline())
    assert found
    seen: list[dict[str, Any]] = []
    while not seen or not seen[-1]["ended"]:
        seen.append(json.loads(fetch(f"{found[1]}state")))
        time.sleep(0.1)
    report = fetch(f"{found[1]}report")
    told, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "report         hdsim report watched" in told
    assert seen[-1]["status"] == "finished" and seen[-1]["title"] == "slow on teaching"
    counts = [len(state["charts"]["progress"]["lines"][0]["x"]) for state in seen]
    assert counts == sorted(counts) and len(set(counts)) > 2
    assert [seen[-1]["charts"][key]["lines"][0]["y"][-1] for key in ("progress", "queue", "running")] == [300, 0, 0]
    assert report == (tmp_path / "watched/report.html").read_text()
    assert hdsim("run", *settings, "hydra.run.dir=alone").returncode == 0
    assert (tmp_path / "watched/jobs.csv").read_bytes() == (tmp_path / "alone/jobs.csv").read_bytes()


FAILING = """
import hdsim

class Failing(hdsim.Agent):
    def decide(self, cluster):
        raise ValueError("no <b>decision</b>")
"""


WAITING = """
import time
from pathlib import Path
from hdsim.agents.classic import ClassicAgent

class Waiting(ClassicAgent):
    def __init__(self):
        super().__init__(job_policy="fcfs")

    def begin(self, cluster):
        super().begin(cluster)
        while not Path(__file__).with_name("go").exists():
            time.sleep(0.05)
"""


@pytest.mark.ci
def test_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    (tmp_path / "waiting.py").write_text(WAITING)
    settings = ["platform=teaching", "workload.jobs=60", "agent=random,failing.py,waiting.py", "seed=1,2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hdsim", "run", "-m", "--live", *settings, "hydra.sweep.dir=sweep"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout and process.stderr
    while not (found := re.fullmatch(r"live page      (http://127\.0\.0\.1:\d+/)\n", process.stderr.readline())):
        assert process.poll() is None

    def shown() -> tuple[dict[str, Any], dict[str, str], list[list[list[str]]]]:
        state = json.loads(fetch(f"{found[1]}state"))
        page = dom.fromstring(state["tiles"])
        tiles = {str(tile.findtext("span")): str(tile.findtext("b")) for tile in page.find_class("tile")}
        tables = [[row.xpath("th/text()|td/text()") for row in one.xpath("tbody/tr")] for one in page.iter("table")]
        return state, tiles, tables

    while not (before := shown())[2] or len(before[2][-1]) < 2:  # the third run waits
        time.sleep(0.05)
    state, tiles, (configurations, runs) = before
    assert (state["status"], tiles["of 6 runs finished"], tiles["failed"]) == ("running", "1", "1")
    assert [row[:2] for row in configurations] == [["agent=random", "1"]]
    assert [row[0] for row in runs] == ["agent=failing.py,seed=1", "agent=random,seed=1"]
    (tmp_path / "go").touch()
    while not (after := shown())[0]["ended"]:
        time.sleep(0.05)
    state, tiles, (configurations, runs) = after
    assert (state["status"], tiles["of 6 runs finished"], tiles["failed"]) == ("finished", "4", "2")
    assert {row[0]: row[1] for row in configurations} == {"agent=random": "2", "agent=waiting.py": "2"}
    assert len(runs) == 6 and sum("no <b>decision</b>" in row[-1] for row in runs) == 2
    assert "2 configurations, 4 runs" in fetch(f"{found[1]}report")
    process.communicate(timeout=60)
    assert process.returncode == 1  # two runs have failed


@pytest.mark.ci
def test_a_sweep_in_a_browser(browse: Callable[..., tuple[str, list[str]]]) -> None:
    with SweepPage() as page:
        page.begin("sweep in runs", 3, 0)
        page.show({"of 3 runs finished": "2"}, [[["run", "makespan"], ["agent=<i>fcfs</i>", "12"]]])
        page.end("finished")
        content, complaints = browse(page.url)
    seen = Visit(dom.fromstring(content), complaints)
    assert seen.complaints == [] and seen.page.get("data-status") == "finished"
    assert "agent=<i>fcfs</i>" in seen.text() and "of 3 runs finished" in seen.text()


def test_mistakes(tmp_path: Path, hdsim: Callable[..., Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = f"hdsim: error: --live: port {port}: Address already in use; without a port, a free one is taken\n"
        done = hdsim("run", f"--live={port}")
        assert (done.returncode, done.stdout, done.stderr) == (2, "", message)
        done = hdsim("run", f"--live={port}", "-m", "agent=fcfs,sjf")
        assert (done.returncode, done.stderr) == (2, message)
    assert "Invalid value for '--live'" in hdsim("run", "--live=port").stderr
