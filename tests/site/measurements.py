"""Clusters and jobs whose schedules by a real slurmctld 22.05 are in the folder `measured`.

``python tests/site/measurements.py NAME`` measures one of them anew.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from measuring import Measurement, measure

FOLDER = Path(__file__).with_name("measured")
_SCHEDULER = (
    "SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,default_queue_depth=10000,"
    "bf_interval=1,bf_resolution=1,bf_max_job_test=10000,bf_continue"
)
_ACCOUNTS = [
    *(f"add account {name}" for name in ("a1", "a2", "a3")),
    *(f"add user root account={name}" for name in ("a1", "a2", "a3")),
]
_LIMITS = "AccountingStorageEnforce=associations,limits,qos\nPriorityCalcPeriod=00:01:00\n"

MEASUREMENTS: dict[str, Measurement] = {
    # CPU-minutes left to running jobs: 60 of the account, 40 of the QOS; minutes of each job; CPUs on a node.
    "limits_minutes": Measurement(
        nodes={"n[1-4]": "CPUs=8 RealMemory=32000"},
        conf=_LIMITS,
        accounts=[
            *_ACCOUNTS,
            "modify account a1 set GrpTRESRunMins=cpu=60",
            "modify account a2 set MaxTRESMins=cpu=30",
            "add qos run GrpTRESRunMins=cpu=40,node=30",
            "add qos job MaxTRESMinsPerJob=cpu=20",
            "add qos node MaxTRESPerNode=cpu=4",
            "modify user root set qos=normal,run,job,node",
        ],
        jobs=[
            (0, 400, "-A a1 -n 4 -t 10"),  # 40 of 60 are left to it
            (30, 300, "-A a1 -n 2 -t 10"),  # 20 more
            (60, 200, "-A a1 -n 1 -t 5"),  # waits until 5 are free
            (90, 200, "-A a1 -n 4 -t 6"),
            (120, 200, "-A a1 -n 6 -t 10"),
            (150, 200, "-A a3 -q run -n 2 -t 15"),  # 30 of 40, 15 of 30 nodes
            (180, 100, "-A a3 -q run -n 1 -t 12"),  # not 12 nodes' more... waits for 2 CPU-minutes
            (210, 100, "-A a3 -q run -N 2 -n 2 -t 5"),
            (240, 100, "-A a2 -n 3 -t 10"),
            (270, 100, "-A a3 -q job -n 2 -t 10"),
            (300, 100, "-A a3 -q node -N 2 -n 8 -t 5"),
            (330, 100, "-A a3 -q node -n 4 -t 5"),
            (360, 200, "-A a1 -n 8 -t 5"),
            (700, 100, "-A a1 -n 3 -t 10"),
            (720, 100, "-A a1 -n 3 -t 10"),
            (730, 100, "-A a1 -n 1 -t 10"),
        ],
    ),
    # Minutes of jobs together: 10 of an account, 15 of a QOS, and what fits into the rest where limits are safe.
    "limits_wall": Measurement(
        nodes={"n[1-2]": "CPUs=8 RealMemory=32000"},
        conf=_LIMITS.replace("limits,", "safe,") + "PriorityDecayHalfLife=0-00:20:00",
        accounts=[
            *_ACCOUNTS,
            "modify account a1 set GrpWall=10",
            "modify account a2 set GrpTRESMins=cpu=40",
            "add qos wall GrpWall=15",
            "add qos mins GrpTRESMins=cpu=30",
            "modify user root set qos=normal,wall,mins",
        ],
        jobs=[
            (0, 240, "-A a1 -n 1 -t 5"),
            (20, 120, "-A a1 -n 1 -t 9"),
            (300, 120, "-A a1 -n 1 -t 8"),  # 4 of 10 are used: waits for decay
            (310, 60, "-A a1 -n 1 -t 3"),
            (0, 300, "-A a2 -n 4 -t 6"),  # 24 of 40
            (30, 100, "-A a2 -n 4 -t 5"),  # 20 more do not fit
            (60, 100, "-A a2 -n 1 -t 10"),
            (400, 100, "-A a2 -n 4 -t 5"),
            (0, 300, "-A a3 -q wall -n 1 -t 6"),
            (10, 300, "-A a3 -q wall -n 1 -t 14"),
            (500, 100, "-A a3 -q wall -n 1 -t 12"),
            (0, 200, "-A a3 -q mins -n 2 -t 10"),
            (30, 100, "-A a3 -q mins -n 2 -t 4"),
            (40, 100, "-A a3 -q mins -n 3 -t 5"),
            (400, 100, "-A a3 -q mins -n 2 -t 12"),
        ],
    ),
    # GPUs of all nodes together, of each node and task, and CPUs of each GPU.
    "gpus": Measurement(
        nodes={
            "n[1-2]": "Sockets=2 CoresPerSocket=8 RealMemory=64000 Gres=gpu:ta:4",
            "n[3-4]": "Sockets=2 CoresPerSocket=4 RealMemory=64000 Gres=gpu:tb:2",
            "n5": "Sockets=2 CoresPerSocket=8 RealMemory=64000",
        },
        conf="GresTypes=gpu\nAccountingStorageTRES=gres/gpu\nPriorityType=priority/basic",
        files={
            "gres.conf": "NodeName=n[1-2] Name=gpu Type=ta File=FOLDER/run/gpu[0-3]\n"
            "NodeName=n[3-4] Name=gpu Type=tb File=FOLDER/run/gpu[0-1]\n"
        },
        jobs=[
            (0, 300, "-n 1 -t 8 --gres=gpu:1"),
            (30, 400, "-n 2 -t 8 --gpus=3"),
            (60, 300, "-n 4 -t 8 --gpus=5"),
            (90, 300, "-n 3 -t 8 --gpus-per-task=1"),
            (120, 300, "-n 2 -N 2 -t 8 --gpus-per-node=1"),
            (150, 300, "-n 6 -t 8"),
            (180, 200, "-n 1 -t 8 --gpus=2"),
            (210, 200, "-n 2 -t 8 --gpus=tb:2 --cpus-per-gpu=2"),
            (240, 200, "-n 2 -N 1 -t 8 -G ta:1"),
            (270, 200, "-n 4 -t 8 --gpus-per-task=ta:2"),
            (300, 200, "-n 6 -t 8 --gpus=6"),
            (800, 300, "-n 2 -t 8 --gpus=2"),
            (830, 300, "-n 2 -N 2 -t 8 --gpus=5"),
            (860, 300, "-n 1 -c 4 -t 8 --gpus=tb:1"),
            (890, 300, "-n 12 -t 8 --gpus-per-node=1"),
            (920, 300, "-n 8 -t 8 --gpus=4"),
            (950, 300, "-n 3 -N 3 -t 8 --gpus=3"),
        ],
    ),
    # Least loaded nodes of a partition, serial jobs on the last nodes, and busy nodes first in backfill.
    "orders": Measurement(
        nodes={
            "n[1-3]": "Sockets=1 CoresPerSocket=8 RealMemory=32000",
            "n[4-5]": "Sockets=1 CoresPerSocket=4 RealMemory=32000 Weight=2",
            "n6": "Sockets=1 CoresPerSocket=16 RealMemory=32000",
        },
        conf="PriorityType=priority/basic\n"
        + _SCHEDULER
        + ",pack_serial_at_end,bf_busy_nodes\n"
        + "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        + "PartitionName=lln Nodes=ALL LLN=YES MaxTime=INFINITE State=UP",
        jobs=[
            (0, 400, "-n 2 -t 9"),
            (30, 400, "-n 3 -t 9 -p lln"),
            (60, 400, "-n 1 -t 9"),
            (90, 400, "-n 5 -t 9 -p lln"),
            (120, 400, "-n 1 -t 9 -p lln"),
            (150, 400, "-n 4 -t 9 -p lln"),
            (180, 400, "-n 6 -t 9"),
            (210, 400, "-n 1 -t 9"),
            (240, 300, "-n 6 -N 3 -t 9 -p lln"),
            (270, 300, "-n 10 -t 9 -p lln"),
            (300, 300, "-n 44 -t 9"),
            (330, 100, "-n 2 -t 3"),
            (360, 100, "-n 1 -t 3"),
            (390, 100, "-n 4 -N 2 -t 2"),
            (420, 100, "-n 3 -t 2 -p lln"),
            (1400, 100, "-n 20 -t 3 -p lln"),
            (1430, 100, "-n 2 -N 2 -t 3 -p lln"),
        ],
    ),
    # Switches of four nodes below two of two below one; nodes of another weight.
    "switches": Measurement(
        nodes={
            "n[1-6]": "CPUs=4 RealMemory=8000",
            "n[7-8]": "CPUs=4 RealMemory=8000 Weight=3",
            "n[9-12]": "CPUs=4 RealMemory=8000",
        },
        conf="PriorityType=priority/basic\nTopologyPlugin=topology/tree",
        files={
            "topology.conf": "SwitchName=s1 Nodes=n[1-3]\nSwitchName=s2 Nodes=n[4-6]\nSwitchName=s3 Nodes=n[7-9]\n"
            "SwitchName=s4 Nodes=n[10-12]\nSwitchName=t1 Switches=s[1-2]\nSwitchName=t2 Switches=s[3-4]\n"
            "SwitchName=root Switches=t[1-2]\n"
        },
        jobs=[
            (0, 500, "-n 4 -t 9"),
            (30, 640, "-N 3 -n 12 -t 12"),
            (60, 300, "-N 2 -n 3 -t 9"),
            (90, 600, "-n 1 -t 11"),
            (120, 200, "-n 10 -t 9"),
            (150, 300, "-N 4 -n 4 -t 9"),
            (180, 200, "-n 2 -t 9"),
            (210, 200, "-N 5 -n 10 -t 9"),
            (240, 200, "-n 6 -t 9"),
            (270, 100, "-n 1 -t 3"),
            (300, 100, "-N 2 -n 8 -t 3"),
            (330, 100, "-n 3 -t 3"),
            (900, 300, "-N 1 -n 4 -t 9"),
            (930, 300, "-N 6 -n 24 -t 9"),
            (960, 300, "-N 4 -n 9 -t 9"),
            (990, 200, "-N 3 -n 3 -t 5"),
            (1020, 200, "-n 14 -t 5"),
        ],
    ),
    # Tasks of several CPUs on cores of four and two threads, and CPUs of a partition on each node.
    "tasks": Measurement(
        nodes={
            "n[1-2]": "Sockets=2 CoresPerSocket=4 ThreadsPerCore=4 RealMemory=32000",
            "n[3-4]": "Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=32000 Weight=2",
        },
        conf="PriorityType=priority/basic\nSelectTypeParameters=CR_Core\n"
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        "PartitionName=few Nodes=ALL MaxCPUsPerNode=12 MaxTime=INFINITE State=UP",
        jobs=[
            (0, 60, "-n 3 -c 3 -N 2 -t 5"),
            (120, 60, "-n 9 -c 3 -t 5"),
            (240, 60, "-n 5 -c 3 -N 2 -t 5"),
            (360, 60, "-n 21 -c 3 -t 5"),
            (480, 60, "-n 7 -c 2 -N 3 -t 5"),
            (600, 60, "-n 5 -c 5 -N 2 -t 5"),
            (720, 60, "-n 7 -c 1 -N 3 -t 5"),
            (840, 60, "-n 4 -c 6 -N 4 -t 5"),
            (960, 400, "-n 2 -c 4 -p few -t 9"),
            (1000, 400, "-n 2 -c 4 -p few -t 9"),
            (1040, 400, "-n 10 -p few -t 9"),
            (1080, 200, "-n 20 -c 1 -p few -t 9"),
            (1120, 200, "-n 3 -c 3 -t 9"),
            (1160, 200, "--exclusive -n 1 -p few -t 9"),
            (1200, 200, "-n 40 -t 9"),
        ],
    ),
    # Jobs of partitions of a higher tier on CPUs of those of lower ones, which are suspended and keep their memory.
    "suspend": Measurement(
        nodes={"n[1-3]": "CPUs=4 RealMemory=32000"},
        conf="PriorityType=priority/basic\nSelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=1000\n"
        "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\nPreemptExemptTime=00:20:00\n"
        "PartitionName=lo Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:1 GraceTime=60\n"
        "PartitionName=mid Nodes=ALL PriorityTier=5 MaxTime=INFINITE State=UP OverSubscribe=FORCE:1\n"
        "PartitionName=hi Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP OverSubscribe=FORCE:1",
        naps=40,
        jobs=[
            (0, 600, "-p lo -n 4 -t 30"),
            (40, 600, "-p lo -n 2 -t 30"),
            (80, 600, "-p lo -n 1 -t 30"),
            (120, 600, "-p lo -n 4 -N 1 -t 30"),
            (160, 240, "-p hi -n 1 -t 10"),  # the free CPU
            (200, 120, "-p hi -n 3 -t 10"),
            (240, 300, "-p mid -n 6 -t 10"),
            (280, 100, "-p hi -n 4 -t 10"),  # suspends one that suspends others
            (320, 60, "-p lo -n 2 -t 5"),
            (440, 100, "-p hi --mem=30000 -n 1 -t 10"),  # suspended jobs keep their memory
            (480, 100, "-p mid -n 3 -t 10"),
            (1800, 400, "-p lo -n 1 -t 10"),
            (1840, 60, "-p hi --exclusive -N 3 -t 5"),  # whole nodes are those without any job
            (1880, 60, "-p mid -n 2 -t 5"),
            (1920, 60, "-p lo -n 11 -t 5"),
            (1960, 60, "-p hi -n 10 -t 5"),
        ],
    ),
    # Whole nodes of several sizes and weights.
    "linear": Measurement(
        nodes={
            "n[1-3]": "CPUs=4 RealMemory=8000",
            "n[4-5]": "CPUs=8 RealMemory=16000",
            "n[6-8]": "CPUs=4 RealMemory=8000 Weight=2",
            "n[9-10]": "CPUs=4 RealMemory=8000",
        },
        conf="PriorityType=priority/basic\nSelectType=select/linear\nSelectTypeParameters=CR_Memory\n"
        "DefMemPerNode=1000",
        jobs=[
            (0, 500, "-n 1 -t 10"),
            (40, 400, "-n 6 -t 10"),
            (80, 400, "-n 2 -N 2 -t 10"),
            (120, 300, "-n 9 -t 10"),
            (160, 300, "-n 1 -t 10"),
            (200, 300, "-n 1 -t 10"),
            (240, 200, "-n 10 -t 8"),
            (280, 200, "-n 1 -t 4"),
            (320, 100, "-n 3 -N 3 -t 8"),
            (360, 100, "-n 1 --mem=12000 -t 8"),
            (400, 100, "-n 20 -t 5"),
            (440, 60, "-n 1 -t 2"),
            (480, 60, "-n 5 -t 2"),
            (1400, 300, "-n 24 -t 8"),
            (1440, 100, "-n 4 -N 1 -t 8"),
            (1480, 100, "-n 8 -t 8"),
            (1520, 100, "-n 40 -t 8"),
            (1560, 100, "-n 1 -t 3"),
        ],
    ),
    # Nodes of one user only, for the jobs of a partition.
    "users": Measurement(
        nodes={"n[1-4]": "CPUs=4 RealMemory=8000"},
        conf="PriorityType=priority/basic\n"
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        "PartitionName=own Nodes=ALL ExclusiveUser=YES MaxTime=INFINITE State=UP",
        jobs=[
            (0, 400, "--uid=games -n 1 -t 10"),
            (40, 400, "--uid=daemon -n 1 -t 10 -p own"),
            (80, 400, "--uid=games -n 2 -t 10"),
            (120, 300, "--uid=daemon -n 1 -t 10"),
            (160, 300, "--uid=bin -n 2 -t 10 -p own"),
            (200, 300, "--uid=bin -n 1 -t 10"),
            (240, 200, "--uid=games -n 6 -t 10 -p own"),
            (280, 100, "--uid=daemon -n 1 -t 10"),
            (320, 100, "--uid=bin -n 5 -t 10"),
            (360, 100, "--uid=daemon -n 4 -t 10 -p own"),
            (400, 60, "--uid=games -n 1 -t 3"),
        ],
    ),
    # Jobs of a partition that may be beside others on a node of its own kind only, none of which asks for it.
    "shared": Measurement(
        nodes={"n[1-3]": "CPUs=4 RealMemory=8000"},
        conf="PriorityType=priority/basic\n"
        "PartitionName=no Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        "PartitionName=yes Nodes=ALL OverSubscribe=YES:2 MaxTime=INFINITE State=UP\n"
        "PartitionName=other Nodes=ALL OverSubscribe=YES:3 MaxTime=INFINITE State=UP",
        jobs=[
            (0, 500, "-p yes -n 1 -t 10"),
            (50, 600, "-p no -n 1 -t 12"),  # no node with a job of a partition that shares
            (100, 400, "-p yes -n 1 -t 10"),
            (150, 500, "-p other -n 1 -t 10"),  # a node with one of a partition that does not
            (200, 400, "-p no -n 1 -t 10"),
            (250, 200, "-p yes -n 3 -t 10"),
            (300, 200, "-p no -n 2 -t 10"),  # waits for a node
            (350, 100, "-p other -n 2 -t 3"),
            (400, 100, "-p yes -n 2 -t 3"),
            (700, 200, "-p other -n 5 -t 5"),
            (750, 200, "-p yes -n 4 -t 5"),
            (800, 100, "-p no -n 8 -t 5"),
            (850, 60, "-p yes -n 1 -t 2"),
        ],
    ),
    # More tasks of an array, and more jobs that a limit holds back, than are tested; flags of QOS.
    "tested": Measurement(
        nodes={"n[1-2]": "CPUs=8 RealMemory=32000"},
        conf="PriorityType=priority/basic\nSelectTypeParameters=CR_Core\n"
        "AccountingStorageEnforce=associations,limits,qos\n"
        "SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,default_queue_depth=4,"
        "bf_interval=1,bf_resolution=1,bf_max_job_test=12,bf_node_space_size=1000,bf_max_job_array_resv=3,bf_continue\n"
        "PartitionName=main Nodes=ALL Default=YES MaxTime=10 MaxNodes=1 State=UP\n"
        "PartitionName=all Nodes=ALL MaxTime=10 State=UP",
        accounts=[
            *_ACCOUNTS,
            "add qos one MaxJobsPerUser=1",
            "add qos unreserved flags=NoReserve",
            "add qos long flags=PartitionTimeLimit,PartitionMaxNodes",
            "modify user root set qos=normal,one,unreserved,long",
        ],
        jobs=[
            (0, 240, "-n 8 -t 5"),
            (30, 60, "-p all -q unreserved -n 16 -t 5"),  # gets no reservation
            (60, 400, "-n 8 -t 10"),
            (90, 60, "-p all -n 16 -t 5"),  # gets one, before which the next ones end, or do not
            (120, 60, "-n 4 -t 2"),
            (150, 60, "-n 4 -t 9"),
            (700, 60, "-q long -N 2 -n 16 -t 20"),
            (900, 240, "-n 8 -t 5"),
            (930, 40, "-p all -n 16 -t 2 --array=1-16"),
            (960, 60, "-n 2 -t 2"),
            (990, 60, "-n 2 -t 3"),
            (1800, 400, "-n 4 -t 8"),
            (1830, 400, "-q one -n 4 -t 8"),
            *((1860, 20, "-q one -n 1 -t 1") for _ in range(14)),
            (1890, 200, "-n 8 -t 5"),
            (1920, 60, "-p all -n 16 -t 2"),
            (1950, 60, "-n 2 -t 3"),
        ],
    ),
    # Tasks on sockets.
    "sockets": Measurement(
        nodes={
            "n[1-2]": "Sockets=2 CoresPerSocket=4 RealMemory=32000",
            "n3": "Sockets=4 CoresPerSocket=2 ThreadsPerCore=2 RealMemory=32000",
        },
        conf="PriorityType=priority/basic\nSelectTypeParameters=CR_Socket",
        jobs=[
            (0, 60, "-n 1 -t 5"),
            (120, 60, "-n 2 -t 5"),
            (240, 60, "-n 3 -N 2 -t 5"),
            (360, 60, "-n 1 -c 3 -t 5"),
            (480, 60, "-n 2 -c 2 -t 5"),
            (600, 60, "-n 3 -c 3 -t 5"),
            (720, 60, "-n 9 -t 5"),
            (840, 60, "-n 5 -N 3 -t 5"),
            (960, 400, "-n 1 -t 9"),
            (1000, 400, "-n 2 -t 9"),
            (1040, 400, "-n 3 -t 9"),
            (1080, 300, "-n 4 -c 2 -t 9"),
            (1120, 200, "-n 6 -t 9"),
            (1160, 200, "-n 1 -c 4 -t 9"),
        ],
    ),
    # Tasks and CPUs on each node.
    "tasks_on_nodes": Measurement(
        nodes={
            "n[1-2]": "Sockets=2 CoresPerSocket=4 RealMemory=32000",
            "n3": "Sockets=2 CoresPerSocket=8 RealMemory=32000",
            "n[4-5]": "Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000 Weight=2",
        },
        conf="PriorityType=priority/basic\nSelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=100",
        jobs=[
            (0, 60, "-n 8 --ntasks-per-node=2 -t 5"),
            (120, 60, "-n 5 --ntasks-per-node=4 -t 5"),
            (240, 60, "-N 2 --ntasks-per-node=3 -c 2 -t 5"),
            (360, 60, "-n 6 --ntasks-per-node=2 -c 3 -t 5"),
            (480, 60, "-N 2-4 --ntasks-per-node=4 -t 5"),
            (600, 60, "-n 12 --ntasks-per-node=12 -t 5"),
            (720, 60, "-n 3 --mincpus=6 -N 2 -t 5"),
            (840, 60, "-n 9 --mincpus=4 -t 5"),
            (960, 60, "-n 4 --ntasks-per-node=2 --mem-per-cpu=7000 -t 5"),
            (1080, 60, "--exclusive -n 4 --ntasks-per-node=2 -t 5"),
            (1200, 60, "-n 1 --ntasks-per-node=4 -t 5"),
            (1320, 400, "-n 5 -t 9"),
            (1350, 400, "-n 3 -w n2 -t 9"),
            (1380, 300, "-n 8 --ntasks-per-node=4 -t 9"),
            (1410, 300, "-n 6 --ntasks-per-node=2 -t 9"),
            (1440, 300, "-n 9 --ntasks-per-node=3 -t 5"),
            (1470, 100, "-n 2 --ntasks-per-node=1 -t 2"),
            (1500, 100, "-n 10 --ntasks-per-node=5 -c 1 -t 5"),
            (1530, 100, "-n 7 --ntasks-per-node=3 -t 5"),
        ],
    ),
    # Of a range of numbers of nodes the greatest that there are.
    "ranges": Measurement(
        nodes={
            "n[1-3]": "CPUs=4 RealMemory=8000",
            "n[4-5]": "CPUs=8 RealMemory=16000 Weight=2",
            "n[6-8]": "CPUs=4 RealMemory=8000 Weight=3",
        },
        conf="PriorityType=priority/basic\n"
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        "PartitionName=few Nodes=ALL MaxNodes=4 MaxTime=INFINITE State=UP\n"
        "PartitionName=lln Nodes=ALL LLN=YES MaxTime=INFINITE State=UP",
        jobs=[
            (0, 60, "-n 4 -N 1-3 -t 5"),
            (120, 60, "-n 4 -N 2-6 -t 5"),
            (240, 60, "-n 10 -N 1-2 -t 5"),
            (360, 60, "-n 9 -N 1-5 -t 5"),
            (480, 60, "-n 6 -N 2-4 -p few -t 5"),
            (600, 60, "-n 6 -N 1-3 -p lln -t 5"),
            (720, 60, "-n 7 -N 1-3 --exclusive -t 5"),
            (840, 60, "-n 6 -N 1-3 --use-min-nodes -t 5"),
            (960, 60, "-n 6 -N 2-4 --ntasks-per-node=2 -t 5"),
            (1080, 60, "-N 2-5 -t 5"),
            (1200, 600, "-n 4 -N 1-2 -t 12"),
            (1230, 600, "-n 3 -N 1-4 -t 12"),
            (1260, 300, "-n 10 -N 1-4 -t 12"),
            (1290, 300, "-n 16 -N 3-8 -t 12"),
            (1320, 100, "-n 4 -N 2-8 -t 12"),
            (1350, 100, "-n 6 -N 1-3 -t 3"),
            (1380, 100, "-n 2 -N 1-8 -t 3"),
        ],
    ),
    # Tasks on each whole node.
    "linear_tasks": Measurement(
        nodes={
            "n[1-3]": "CPUs=4 RealMemory=8000",
            "n[4-5]": "CPUs=8 RealMemory=16000",
            "n[6-7]": "CPUs=4 RealMemory=8000",
        },
        conf="PriorityType=priority/basic\nSelectType=select/linear\nSelectTypeParameters=CR_Memory\n"
        "DefMemPerNode=1000",
        jobs=[
            (0, 60, "-n 4 --ntasks-per-node=2 -t 5"),
            (120, 60, "-n 6 --ntasks-per-node=4 -t 5"),
            (240, 60, "-n 12 --ntasks-per-node=6 -t 5"),
            (360, 60, "-N 2 --ntasks-per-node=2 -c 2 -t 5"),
            (480, 60, "-n 4 --ntasks-per-node=2 -c 3 -t 5"),
            (600, 60, "-n 4 --mincpus=6 -t 5"),
            (720, 60, "-n 5 --ntasks-per-node=1 -t 5"),
            (840, 60, "-n 12 --ntasks-per-node=4 -t 5"),
            (960, 60, "-n 1 --ntasks-per-node=6 -t 5"),
            (1080, 60, "-n 12 --mincpus=5 -t 5"),
            (1200, 300, "-n 6 --ntasks-per-node=3 -t 9"),
            (1230, 300, "-n 9 --ntasks-per-node=3 -t 9"),
            (1260, 100, "-n 4 --ntasks-per-node=2 -t 9"),
            (1290, 100, "-n 3 --ntasks-per-node=1 -t 9"),
            (1800, 60, "-n 4 -N 1-3 -t 5"),
            (1920, 60, "-n 10 -N 2-6 -t 5"),
        ],
    ),
    # CPUs of cores of two threads, with a core for each task, and with CPUs on each node.
    "threads_on_nodes": Measurement(
        nodes={
            "n[1-2]": "Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 RealMemory=32000",
            "n3": "Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=32000",
        },
        conf="PriorityType=priority/basic\nSelectTypeParameters=CR_CPU_Memory\nDefMemPerCPU=100",
        jobs=[
            (0, 60, "-n 6 --ntasks-per-node=3 -t 5"),
            (120, 60, "-n 4 --ntasks-per-node=2 -c 3 -t 5"),
            (240, 60, "-n 7 --ntasks-per-node=5 -t 5"),
            (360, 60, "-n 4 --mincpus=3 -N 2 -t 5"),
            (480, 60, "-n 2 --mincpus=5 -t 5"),
            (600, 60, "-N 3 -n 7 --mincpus=3 -t 5"),
            (720, 60, "-n 6 --ntasks-per-node=2 --hint=nomultithread -t 5"),
            (840, 60, "-n 4 --hint=nomultithread --mem-per-cpu=3000 -t 5"),
            (960, 60, "-n 8 --hint=nomultithread -N 2 -t 5"),
            (1080, 60, "-n 3 --threads-per-core=1 -c 2 -t 5"),
            (1200, 400, "-n 3 --hint=nomultithread -t 9"),
            (1230, 400, "-n 4 -t 9"),
            (1260, 400, "-n 3 --hint=nomultithread --mem-per-cpu=9000 -t 9"),
            (1290, 300, "-n 3 -t 9"),
            (1320, 100, "-n 5 --hint=nomultithread -t 5"),
            (1350, 100, "-n 2 -t 3"),
        ],
    ),
    # Nodes of one user only, for jobs that ask for it.
    "users_alone": Measurement(
        nodes={"n[1-4]": "CPUs=4 RealMemory=8000"},
        conf="PriorityType=priority/basic\n"
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        "PartitionName=own Nodes=ALL ExclusiveUser=YES MaxTime=INFINITE State=UP",
        jobs=[
            (0, 400, "--uid=games -n 1 -t 10"),
            (40, 400, "--uid=daemon --exclusive=user -n 1 -t 10"),
            (80, 400, "--uid=games -n 1 -t 10"),
            (120, 300, "--uid=daemon -n 1 -t 10"),
            (160, 300, "--uid=bin --exclusive=user -n 2 -t 10"),
            (200, 300, "--uid=bin -n 1 -t 10"),
            (240, 200, "--uid=games --exclusive=user -n 6 -t 10"),
            (280, 100, "--uid=daemon -n 1 -t 10"),
            (320, 100, "--uid=bin -n 5 -t 10"),
            (360, 100, "--uid=daemon -n 4 -t 10 -p own"),
            (400, 60, "--uid=games -n 1 -t 3"),
            (440, 60, "--uid=bin --exclusive=user -n 1 -t 3"),
        ],
    ),
    # Times from which on jobs may start, with passes as slurmctld makes them by default.
    "begins": Measurement(
        nodes={"n[1-3]": "CPUs=4 RealMemory=8000"},
        conf="PriorityType=priority/basic\nSchedulerParameters=batch_sched_delay=3",
        jobs=[
            (0, 30, "-n 1 -t 5"),
            (97, 40, "-n 1 -t 5"),
            (110, 40, "-n 1 -t 5"),
            (205, 300, "-n 12 -t 6"),
            (230, 30, "-n 4 -t 2"),
            (531, 30, "-n 1 -t 2"),
            (590, 20, "-n 1 -t 2"),
            (640, 300, "-n 1 -t 7"),
            (705, 20, "-n 1 -t 2"),
            (800, 20, "-n 1 -t 2"),
            (1000, 20, "-n 1 -t 2"),
            (1111, 20, "-n 1 -t 2"),
            (1222, 20, "-n 1 -t 2"),
            (1333, 20, "-n 1 -t 2"),
        ],
    ),
    # GPUs beside tasks and CPUs on each node.
    "gpus_on_nodes": Measurement(
        nodes={
            "n[1-2]": "Sockets=2 CoresPerSocket=8 RealMemory=64000 Gres=gpu:ta:4",
            "n[3-4]": "Sockets=1 CoresPerSocket=8 RealMemory=64000 Gres=gpu:ta:2",
        },
        conf="GresTypes=gpu\nAccountingStorageTRES=gres/gpu\nPriorityType=priority/basic",
        files={
            "gres.conf": "NodeName=n[1-2] Name=gpu Type=ta File=FOLDER/run/gpu[0-3]\n"
            "NodeName=n[3-4] Name=gpu Type=ta File=FOLDER/run/gpu[0-1]\n"
        },
        jobs=[
            (0, 60, "-N 2 --ntasks-per-node=4 -c 2 -t 5 --gres=gpu:4"),
            (120, 60, "-n 6 --ntasks-per-node=2 -t 5 --gpus-per-node=2"),
            (240, 60, "-n 4 --ntasks-per-node=2 -t 5 --gpus-per-task=1"),
            (360, 60, "-n 2 -N 1-2 -t 5 --gres=gpu:1"),
            (480, 60, "-n 3 --ntasks-per-node=3 -c 2 -t 5 --gres=gpu:2"),
            (600, 60, "-n 1 --mincpus=6 -t 5 --gres=gpu:1"),
            (720, 60, "-N 2 --ntasks-per-node=2 -c 3 -t 5 --gpus=4"),
            (840, 60, "-n 4 -N 2-4 -t 5 --gres=gpu:1"),
            (960, 300, "-n 2 --ntasks-per-node=2 -c 2 -t 9 --gres=gpu:2"),
            (990, 300, "-n 4 --ntasks-per-node=4 -t 9 --gres=gpu:2"),
            (1020, 300, "-n 6 --ntasks-per-node=3 -t 9 --gres=gpu:2"),
            (1050, 100, "-n 2 --ntasks-per-node=1 -c 4 -t 5 --gres=gpu:1"),
        ],
    ),
}


def main(name: str) -> None:
    """Measures one of them."""
    dump = FOLDER / name
    shutil.rmtree(dump, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        measure(MEASUREMENTS[name], Path(folder) / "cluster", dump)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        main(each)
