"""Files of a Slurm site: what is read, what is refused and what is noted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdsim.errors import ConfigError
from hdsim.platform.load import load_platform
from hdsim.site import formats
from hdsim.site.formats import expand_nodes
from hdsim.site.importing import note_refused, read_site, write_site
from hdsim.site.jobs_table import jobs_table
from hdsim.site.model import Site, load_site
from hdsim.site.notes import Notes
from hdsim.site.platform import MB_PER_MIB, nodes_of
from hdsim.site.scheduler import SlurmScheduler

CONF = """\
# A small site
ClusterName=tiny
SlurmctldHost=head(10.0.0.1)
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=60,bf_continue,bf_window=4320
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightTRES=CPU=1000,Mem=2000,GRES/gpu=30
PriorityMaxAge=14-0
PriorityDecayHalfLife=7-0
PriorityFlags=NO_FAIR_TREE
AccountingStorageEnforce=limits,qos
PreemptType=preempt/qos
PreemptMode=REQUEUE,GANG
Licenses=matlab:10,ansys
DefMemPerCPU=2000
Frobnicate=yes
NodeName=DEFAULT Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=64000 State=UNKNOWN
NodeName=n[9-10,1-8] Feature=ib,old Weight=5
NodeName=gpu[01-02] RealMemory=128000 Gres=gpu:a100:4(S:0-1),shard:8 Feature=ib \\
    Weight=10 Reason="two of them"
NodeSet=withib Feature=ib
PartitionName=DEFAULT MaxTime=2-0 State=UP
PartitionName=short Nodes=n[1-10] Default=YES MaxTime=60 DefaultTime=10 PriorityJobFactor=10
PartitionName=long Nodes=withib MaxTime=UNLIMITED PriorityTier=2 AllowQos=normal,hi QOS=part DenyAccounts=a2
PartitionName=gpu Nodes=gpu[01-02] OverSubscribe=EXCLUSIVE TRESBillingWeights="CPU=1.0,Mem=0.25G,GRES/gpu=8"
"""

_QOS_COLUMNS = (
    "Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageThres|UsageFactor|GrpTRES|GrpTRESMins|"
    "GrpTRESRunMins|GrpJobs|GrpSubmit|GrpWall|MaxTRES|MaxTRESPerNode|MaxTRESMins|MaxWall|MaxTRESPU|MaxJobsPU|"
    "MaxSubmitPU|MaxTRESPA|MaxJobsPA|MaxSubmitPA|MinTRES"
)
QOS = f"""\
{_QOS_COLUMNS}
normal|10|00:00:00|||cluster|||1.000000||||||||||1-00:00:00|||||||
hi|100|00:00:00|normal|00:05:00|requeue|DenyOnLimit||2.000000|cpu=64,mem=1T||||||||||cpu=16,gres/gpu=2|3|10||||cpu=2
"""

_ASSOC_COLUMNS = (
    "Cluster|Account|User|Partition|Share|Priority|GrpJobs|GrpTRES|GrpSubmit|GrpWall|GrpTRESMins|MaxJobs|MaxTRES|"
    "MaxTRESPerNode|MaxSubmit|MaxWall|MaxTRESMins|QOS|Def QOS|GrpTRESRunMins"
)
ASSOC = f"""\
{_ASSOC_COLUMNS}
tiny|root|||1|||||||||||||normal||
tiny| root|root||1|||||||||||||normal||
tiny| a1|||30||5|cpu=32||||||||||hi,normal|normal|
tiny|  a1|u1||1|||||||2|||||| hi,normal||
tiny|  a11|||parent|||||||||||||normal||
tiny|   a11|u7||3||||||||||||| normal||
tiny| a2|||60|20||||||||||||normal||
other| a9|||60|20||||||||||||normal||
"""

DUMP = """\
# To edit this file start with a cluster line for the new cluster
Cluster - 'tiny':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':AdminLevel='Administrator':DefaultAccount='root':Fairshare=1
Account - 'a1':Description='a1':Organization='a1':Fairshare=30:GrpTRES='cpu=32,gres/gpu:a100=4'
Parent - 'a1'
Account - 'a11':Description='a11':Organization='a11':Fairshare=2
User - 'u1':DefaultAccount='a1':Fairshare=1:MaxJobs=2:QOS='+hi,+normal'
Parent - 'a11'
User - 'u7':DefaultAccount='a11':Fairshare=3
"""

RESERVATIONS = (
    "ReservationName=m1 StartTime=2026-03-02T00:12:03 EndTime=2026-03-02T00:22:03 Duration=00:10:00 Nodes=n[1-4] "
    "NodeCnt=4 CoreCnt=128 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES TRES=cpu=128 Users=root,u1 "
    "Groups=(null) Accounts=(null) Licenses=matlab:3 State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n"
)

SINFO = """\
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
short*       up    1:00:00      2  down* n[2-3]
short*       up    1:00:00      8   idle n[1,4-10]
gpu          up 2-00:00:00      1  drain gpu01
"""

TOPOLOGY = """\
SwitchName=s1 Nodes=n[1-8]
SwitchName=s2 Nodes=n[9-10],gpu[01-02]
SwitchName=top Switches=s[1-2]
"""


def folder(path: Path, **files: str) -> Path:
    given = {"slurm.conf": CONF, **{name.replace("_", "."): text for name, text in files.items()}}
    for name, text in given.items():
        (path / name).write_text(text)
    return path


def read(path: Path, **files: str) -> tuple[Site, Notes]:
    notes = Notes()
    return read_site(folder(path, **files), "UTC", notes), notes


def tree_of(site: Site) -> list[tuple[str, str, str, int | str]]:
    return [(one.account, one.user, one.parent, one.shares) for one in site.associations]


def test_names_and_sets_of_slurm_conf_are_those_of_slurmctld(tmp_path: Path) -> None:
    (tmp_path / "parts.conf").write_text(
        "PartitionName=a Nodes=both Default=YES MaxTime=00:30 AllowAccounts=Chem,PHYS AllowQos=High QOS=Part\n"
    )
    text = (
        "ClusterName=Big\nNodeName=n[1-2] Feature=gpu\nNodeName=n[3-4]\nNodeName=n5 Feature=gpu\n"
        "NodeSet=both Nodes=n[2-3] Feature=gpu\nInclude /etc/slurm/parts.conf\n"
    )
    site, _ = read(tmp_path, slurm_conf=text, qos_txt="Name|Priority\nnormal|0\nhigh|1\npart|0\n")
    one = site.partitions["a"]
    assert sorted(expand_nodes(one.nodes)) == ["n1", "n2", "n3", "n5"]
    assert (site.name, one.max_time, one.allow_accounts, one.allow_qos, one.qos) == (
        *("big", 60, ["chem", "phys"], ["high"], "part"),
    )


def test_nodes_and_partitions_of_slurm_conf(tmp_path: Path) -> None:
    site, notes = read(tmp_path)
    assert [name for name, _ in nodes_of(site)] == ["gpu01", "gpu02", *(f"n{i}" for i in range(1, 11))]
    gpu, node = site.nodes["gpu[01-02]"], site.nodes["n[9-10,1-8]"]
    assert (node.cpus, node.sockets, node.threads_per_core, node.memory, node.weight) == (32, 2, 2, 64000, 5)
    assert (gpu.gres, gpu.features, gpu.weight, gpu.memory) == ({"gpu:a100": 4, "shard": 8}, ["ib"], 10, 128000)
    short, long, third = (site.partitions[name] for name in ("short", "long", "gpu"))
    assert (short.default, short.max_time, short.default_time, short.priority_job_factor) == (True, 3600, 600, 10)
    assert (long.nodes, long.max_time, long.priority_tier) == ("n[9-10,1-8],gpu[01-02]", math.inf, 2)
    assert (long.allow_qos, long.qos, long.deny_accounts) == (["normal", "hi"], "part", ["a2"])
    assert (third.max_time, third.oversubscribe) == (2 * 86_400, "EXCLUSIVE")
    assert third.billing_weights == {"cpu": 1.0, "mem": 0.25 / 1024, "gres/gpu": 8.0}
    assert {one.default_memory_per_cpu for one in site.partitions.values()} == {2000}
    assert notes.left_out == {"slurm.conf": {"frobnicate: not used": 1}}


def test_parameters_of_slurm_conf(tmp_path: Path) -> None:
    site, _ = read(tmp_path)
    priority = site.priority
    assert (site.name, site.licenses) == ("tiny", {"matlab": 10, "ansys": 1})
    assert (priority.type, priority.weight_age, priority.max_age) == ("multifactor", 1000, 14 * 86_400)
    assert (priority.weight_tres, priority.flags) == ({"cpu": 1000, "mem": 2000, "gres/gpu": 30}, ["NO_FAIR_TREE"])
    assert (site.preemption.type, site.preemption.mode, site.preemption.gang) == ("qos", "REQUEUE", True)
    assert site.slurm.parameters == {"bf_interval": 60, "bf_continue": True, "bf_window": 4320}
    assert (site.slurm.enforce, site.slurm.select_parameters) == (["limits", "qos"], ["CR_Core_Memory"])


def test_qos(tmp_path: Path) -> None:
    site, _ = read(tmp_path, qos_txt=QOS)
    normal, hi = site.qos["normal"], site.qos["hi"]
    assert (normal.priority, normal.limits.max_wall, normal.preempt_mode) == (10, 86_400, None)
    assert (hi.preempt, hi.preempt_mode, hi.preempt_exempt_time) == (["normal"], "REQUEUE", 300)
    assert (hi.usage_factor, hi.flags) == (2, ["DenyOnLimit"])
    assert hi.limits.grp_tres == {"cpu": 64, "mem": 1024 * 1024}
    assert hi.limits.max_tres_per_user == {"cpu": 16, "gres/gpu": 2}
    assert (hi.limits.max_jobs, hi.limits.max_submit, hi.limits.min_tres) == (3, 10, {"cpu": 2})
    assert set(site.qos) == {"normal", "hi", "part"}, "the QOS of a partition that no file defines has no limits"


def test_associations_as_a_tree(tmp_path: Path) -> None:
    site, notes = read(tmp_path, assoc_txt=ASSOC)
    assert tree_of(site) == [
        ("root", "", "", 1),
        ("root", "root", "", 1),
        ("a1", "", "", 30),
        ("a1", "u1", "", 1),
        ("a11", "", "a1", "parent"),
        ("a11", "u7", "", 3),
        ("a2", "", "", 60),
    ]
    assert (site.associations[2].limits.grp_jobs, site.associations[2].limits.grp_tres) == (5, {"cpu": 32})
    assert (site.associations[3].limits.max_jobs, site.associations[3].qos) == (2, ["hi", "normal"])
    assert (site.associations[2].default_qos, site.associations[6].priority) == ("normal", 20)
    assert notes.left_out["assoc.txt"] == {"of cluster other": 1}


def test_the_dump_of_sacctmgr_has_the_same_tree(tmp_path: Path) -> None:
    site, _ = read(tmp_path, cluster_cfg=DUMP)
    assert tree_of(site) == [
        ("root", "root", "", 1),
        ("a1", "", "", 30),
        ("a11", "", "a1", 2),
        ("a1", "u1", "", 1),
        ("a11", "u7", "", 3),
    ]
    assert site.associations[1].limits.grp_tres == {"cpu": 32, "gres/gpu:a100": 4}
    assert (site.associations[3].limits.max_jobs, site.associations[3].qos) == (2, ["hi", "normal"])


def test_reservations_states_and_switches(tmp_path: Path) -> None:
    site, _ = read(tmp_path, reservations_txt=RESERVATIONS, sinfo_txt=SINFO, topology_conf=TOPOLOGY)
    kept = site.reservations["m1"]
    assert (kept.nodes, kept.users, kept.flags) == ("n[1-4]", ["root", "u1"], ["MAINT", "SPEC_NODES"])
    assert (kept.start, kept.end - kept.start, kept.licenses) == (1772410323, 600, {"matlab": 3})
    assert site.down == "gpu01,n[2-3]"
    assert (site.switches["top"].switches, site.switches["s2"].nodes) == (["s1", "s2"], "n[9-10],gpu[01-02]")


def test_nodes_that_slurm_conf_has_out_of_service_are_so_unless_sinfo_tells(tmp_path: Path) -> None:
    conf = CONF.replace("Weight=5", "Weight=5 State=DRAIN") + "NodeName=f[1-2] State=FUTURE\nNodeName=c1 State=CLOUD\n"
    site, notes = read(tmp_path, slurm_conf=conf)
    assert site.down == "f[1-2],n[1-10]"
    told = "State=FUTURE: out of service all the time, if no job of the log ran there"
    assert notes.changed["slurm.conf"][told] == 1
    assert read(tmp_path, slurm_conf=conf, sinfo_txt=SINFO)[0].down == "f[1-2],gpu01,n[2-3]"


def test_a_site_is_written_and_read_again(tmp_path: Path) -> None:
    site, notes = read(tmp_path, qos_txt=QOS, assoc_txt=ASSOC, reservations_txt=RESERVATIONS)
    write_site(site, notes, tmp_path / "site")
    assert load_site(tmp_path / "site") == site
    platform = load_platform(tmp_path / "site" / "platform.json")
    assert platform.node_names == tuple(name for name, _ in nodes_of(site))
    assert (platform.n_nodes, platform.n_cpu_cores, platform.n_gpus) == (12, 12 * 32, 8)
    assert platform.memory[[0, 11]].tolist() == pytest.approx([128000 * MB_PER_MIB, 64000 * MB_PER_MIB])


_CYCLE = f"{_ASSOC_COLUMNS}|ParentName\n" + "".join(
    f"tiny|{account}|||1||||||||||||||||{parent}\n" for account, parent in (("root", ""), ("a1", "a2"), ("a2", "a1"))
)


@pytest.mark.parametrize(
    ("files", "file", "reason"),
    [
        (
            {"slurm_conf": CONF + "PartitionName=gpu Nodes=n1\n"},
            "slurm.conf",
            "partition gpu on several lines: as on the",
        ),
        (
            {"slurm_conf": CONF + "NodeName=x CPUs=7 CoresPerSocket=3\n"},
            "slurm.conf",
            "CPUs=7 beside sockets, cores and",
        ),
        ({"qos_txt": QOS + QOS.splitlines()[1] + "\n"}, "qos.txt", "QOS on several lines: as on the last one"),
        ({"sinfo_txt": SINFO.replace("n[2-3]", "n[2-3,77]")}, "sinfo.txt", "nodes that slurm.conf does not have: n77"),
        (
            {"reservations_txt": RESERVATIONS.replace("n[1-4]", "n[4,77]")},
            "reservations.txt",
            "nodes that slurm.conf does not have: n77",
        ),
        (
            {"reservations_txt": RESERVATIONS.replace("EndTime=2026-03-02", "EndTime=2026-03-01")},
            "reservations.txt",
            "reservations without a name, or that end before they start",
        ),
        (
            {"reservations_txt": RESERVATIONS.replace("Flags=MAINT", "Flags=MAINT,DAILY")},
            "reservations.txt",
            "Flags=DAILY: not simulated; the reservation is taken once",
        ),
        (
            {"reservations_txt": RESERVATIONS.replace("Flags=MAINT", "Flags=FLEX")},
            "reservations.txt",
            "Flags=FLEX: not simulated",
        ),
        (
            {"reservations_txt": RESERVATIONS.replace("Users=root", "Users=-root")},
            "reservations.txt",
            "users that may not use a reservation: not simulated",
        ),
        ({"reservations_txt": RESERVATIONS}, "reservations.txt", "reserved licences: not simulated"),
        (
            {"reservations_txt": RESERVATIONS.replace("Duration", "NodeName=n1 CoreIDs=0-3 Duration", 1)},
            "reservations.txt",
            "cores of nodes: all those of the nodes are reserved",
        ),
        (
            {"assoc_txt": _CYCLE},
            "assoc.txt",
            "site: associations: expected accounts below root, got 2 above themselves",
        ),
        (
            {"slurm_conf": CONF + "TopologyPlugin=topology/tree\n", "topology_conf": "SwitchName=s1 Nodes=z1\n"},
            "topology.conf",
            "site: switches.s1: expected nodes of the site, got 'z1': replays are refused",
        ),
        ({"nodes_conf": "NodeName=x\n"}, "nodes.conf", "not one of the files of a site"),
    ],
)
def test_what_contradicts_the_other_files_is_listed(
    tmp_path: Path, files: dict[str, str], file: str, reason: str
) -> None:
    site, notes = read(tmp_path, **files)
    note_refused(site, notes)
    told = {**notes.left_out.get(file, {}), **notes.changed.get(file, {})}
    assert any(text.startswith(reason) for text in told), told
    assert "n77" not in f"{site.down} {[one.nodes for one in site.reservations.values()]}"


def test_lines_are_read_as_slurmctld_reads_them(tmp_path: Path) -> None:
    """With blanks around the equals sign, from included files, and a last one that is continued."""
    conf = "Include nodes.conf\nPartitionName=p Nodes = ALL MaxTime= 60 \\\n State=UP\nPartitionName=q Nodes=x2 \\"
    site, notes = read(tmp_path, slurm_conf=conf, nodes_conf="# nodes\nNodeName=x[001-010,15] CPUs = 8\nNodeName=x2\n")
    cpus = {name: kind.cpus for name, kind in nodes_of(site)}
    assert cpus == {**{f"x{number:03}": 8 for number in range(1, 11)}, "x15": 8, "x2": 1}
    assert (site.partitions["p"].nodes, site.partitions["p"].max_time, site.partitions["q"].nodes) == (
        "ALL",
        3600,
        "x2",
    )
    assert not notes.left_out


def test_a_site_file_that_is_cut_off_is_no_site(tmp_path: Path) -> None:
    """At the end of whichever line; keys that are written below it, and other files, need no such end."""
    site, notes = read(tmp_path, qos_txt=QOS, assoc_txt=ASSOC)
    write_site(site, notes, tmp_path / "site")
    file = tmp_path / "site" / "site.yaml"
    text = file.read_text()
    lines = text.splitlines(keepends=True)
    for count in range(len(lines)):
        file.write_text("".join(lines[:count]))
        with pytest.raises(
            ConfigError, match=rf"got a file that is cut off after line {count}$" if count else "got nothing"
        ):
            load_site(tmp_path / "site")
    file.write_text(text + "down: n3\n")
    assert load_site(tmp_path / "site").down == "n3"
    file.write_text("".join(lines[1:-1]))
    assert load_site(tmp_path / "site") == site


def test_rules_that_are_not_simulated_are_refused_by_name(tmp_path: Path) -> None:
    conf = CONF.replace("bf_continue", "bf_continue,bf_licenses,assoc_limit_stop").replace(
        "select/cons_tres", "select/linear"
    )
    site, notes = read(tmp_path, slurm_conf=conf, qos_txt=QOS, assoc_txt=ASSOC)
    note_refused(site, notes)
    assert "GPUs with select/linear: not simulated, replays are refused" in notes.left_out["slurm.conf"]
    jobs = jobs_table({"submit": [0.0], "cpus": [1], "partition": ["short"]}, site)
    with pytest.raises(ConfigError) as told:
        SlurmScheduler(site, jobs)
    assert "GPUs with select/linear" in str(told.value)
    for rule in ("SchedulerParameters=bf_licenses", "SchedulerParameters=assoc_limit_stop"):
        assert rule in str(told.value)


def noted(path: Path, **files: str) -> set[str]:
    """What an import lists of its files, and the rules for which a replay is refused."""
    site, notes = read(path, **files)
    note_refused(site, notes)
    return {text for table in (notes.left_out, notes.changed) for reasons in table.values() for text in reasons}


_REFUSED = ": not simulated, replays are refused"
#: Lines of slurm.conf, and what an import tells of them; None: that they are read, or without influence.
LINES: list[tuple[str, str | None]] = [
    ("SelectTypeParameters=CR_Core,CR_CORE_DEFAULT_DIST_BLOCK", None),
    ("SelectTypeParameters=CR_Core,CR_ONE_TASK_PER_CORE", f"SelectTypeParameters=CR_ONE_TASK_PER_CORE{_REFUSED}"),
    (
        "SelectTypeParameters=CR_LLN",
        f"SelectTypeParameters=CR_LLN (expected CR_CPU, CR_Core or CR_Socket, or one with _Memory){_REFUSED}",
    ),
    ("SchedulerParameters=defer,enable_user_top,kill_invalid_depend,bf_max_job_array_resv=5", None),
    ("SchedulerParameters=bf_licenses", f"SchedulerParameters=bf_licenses{_REFUSED}"),
    ("TopologyParam=TopoOptional", None),
    ("TopologyParam=Dragonfly", f"TopologyParam=Dragonfly{_REFUSED}"),
    ("PreemptParameters=youngest_first,reorder_count=2,send_user_signal", None),
    ("PreemptParameters=min_exempt_priority=9", f"SchedulerParameters=preempt_min_exempt_priority{_REFUSED}"),
    ("PriorityFlags=CALCULATE_RUNNING", None),
    ("PriorityFlags=INCR_ONLY", f"PriorityFlags=INCR_ONLY{_REFUSED}"),
    ("SchedulerParameters=reduce_completing_frag,max_switch_wait=600,Ignore_NUMA", None),
    ("MCSPlugin=mcs/none\nSuspendTime=INFINITE\nJobRequeue=1", None),
    ("MCSPlugin=mcs/user", "mcsplugin=mcs/user: not simulated"),
    ("SuspendTime=600", "suspendtime=600: not simulated"),
    ("JobRequeue=0", "jobrequeue=0: not simulated"),
    ("PrioritySiteFactorPlugin=site_factor/own", "prioritysitefactorplugin=site_factor/own: not simulated"),
    ("PartitionName=q Nodes=n1 ReqResv=YES", "reqresv: not used"),
    ("PartitionName=q Nodes=n1 OverTimeLimit=10", "overtimelimit: not used"),
    ("PartitionName=q Nodes=n1 JobDefaults=DefCpuPerGPU=4", "jobdefaults: not used"),
    ("NodeName=x CPUs=32 MemSpecLimit=1000", "memspeclimit: not used"),
    (
        "PartitionName=q Nodes=n1 OverSubscribe=FORCE:2",
        f"partition q: OverSubscribe=FORCE:2 beside preemption{_REFUSED}",
    ),
]


@pytest.mark.parametrize(("line", "told"), LINES, ids=[line for line, _ in LINES])
def test_a_rule_that_is_not_simulated_is_listed(tmp_path: Path, line: str, told: str | None) -> None:
    with_line = tmp_path / "with"
    with_line.mkdir()
    conf = CONF.replace("PreemptMode=REQUEUE,GANG", "PreemptMode=REQUEUE") + line + "\n"
    usual = noted(tmp_path, slurm_conf=conf.replace(line + "\n", ""))
    assert noted(with_line, slurm_conf=conf) - usual == ({told} if told else set())


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("Flags", "NoReserve,PartitionMaxNodes,partitiontimelimit,DenyOnLimit", None),
        ("Flags", "EnforceUsageThreshold", None),
        ("Flags", "Relative", f"QOS hi: Flags=Relative{_REFUSED}"),
        ("LimitFactor", "2.0", "limitfactor: not used"),
        ("MaxJobsAccruePU", "3", "maxjobsaccruepu: not used"),
        ("MinPrioThresh", "100", "minpriothresh: not used"),
    ],
)
def test_a_rule_of_a_qos_that_is_not_simulated_is_listed(
    tmp_path: Path, column: str, value: str, told: str | None
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    usual = noted(tmp_path, qos_txt="Name|Priority\nhi|1\n")
    found = noted(given, qos_txt=f"Name|Priority|{column}\nhi|1|{value}\n")
    assert found - usual == ({told} if told else set())


@pytest.mark.parametrize(
    ("words", "limits", "safe"),
    [("associations", False, False), ("limits", True, False), ("2", True, False), ("ALL,nojobs", True, True)],
)
def test_words_of_accounting_that_have_limits_hold(tmp_path: Path, words: str, limits: bool, safe: bool) -> None:
    site, _ = read(tmp_path, slurm_conf=CONF.replace("=limits,qos", f"={words}"))
    assert (site.slurm.enforces_limits, site.slurm.is_safe) == (limits, safe)


def test_what_slurm_conf_leaves_out_is_as_in_slurmctld(tmp_path: Path) -> None:
    conf = "NodeName=a Procs=8\nNodeName=b Boards=2 Sockets=1 CoresPerSocket=4\nDefMemPerNode=9\nMaxMemPerCPU=7\n"
    conf += "PartitionName=p Nodes=ALL\nPartitionName=q Nodes=ALL DefMemPerCPU=3 MaxMemPerNode=5\n"
    site, notes = read(tmp_path, slurm_conf=conf)
    assert [kind.cpus for kind in site.nodes.values()] == [8, 8]
    assert site.slurm.consumable == {"CORE", "MEMORY"}
    assert notes.changed == {"slurm.conf": {"no SelectType: select/cons_tres, the default from Slurm 23.11 on": 1}}
    memory = [
        (
            one.default_memory_per_cpu,
            one.default_memory_per_node,
            one.max_memory_per_cpu,
            one.max_memory_per_node,
        )
        for one in site.partitions.values()
    ]
    assert memory == [(None, 9, 7, None), (3, None, None, 5)]
    cpus = read(tmp_path, slurm_conf=conf + "SelectTypeParameters=CR_CPU,CR_CORE_DEFAULT_DIST_BLOCK\n")[0]
    assert cpus.slurm.consumable == {"CPU"}


FAULTS: list[tuple[str, dict[str, str], str]] = [
    ("no nodes", {"slurm_conf": "ClusterName=c\n"}, r"expected lines NodeName=\.\.\. and PartitionName"),
    ("no configuration", {"slurm_conf": "hello world\n"}, r'slurm.conf:1: expected Key=Value, got "hello world"'),
    ("a time", {"slurm_conf": CONF.replace("MaxTime=60", "MaxTime=soon")}, r"maxtime: expected a time such as 30"),
    ("nodes", {"slurm_conf": CONF.replace("Nodes=gpu[01-02]", "Nodes=gpu[01-03]")}, r"NodeName=, got gpu03"),
    ("a list", {"slurm_conf": CONF.replace("Nodes=n[1-10] ", "Nodes=n[1-10 ")}, r"expected a list of nodes"),
    ("twice", {"slurm_conf": CONF.replace("NodeName=gpu[01-02]", "NodeName=gpu[01-02],n3")}, r"got 'n3' twice"),
    (
        "a state",
        {"slurm_conf": CONF.replace("State=UP", "State=GONE")},
        r"state: expected UP, DOWN, DRAIN or INACTIVE, got 'GONE'",
    ),
    ("no partitions", {"slurm_conf": CONF.replace("PartitionName", "#")}, r"expected lines NodeName=\.\.\. and Part"),
    (
        "no CPU",
        {"slurm_conf": CONF.replace("Sockets=2", "Sockets=0")},
        r"sockets: expected a whole number from 1 on, got",
    ),
    ("a range", {"slurm_conf": CONF.replace("n[9-10,1-8]", "n[10-9]")}, r"NodeName: expected a list of nodes such as"),
    (
        "ranges",
        {"slurm_conf": CONF.replace("n[9-10", "n[9-99999999999")},
        r"NodeName: expected at most 65,536 nodes, got",
    ),
    (
        "a word",
        {"slurm_conf": CONF.replace("Sockets=2", "Sockets 2")},
        r'slurm.conf:20: expected Key=Value, got "Sockets 2"',
    ),
    (
        "shares of CPUs",
        {"slurm_conf": CONF.replace("=EXCLUSIVE", "=FORCE:0")},
        r'partitions.gpu.oversubscribe: expected NO, EXCLUSIVE, YES:n or FORCE:n, got "FORCE:0"',
    ),
    (
        "a weight",
        {"slurm_conf": CONF.replace("Age=1000", "Age=-5")},
        r"priorityweightage: expected a number of at least 0",
    ),
    ("a header", {"qos_txt": "normal 10\n"}, r"qos.txt:1: expected a header such as"),
    ("a column", {"assoc_txt": "Cluster|User\ntiny|u1\n"}, r"expected columns Account and User"),
    ("a short row", {"qos_txt": QOS + "bad|1\n"}, r"qos.txt:4: expected 26 columns, got 2"),
    ("a number", {"qos_txt": QOS.replace("|100|", "|lots|")}, r"qos.txt:3: priority: expected a whole number"),
    ("a dump", {"cluster_cfg": "Name|Priority\n"}, r"cluster.cfg:1: expected Cluster -, Parent -"),
    ("a reservation", {"reservations_txt": "nothing\n"}, r"reservations.txt: expected ReservationName="),
    ("a date", {"reservations_txt": RESERVATIONS.replace("2026-03-02T00:12:03", "noon")}, r"expected a date such as"),
    ("sinfo", {"sinfo_txt": "n1 idle\n"}, r"sinfo.txt: expected a header with STATE and NODELIST"),
    ("a switch", {"topology_conf": "Nodes=n1\n"}, r"topology.conf:1: expected SwitchName="),
]


@pytest.mark.parametrize(("name", "files", "message"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_a_fault_of_a_file_is_one_line(tmp_path: Path, name: str, files: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as told:
        site, _ = read(tmp_path, **files)
        write_site(site, Notes(), tmp_path / "site")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("partition: {}", r"partition: unknown key \(did you mean 'partitions'\?\)"),
        ("partitions: {p: {max_tme: 3}}", r"partitions.p.max_tme: unknown key \(did you mean 'max_time'\?\)"),
        ("partitions: {p: {max_time: soon}}", r'partitions.p.max_time: expected seconds, 24h, .* got "soon"'),
        ("qos: {a: {limits: {grp_jobs: -1}}}", r"qos.a.limits.grp_jobs: .* got -1"),
        ("[1]", r"expected keys such as partitions and nodes, got \[1\]"),
        ("a: [", r"expected YAML"),
    ],
)
def test_a_fault_of_a_site_file_names_its_key(tmp_path: Path, document: str, message: str) -> None:
    (tmp_path / "site.yaml").write_text(document)
    with pytest.raises(ConfigError, match=message):
        load_site(tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 3600),
        ("1:30", 90),
        ("1:30:00", 5400),
        ("2-12", 216_000),
        ("2-12:30", 217_800),
        ("2-12:30:15", 217_815),
        ("UNLIMITED", math.inf),
        ("infinite", math.inf),
    ],
)
def test_forms_of_times(text: str, seconds: float) -> None:
    assert formats.parse_time(text) == seconds


@given(st.integers(0, 10**8))
def test_a_time_is_read_as_it_is_printed(seconds: int) -> None:
    assert formats.parse_elapsed(formats.format_time(seconds)) == seconds


@pytest.mark.parametrize(
    ("read_text", "text"),
    [
        (formats.parse_time, "1:2:3:4"),
        (formats.parse_elapsed, "60"),
        (formats.parse_memory, "4 GB"),
        (formats.parse_tres, "cpu"),
        (formats.parse_tres, "cpu=many"),
        (formats.expand_nodes, "n[1-"),
        (lambda text: formats.parse_date(text, "UTC"), "yesterday"),
    ],
)
def test_other_texts_are_refused(read_text: Any, text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        read_text(text)


def test_generic_resources_and_lists_of_nodes() -> None:
    assert formats.parse_gres("gpu:ta:4(S:0-1),gpu:2,shard:8,gpu") == {"gpu:ta": 4, "gpu": 3, "shard": 8}
    assert formats.parse_tres("cpu=4,mem=62.50G,gres/gpu:ta=1,billing=-1") == {
        "cpu": 4,
        "mem": 64_000,
        "gres/gpu:ta": 1,
    }
    assert formats.parse_memory("2147486648Mn") == (2_147_486_648, "n")
    assert formats.expand_nodes("n[10,1-3],login1") == ["n1", "n2", "n3", "n10", "login1"]
    assert formats.fold_nodes(["n3", "n1", "n2", "x7"]) == "n[1-3],x7"
