"""Descriptions of configuration keys, in Markdown with links relative to docs/.

``hdsim show keys`` prints them, and the tables of docs/configuration.md and docs/training.md are generated from them.
"""

import re

#: Groups and keys of ``hdsim run`` without those of the scheduler.
RUN = {
    "site": ("a [site that runs Slurm](slurm.md): a folder of `hdsim site import`; each of its rules is a key"),
    "site.path": "the folder",
    "seed": "seed of everything random",
    "platform": "a bundled platform (`hdsim show platforms`)",
    "platform.path": "name of a bundled platform, or a [platform file](platform.md)",
    "platform.kind": (
        "`cores`, or `quantities`: nodes have amounts of CPU, memory, pods and GPUs "
        "([kubernetes.md](kubernetes.md)); null: as in the file"
    ),
    "platform.types": "folder of the type libraries of a file without types",
    "workload": (
        "`default`, `lublin`, `family`, `kind`, `like`, `deployments`, `cluster`, or a bundled trace "
        "(`hdsim show workloads`)"
    ),
    "workload.path": (
        "name of a bundled trace, or an SWF, Batsim or HDeepRM JSON file, plain or gzipped ([workload.md](workload.md))"
    ),
    "workload.seed": ("seed of what is drawn of the jobs; null: `seed`, in trainings 1, for equal tests"),
    "workload.family": "with `workload=family`: the [family](workload.md#families) of the trace",
    "workload.kind": "with `workload=kind`: a file or a bundled [kind](workload.md#kinds) of machine and load",
    "workload.generate": "instead of a path: settings of a [generator](workload.md#generation)",
    "workload.jobs": "number of jobs; null: all",
    "workload.start": "first job; its submission is time 0",
    "workload.arrival_factor": "multiplies inter-arrival times: below 1 the load is higher",
    "workload.memory_bandwidth": (
        "`draw` (SWF: one of 4, 8, ..., 24 GB/s per core, by seed), `trace`, `none`, GB/s per core, or a "
        "list of which each job draws one"
    ),
    "workload.memory": "`trace`, `none`, or MB per core",
    "workload.runtime": "`trace`; `requested`: estimates are exact; `hdeeprm`: a random share of the estimate",
    "workload.walltime": "kill limit: `trace` (SWF has none), `requested`, `none`",
    "workload.cluster": (
        "the jobs of the cluster that the backend schedules, by `workload=cluster`: [pods](pods.md), or "
        "[held jobs of Slurm](slurm_backend.md)"
    ),
    "workload.cores_per_pod": (
        "most cores of each of the equal [pods](kubernetes.md#pods) of a job; null: one pod where it fits on the "
        "smallest node"
    ),
    "workload.status": (
        "of SWF and Parquet: `recorded`, `queued`, `completed`, `ignore` ([workload.md](workload.md#swf))"
    ),
    "workload.strict": "true: a job that cannot be replayed is an error instead of being dropped",
    "workload.bsp.supersteps": (
        "supersteps of each job, or `[low, high]`: rigid jobs become BSP jobs ([bsp.md](bsp.md)); null: they stay"
    ),
    "workload.bsp.communication": "share of the run time that goes into messages, or `[low, high]`",
    "workload.bsp.pattern": "communication pattern, a list, or patterns with weights",
    "workload.bsp.imbalance": "coefficient of variation of the work of tasks, or `[low, high]`",
    "workload.bsp.latency": "seconds of a barrier",
    "workload.bsp.bandwidth": "GB/s that turn seconds of communication into bytes; null: the slowest node link's",
    "workload.frequency_bound": (
        "share of a run time that is bound by the [frequency](models.md#frequencies), or `[low, high]`, for jobs "
        "without a column `frequency_bound`; null: 1"
    ),
    "workload.slack.share": "share of the work whose jobs may be put off ([power.md](power.md)); null: as in the trace",
    "workload.slack.time": "from submission to latest start: seconds, a duration such as `24h`, or `[low, high]`",
    "agent": "a scheduler, see below",
    "backend": (
        "[what runs the jobs](backends.md): `sim`, [`batsim`](batsim.md), [`kwok`](pods.md), "
        "[`slurm`](slurm_backend.md)"
    ),
    "backend.path": "a backend of your own: a file",
    "backend._target_": "a backend of your own: `package.Class`",
    "backend.kill_at_walltime": "kill jobs at their kill limit",
    "backend.batch_events": (
        "one scheduling pass for all events of an instant; false: one for every event, arrivals first"
    ),
    "backend.executable": "`batsim`: program to start",
    "backend.arguments": "`batsim`: list of further arguments",
    "backend.socket": (
        "`batsim`: where to wait for a Batsim that is started elsewhere, such as `tcp://*:28000`; `slurm`: the Unix "
        "socket of a slurmrestd, null for Slurm's commands"
    ),
    "backend.timeout": "`batsim`, `kwok`, `slurm`: seconds that the other side may stay silent",
    "backend.conf": "`slurm`: slurm.conf of the cluster",
    "backend.name": "`slurm`: name of the run in the comments of the jobs that are submitted",
    "backend.partition": "`slurm`: partition of the jobs; null: the default one, with `workload=cluster` all",
    "backend.time_scale": "`kwok`, `slurm`: seconds of the backend's clock in a second",
    "backend.stop_when_idle": "`kwok`, `slurm`: seconds without a job to place after which a run ends; null: never",
    "backend.start_timeout": "`slurm`: seconds until a start that has not come is taken back",
    "backend.energy": "`batsim`: set P-states and let Batsim count energy; null: where contention needs P-states",
    "metrics": (
        "further [metrics](outputs.md#metrics-of-your-own): a list of Python files, "
        "`package.module:function`, registered names"
    ),
    "warmup": (
        "what [means](outputs.md#warm-up-and-cool-down) leave out after the first submission: seconds, "
        "`1d`, or `10%` of the jobs"
    ),
    "cooldown": "the same before the last submission",
    "check": "true: every invariant is checked at every instant, by the engine instead of compiled code (slow)",
    "contention": "`none`, `threshold`, `fair_share`, `smoothstep` ([models.md](models.md#memory-contention))",
    "contention.path": "a model of your own: a file",
    "contention._target_": "a model of your own: `package.Class`",
    "network": "`none`, `fluid`: how messages share the links ([bsp.md](bsp.md#network))",
    "network.sharing": "`fluid`: `equal`, `latency` or `rounds`",
    "network.path": "a model of your own: a file",
    "network._target_": "a model of your own: `package.Class`",
    "failures": "`none`, `exponential`, `weibull`, `trace`: when nodes are down ([models.md](models.md#failures))",
    "failures.path": "a model of your own: a file",
    "failures._target_": "a model of your own: `package.Class`",
    "facility": "`none`, `synthetic`: what surrounds the machine ([power.md](power.md))",
    "facility.begin": "date of the first submission, such as `2026-03-02T00:00:00+01:00`; null: that of the trace",
    "facility.timezone": "such as `Europe/Berlin`; null: that of the trace",
    "facility.pue": "power of the building over that of the rectifiers: a number, or `[[load, pue], ...]`",
    "facility.temperature": "outside, in degrees C: a number or a series",
    "facility.pue_by_temperature": "`[[degrees, pue], ...]`, with `facility.temperature`, instead of `facility.pue`",
    "facility.efficiency": "of the rectifiers: a number, or `[[load, efficiency], ...]`",
    "facility.capacity": "power of the machine at load 1, W; null: that of all its cores",
    "facility.price": "EUR/kWh: a number, a file, or settings of a file or of a generator",
    "facility.carbon": "gCO2/kWh: the same",
    "facility.seed": "seed of generated series and of errors of forecasts; null: `seed`",
    "power": (
        "`none`, `states`, `suspend`, `predictive`, `cap`, `frequency`: sleep, caps and "
        "frequencies ([models.md](models.md#nodes-that-sleep))"
    ),
    "power.path": "power management of your own: a file",
    "power._target_": "power management of your own: `package.Class`",
    "experiment": "settings that belong together, see below",
    "hydra.run.dir": "directory of a run",
    "hydra.sweep.dir": "directory of a sweep",
}
#: Keys of schedulers with classic policies.
AGENT = {
    "agent.job_policy": (
        "order of the queue: `first`, `shortest`, `saf`, `f1`, `wfp3`, `multifactor`, ..., a file, or `void`, "
        "which starts nothing"
    ),
    "agent.core_policy": "which idle cores a job gets: `high_gflops`, `low_power`, `pack`, `spread`, ..., or a file",
    "agent.backfill": (
        "`none`, `easy`, `conservative`, `greedy`, `rlscheduler`, `hybrid`, a number of reservations, or a file"
    ),
    "agent.backfill_order": "order in which candidates are tried; null: the order of the queue",
    "agent.commit_head": "true: the first job of the queue stays first until it starts",
    "agent.estimates": "run times that orders and backfilling take: `requested`, `actual`, `last_two`",
    "agent.multifactor": "weights and times of the order `multifactor`, by default those of Slurm's example",
    "agent.site": "`slurm`: the site, by default that of `site`",
    "agent.path": "a scheduler of your own: a file ([plugins.md](plugins.md#a-policy-of-your-own))",
    "agent._target_": "the same as `package.Class`",
}
#: Further keys of ``hdsim train``.
TRAIN = {
    "train.steps": "length of the training",
    "train.traces": "list of traces to learn from; null: the jobs of `workload` outside the held-out windows",
    "train.window_jobs": "jobs of a held-out window, or the period whose jobs it has, such as `7d`",
    "train.validation": (
        "how many validation windows, or a list of their first jobs; 0: no evaluation during training; "
        "null: 4, or fewer of a short trace"
    ),
    "train.test": "how many test windows, or a list of their first jobs; null: 10, or fewer of a short trace",
    "train.metric": "metric that agents are judged by",
    "train.baselines": (
        "classic policies to compare with, such as `[fcfs,sjf]`; null: those that could do what the agent may"
    ),
    "train.scale_rewards": "divide rewards by their root mean square",
    "train.evolution": (
        "settings of the evolution of the order `learned` ([agents.md](agents.md#the-order-learned)), as "
        "in `experiment=learned`; null: the agent learns"
    ),
    "train.rollouts": "`local`: environments are stepped on this machine; `ray`: in actors of a Ray cluster",
    "train.workers": "threads, processes or actors that step them; null: one per processor",
    "train.ray_address": (
        "`HOST:PORT` of the cluster, `auto`: the one that this machine belongs to, null: start one here"
    ),
    "train.ray_timeout": "seconds after which a silent worker is an error",
    "train.log_every": "steps between two rows of progress.csv",
    "train.evaluate_every": "steps between two evaluations",
    "train.checkpoint_every": "steps between two checkpoints",
    "train.patience": "evaluations in a row without a better score that end the training; null or 0: none do",
    "train.tensorboard": "write TensorBoard events",
    "resume": "true: resume an interrupted training",
}
DESCRIPTIONS = RUN | AGENT | TRAIN


def description(key: str) -> str:
    """Returns the description of a key as text without links; empty for a key that has none."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", DESCRIPTIONS.get(key, ""))
