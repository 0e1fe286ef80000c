"""Rules of Slurm without a site: any platform, any workload, each rule and each option of its group by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hdsim
from hdsim.agents.slurm import SlurmAgent
from hdsim.config.composer import Composer
from hdsim.errors import ConfigError
from hdsim.platform.model import Platform
from hdsim.site.bare import bare_site, named
from hdsim.util.resources import folder
from hdsim.workload.model import Workload

#: Passes right after each change.
AT_ONCE = {"batch_sched_delay": 0, "bf_interval": 1, "bf_resolution": 1}
OPTIONS = sorted(str(path.relative_to(folder("conf")).with_suffix("")) for path in folder("conf").glob("site/*/*.yaml"))


def jobs(rows: list[dict[str, Any]]) -> Workload:
    """Jobs with ``at``, ``cores`` and columns of a workload, which run for 100 s."""
    given = [{"at": 0.0, "cores": 4, **row} for row in rows]
    return Workload.from_columns(
        submission_time=[row["at"] for row in given],
        runtime=[100.0] * len(given),
        requested_cores=[row["cores"] for row in given],
        requested_time=[100.0] * len(given),
        **{name: [row.get(name, -1) for row in given] for name in ("user", "group", "queue", "partition")},
        memory=[row.get("memory", 0.0) for row in given],
    )


def starts(rows: list[dict[str, Any]], rules: dict[str, Any], platform: Platform | None = None) -> list[float]:
    machine = platform or Platform.homogeneous(nodes=2, cores_per_node=4)
    slurm = {"parameters": AT_ONCE, **rules.pop("slurm", {})}
    return hdsim.simulate(machine, jobs(rows), SlurmAgent({**rules, "slurm": slurm}), check=True).starting_time.tolist()


def test_in_order_of_submission_it_is_fcfs_and_with_backfill_it_is_not() -> None:
    rng = np.random.default_rng(3)
    runtime = rng.integers(10, 500, 200).astype(float)
    workload = Workload.from_columns(
        submission_time=np.sort(rng.integers(0, 6000, 200)).astype(float),
        runtime=runtime,
        requested_cores=rng.integers(1, 17, 200),
        requested_time=runtime * 2,
    )
    platform = Platform.homogeneous(nodes=4, cores_per_node=4)
    built_in = SlurmAgent({"slurm": {"type": "builtin", "parameters": AT_ONCE}})
    fcfs = hdsim.simulate(platform, workload, "fcfs").starting_time
    assert hdsim.simulate(platform, workload, built_in, check=True).starting_time.tolist() == fcfs.tolist()
    backfill = hdsim.simulate(platform, workload, SlurmAgent({"slurm": {"parameters": AT_ONCE}})).starting_time
    assert backfill.mean() < 0.9 * fcfs.mean()


def test_queues_are_qos_and_groups_are_accounts() -> None:
    rows = [{"cores": 8}, {"at": 1.0, "queue": 1, "cores": 8}, {"at": 1.0, "queue": 2, "cores": 8}]
    assert starts(rows, {}) == [0, 100, 200]
    by_qos = {"priority": {"type": "multifactor", "weight_qos": 10}, "qos": {"q2": {"priority": 5}}}
    assert starts(rows, by_qos) == [0, 200, 100]
    rows = [{"at": at, "user": user, "group": user, "cores": 8} for at, user in ((0.0, 0), (1.0, 0), (1.0, 1))]
    shares = {"priority": {"type": "multifactor", "weight_fair_share": 100, "calculation_period": 10}}
    assert starts(rows, shares) == [0, 200, 100]


def test_limits_and_preemption_hold_for_queues_and_partitions() -> None:
    rows = [{"user": 1, "cores": 1}, {"user": 1, "cores": 1}, {"user": 2, "cores": 1}]
    most = {"qos": {"normal": {"limits": {"max_jobs": 1}}}}
    assert starts(rows, most) == [0, 100, 0]
    assert starts(rows, most | {"slurm": {"enforce": []}}) == [0, 0, 0]
    parts = {"p1": {"preempt_mode": "CANCEL"}, "p2": {"priority_tier": 2, "preempt_mode": "OFF"}}
    tiers = {"partitions": parts, "preemption": {"type": "partition_prio", "mode": "CANCEL"}}
    assert starts([{"partition": 1, "cores": 8}, {"partition": 2, "at": 10.0}], tiers) == [0, 10]


def test_preemption_of_queues_that_no_job_has_is_told(caplog: pytest.LogCaptureFixture) -> None:
    rules = {"preemption": {"type": "qos", "mode": "CANCEL"}, "qos": {"q1": {"preempt": ["q2", "normal"]}}}
    assert starts([{}, {"queue": 1}], rules) == [0, 0]
    assert [record.getMessage() for record in caplog.records] == [
        "site.qos.q1.preempt: no job has the QOS q2; there are q1, normal"
    ]


def test_each_cluster_of_several_is_a_partition() -> None:
    platform = hdsim.load_platform("mc2")
    assert platform.n_clusters > 1
    workload = named(jobs([{"partition": 3}, {}]))
    site = bare_site({}, platform, workload)
    assert list(site.partitions) == ["main", *platform.cluster_names, "p3"]
    result = hdsim.simulate(platform, jobs([{}]), SlurmAgent({"partitions": {"main": {"state": "DOWN"}}}))
    assert result.columns["reason"].tolist() == ["PartitionDown"]


def test_memory_and_gpus_of_any_platform_count() -> None:
    platform = Platform.homogeneous(nodes=1, cores_per_node=4, memory_gb_per_node=3.0)
    rows = [{"cores": 3, "memory": 1000.0}, {"cores": 1}, {"cores": 1, "memory": 1.0}]
    assert starts(rows, {}, platform) == [0, 0, 100]
    accelerated = hdsim.load_platform("accelerated")
    most = int(accelerated.node_gpus.max())
    workload = Workload.from_columns(
        submission_time=np.zeros(9), runtime=50.0, requested_cores=1, requested_time=50.0, requested_gpus=most
    )
    result = hdsim.simulate(accelerated, workload, SlurmAgent({"slurm": {"parameters": AT_ONCE}}), check=True)
    at_once = int((accelerated.node_gpus == most).sum())
    assert (result.starting_time == 0).sum() == min(at_once, 9)
    # Half the GPUs of the machine, which no node has.
    many = Platform.homogeneous(nodes=2, cores_per_node=4).to_dict()
    for kind in many["types"]["node"].values():
        kind["processors"].append({"type": "GPU", "number": 2})
    many["types"]["processor"]["GPU"] = {"type": "GPU", "cores": 1, "clock_rate": 1, "dpflops_per_cycle": 1, "power": 0}
    spread = Workload.from_columns(
        submission_time=[0.0, 1.0], runtime=50.0, requested_cores=8, requested_time=50.0, requested_gpus=4
    )
    agent = SlurmAgent({"slurm": {"parameters": AT_ONCE}})
    assert hdsim.simulate(Platform.from_dict(many), spread, agent, check=True).starting_time.tolist() == [0, 50]


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_is_usable_by_itself(option: str) -> None:
    group, _, name = option.rpartition("/")
    composer = Composer()
    config = composer.compose(composer.overrides([f"{group}={name}", "platform=homogeneous_256"]))
    assert config["agent"]["_target_"] == "hdsim.agents.slurm.SlurmAgent"
    site = SlurmAgent(config["agent"]["site"]).site
    part = group.partition("/")[2]
    if part != "limits":
        given = getattr(site, part)
        assert given.model_fields_set
    platform = hdsim.load_platform("homogeneous_256")
    workload = hdsim.load_workload("lublin_4000", platform=platform, jobs=30)
    result = hdsim.simulate(platform, workload, SlurmAgent(config["agent"]["site"]))
    assert result.metrics["jobs_completed"] == 30


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["site.partitions.lo.max_time=5", "agent=easy"],
            r"site\.partitions\.lo\.max_time: expected site=FOLDER before",
        ),
        (["site/priority=fair"], r"site/priority: expected one of basic, .*did you mean 'fair_tree'"),
    ],
)
def test_a_rule_without_slurm_is_told(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        composer = Composer()
        composer.compose(composer.overrides(overrides))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"partitions": {"lo": {"max_time": 5}}}, r"site\.partitions\.lo: expected nodes of it, or one of .* main"),
        ({"nodes": {"n": {"nodes": "n1"}}, "path": None}, r"expected the platform of the site"),
        ({"partition": {}}, r"site: partition: unknown key \(did you mean 'partitions'\?\)"),
        (
            {"partitions": {"main": {"qos": "norml"}}},
            r"partitions\.main\.qos: .*got 'norml' \(did you mean 'normal'\?\)",
        ),
        ({"qos": {"normal": {"limits": {"grp_tres": {"foo": 3}}}}}, r"expected limits of cpu, mem, .*, got 'foo'"),
        ({"priority": {"calculation_period": 0}}, r"priority\.calculation_period: expected greater than 0, got 0"),
        *(
            (
                {"slurm": {"parameters": {name: value}}},
                rf"{name}={value} \(expected a whole number of at least {least}\)",
            )
            for name, value, least in (("bf_interval", "abc", 0), ("sched_interval", -1, 0), ("bf_resolution", 0, 1))
        ),
    ],
)
def test_a_wrong_rule_is_one_line(rules: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        starts([{}], rules)
