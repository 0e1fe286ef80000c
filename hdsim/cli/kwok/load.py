"""``hdsim kwok load``: random deployments, or the jobs of a trace as pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hdsim.cli.kwok.options import kubeconfig, namespace, real
from hdsim.cli.parameters import Parsed, list_of

if TYPE_CHECKING:
    from hdsim.kubernetes.connection import Connection
    from hdsim.kubernetes.load import Counts, LoadGenerator
    from hdsim.kubernetes.objects import NodeView

#: Options that need --trace, and those that exclude it.
_OF_TRACES = ("platform", "time_scale", "jobs", "start", "cores_per_pod")
_OF_DEPLOYMENTS = (
    "cpu_load",
    "memory_load",
    "pod_load",
    "epochs",
    "replicas",
    "cpu",
    "memory",
    "gpus",
    "rate",
    "duration",
    "pods",
    "name",
    "wait",
)


def _quantity(text: str) -> float:
    from hdsim.kubernetes.objects import quantity

    return quantity(text)


def _range(text: str) -> tuple[int, int]:
    """Two integers with a dash between them, or one."""
    low, _, high = text.partition("-")
    if not (low.isdecimal() and (high or low).isdecimal() and 0 < int(low) <= int(high or low)):
        raise ValueError(text)
    return int(low), int(high or low)


_QUANTITIES = list_of("quantities", _quantity, "quantities such as 500m or 2Gi, separated by commas")
_RANGE = Parsed("range", _range, "a number of pods or a range such as 5-15")
_share = click.FloatRange(0, 1, min_open=True)
_above_zero = click.FloatRange(0, min_open=True)


@click.command()
@kubeconfig
@namespace
@real
@click.option("--scheduler-name", default="hdsim", show_default=True, help="Scheduler that is to bind the pods.")
@click.option("--cpu-load", type=_share, default=0.2, show_default=True, help="Target share of the nodes' CPU.")
@click.option("--memory-load", type=_share, default=0.2, show_default=True, help="Target share of their memory.")
@click.option("--pod-load", type=_share, default=0.2, show_default=True, help="Target share of their pods.")
@click.option("--epochs", type=click.IntRange(1), default=1, show_default=True, help="Fill the cluster so many times.")
@click.option("--replicas", type=_RANGE, default="5-15", show_default=True, help="Pods of a deployment.")
@click.option("--cpu", type=_QUANTITIES, default="1", show_default=True, help="CPU of a pod: one of these.")
@click.option("--memory", type=_QUANTITIES, default="2Gi", show_default=True, help="Memory of a pod: one of these.")
@click.option("--gpus", type=_QUANTITIES, default="0", show_default=True, help="GPUs of a pod: one of these.")
@click.option("--duration", type=_above_zero, help="Run time of a pod in s.  [default: until the epoch ends]")
@click.option("--rate", type=_above_zero, default=float("inf"), help="Pods per second.  [default: as fast as possible]")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of all draws.")
@click.option("--pods", is_flag=True, help="Create bare pods rather than Deployments: no controller manager is needed.")
@click.option("--name", default="load", show_default=True, help="Begin of the names of deployments.")
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds without a further pod with a node after which an epoch is over.",
)
@click.option("--trace", metavar="FILE", help="Create the jobs of a trace instead: a file or a bundled name.")
@click.option("--platform", metavar="FILE", help="Platform of the trace.  [default: the nodes of the cluster]")
@click.option(
    "--time-scale",
    type=_above_zero,
    default=1.0,
    show_default=True,
    help="Seconds of the trace in a second of the wall clock.",
)
@click.option("--jobs", type=click.IntRange(1), help="Number of jobs of the trace.  [default: all]")
@click.option("--start", type=click.IntRange(0), default=0, show_default=True, help="First job of the trace.")
@click.option("--cores-per-pod", type=click.IntRange(1), help="Most cores of a pod.  [default: those of the job]")
@click.option("--in-flight", type=click.IntRange(1), default=48, show_default=True, help="Creations at the same time.")
@click.pass_context
def load(
    ctx: click.Context, kubeconfig: Path | None, namespace: str, trace: str | None, *, real: bool, **options: Any
) -> None:
    """Create random deployments until the nodes have a target load, or the jobs of a trace as pods.

    An epoch begins with an empty cluster and ends with the deployment that reaches the first of the three targets.
    Between two epochs everything that hdsim has created is deleted; the last one is left (hdsim kwok clean deletes
    it). The same seed gives the same deployments.

    With --trace each job becomes a pod, or a gang of pods, created at its submission time and run for its run time.
    """
    wrong = _OF_TRACES if trace is None else _OF_DEPLOYMENTS
    for key in wrong:
        if ctx.get_parameter_source(key) is ParameterSource.COMMANDLINE:
            needs = "with" if trace is None else "without"
            raise click.UsageError(f"--{key.replace('_', '-')}: expected {needs} --trace")
    from hdsim.kubernetes.connection import Connection
    from hdsim.kubernetes.load import LoadGenerator
    from hdsim.kubernetes.nodes import require_fake

    with Connection(kubeconfig, where="--kubeconfig") as connection:
        connection.require_namespace(namespace, "--namespace")
        if not real:
            require_fake(connection, "load")
        generator = LoadGenerator(connection, namespace, options["scheduler_name"], in_flight=options["in_flight"])
        if trace is None:
            _deployments(connection, generator, namespace, options)
        else:
            _trace(connection, generator, namespace, trace, options)
        click.echo(_summary(generator.counts))


def _deployments(connection: Connection, generator: LoadGenerator, namespace: str, options: dict[str, Any]) -> None:
    """Fills the cluster in each epoch, and empties it between two of them."""
    import numpy as np

    from hdsim.kubernetes.load import empty
    from hdsim.workload.generators.deployments import Capacity, deployments

    nodes = [node.allocatable for node in _nodes(connection)]
    capacity = Capacity(*(sum(getattr(amounts, key) for amounts in nodes) for key in ("cpu", "memory", "pods")))
    settings = ("cpu_load", "memory_load", "pod_load", "epochs", "replicas", "cpu", "memory", "gpus", "rate")
    drawn = list(
        deployments(np.random.default_rng(options["seed"]), capacity, **{key: options[key] for key in settings})
    )
    with _progress(sum(made.replicas for made in drawn)) as progress:
        for epoch, group in groupby(drawn, lambda made: made.epoch):
            if epoch:
                empty(connection, namespace)
            made = list(group)
            creations = generator.deployments(made, options["name"], bare=options["pods"], duration=options["duration"])
            generator.create(creations, progress)
            generator.wait_bound(sum(each.replicas for each in made), options["wait"])


def _trace(
    connection: Connection, generator: LoadGenerator, namespace: str, trace: str, options: dict[str, Any]
) -> None:
    """Creates the jobs of a trace."""
    from hdsim.cluster.requests import Requests
    from hdsim.kubernetes.nodes import platform_of
    from hdsim.kubernetes.objects import JobPods
    from hdsim.platform.load import load_platform
    from hdsim.util.resources import resolve
    from hdsim.workload.load import load_workload

    if options["platform"] is None:
        platform = platform_of(_nodes(connection))
    else:
        platform = load_platform(resolve("platforms", options["platform"], where="--platform"), kind="quantities")
    settings = {key: options[key] for key in ("jobs", "start", "seed", "cores_per_pod")}
    jobs = load_workload(resolve("workloads", trace, where="--trace"), platform, memory_bandwidth="none", **settings)
    requests = Requests.of(jobs, platform, has_core_ids=False)
    pods = JobPods(jobs, requests, namespace=namespace, scheduler=options["scheduler_name"])
    with _progress(sum(requests.chunk(job).number for job in range(len(jobs)))) as progress:
        generator.create(generator.jobs(jobs, pods, options["time_scale"]), progress)


def _nodes(connection: Connection) -> list[NodeView]:
    """The nodes that take pods without tolerations."""
    from hdsim.errors import ConfigError
    from hdsim.kubernetes.objects import NodeView

    nodes = [NodeView.of(item) for item in connection.get("/api/v1/nodes")["items"]]
    open_ = [node for node in nodes if not node.unschedulable and not any(taint.forbids for taint in node.taints)]
    if not open_:
        raise ConfigError(
            f"{connection.server}: expected a node that takes pods; of {len(nodes)} nodes none does (hdsim kwok nodes "
            "creates nodes)"
        )
    return open_


@contextmanager
def _progress(pods: int) -> Iterator[Callable[[int], object]]:
    """Shows a progress bar on a terminal."""
    from tqdm import tqdm

    with tqdm(total=pods, unit="pod", desc="creating", disable=None) as bar:
        yield bar.update


def _summary(counts: Counts) -> str:
    """Lines about what was created, and what was not as it should have been."""
    rate = counts.pods / counts.seconds if counts.seconds else 0.0
    lines = [f"created {counts.pods:,} pods ({counts.objects:,} objects) in {counts.seconds:.1f} s: {rate:,.0f} pods/s"]
    lines += [f"repeated {number:,} times: {reason}" for reason, number in counts.retries.most_common()]
    if counts.delay > 1:
        lines.append(f"up to {counts.delay:.1f} s behind the times of submission")
    if counts.unbound:
        lines.append(f"{counts.unbound:,} pods without a node; hdsim kwok top --once tells why")
    return "\n".join(lines)
