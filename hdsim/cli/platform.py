"""``hdsim platform``: show, validate and convert platform files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hdsim.cli.completion import input_file
from hdsim.cli.parameters import OUTPUT
from hdsim.util import resources

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from hdsim.platform.model import Platform

_file = input_file("platforms")
_types = click.option(
    "--types",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of network_types.json, node_types.json, processor_types.json and memory_types.json.",
)


@click.group()
def platform() -> None:
    """Show, validate or convert a platform file.

    FILE is a path, or the name of a platform that comes with hdsim, such as gaia.
    """


@platform.command()
@_file
@_types
def show(file: str, types: Path | None) -> None:
    """Print nodes, processors, speed, memory and power of a platform."""
    from hdsim.platform.load import load_platform

    click.echo("\n".join(_summary(load_platform(resources.resolve("platforms", file), types))))


@platform.command()
@_file
@_types
def validate(file: str, types: Path | None) -> None:
    """List all faults of a platform; exit with 2 if there are any."""
    from hdsim.errors import PlatformError
    from hdsim.platform.load import validate_platform

    path = resources.resolve("platforms", file)
    errors = validate_platform(path, types)
    if errors:
        raise PlatformError.many(errors)
    click.echo(f"{path}: valid")


@platform.command()
@_file
@_types
@click.option(
    "--to",
    type=click.Choice(["simgrid", "json", "kubernetes"]),
    help="Format.  [default: simgrid; json for manifests of nodes]",
)
@click.option("-o", "--output", type=OUTPUT, help="File to write  [default: stdout]")
def convert(file: str, types: Path | None, to: str | None, output: Path | None) -> None:
    """Write a platform for Batsim, as JSON, or as Kubernetes nodes.

    These are SimGrid XML, JSON with all its types in one file, and a list of nodes.

    FILE may also be a file of nodes as `kubectl get nodes -o yaml` prints them (.yaml, .yml).
    """
    from hdsim.platform.load import load_platform

    path = resources.resolve("platforms", file)
    if path.suffix in (".yaml", ".yml"):
        from hdsim.kubernetes.nodes import platform_of, read_manifests

        loaded, to = platform_of(read_manifests(path), path.stem, str(path)), to or "json"
    else:
        loaded = load_platform(path, types)
    if to == "kubernetes":
        import yaml

        from hdsim.kubernetes.nodes import node_manifests

        data = yaml.safe_dump_all(node_manifests(loaded), sort_keys=False).encode()
    elif to != "json":
        from hdsim.platform.simgrid import to_xml

        data = to_xml(loaded)
    else:
        data = json.dumps(loaded.to_dict(), indent=2, ensure_ascii=False).encode() + b"\n"
    if output is None:
        click.echo(data, nl=False)
    elif output.exists() and not output.is_file():
        # A pipe or a device such as /dev/null is written to, never replaced.
        output.write_bytes(data)
    else:
        from hdsim.errors import PlatformError
        from hdsim.util.files import write_bytes

        write_bytes(output, data, PlatformError)


def _summary(platform: Platform) -> Iterator[str]:
    """Yields the lines of `hdsim platform show`."""
    import numpy as np

    from hdsim.platform.power import COMPUTING, IDLE_PACKAGE, PSTATES
    from hdsim.util.text import format_table
    from hdsim.util.units import format_bandwidth, format_latency, format_size, scaled

    cores = platform.cores_per_processor
    cpus, gpus = ~platform.is_gpu, platform.n_gpus
    watts = float(np.dot(platform.power, cores))
    yield f"{platform.name} ({platform.source})"
    yield ", ".join(
        _counted(number, noun)
        for number, noun in (
            (platform.n_clusters, "cluster"),
            (platform.n_nodes, "node"),
            (platform.n_processors, "processor"),
            (platform.n_cpu_cores, "core"),
            *([(gpus, "GPU")] if gpus else []),
        )
    )
    for label, noun, which, mean in (
        ("speed", "core", cpus, platform.reference_gflops),
        *([("", "GPU", platform.is_gpu, None)] if gpus else []),
    ):
        total = scaled(float(np.dot(platform.gflops[which], cores[which])) * 1e9)
        each = _spread(platform.gflops[which], lambda value: f"{value:.4g} GFLOP/s", mean)
        yield f"{label:9}  {total}FLOP/s in all, per {noun} {each}"
    yield f"memory     {format_size(float(platform.memory.sum()))} in all, per node " + _spread(
        platform.memory, format_size
    )
    yield "bandwidth  per processor " + _spread(platform.mem_bw[cpus], _memory_bandwidth)
    everything = "all cores and GPUs" if gpus else "all cores"
    yield (
        f"power      {scaled(watts * PSTATES[COMPUTING].power)}W with {everything} computing, "
        f"{scaled(watts * PSTATES[IDLE_PACKAGE].power)}W with all idle"
    )
    device = ["GPUs"] if gpus else []
    counted = [np.diff(platform.node_first_processor), platform.node_cpu_cores, *([platform.node_gpus] if gpus else [])]
    network = f"{format_bandwidth(platform.global_bandwidth[0])}, {format_latency(platform.global_latency[0])}"
    yield f"network    between clusters {network}"

    yield ""
    yield format_table(
        [
            ("cluster", "nodes", "processors", "cores", *device, "node link", "latency"),
            *(
                (
                    name,
                    *_counts(platform.node_cluster == k, counted),
                    format_bandwidth(platform.local_bandwidth[k]),
                    format_latency(platform.local_latency[k]),
                )
                for k, name in enumerate(platform.cluster_names)
            ),
        ]
    )
    yield ""
    yield format_table(
        [
            ("node type", "nodes", "processors", "cores", *device, "memory"),
            *(
                (
                    name,
                    *_counts(of_type, counted),
                    format_size(platform.memory[of_type][0]),
                )
                for t, name in enumerate(platform.node_type_names)
                for of_type in [platform.node_type == t]
            ),
        ]
    )
    yield ""
    yield format_table(
        [
            ("processor type", "kind", "processors", "cores", "cores each", "GFLOP/s a core", "W a core", "bandwidth"),
            *(
                (
                    name,
                    platform.processor_kind[t],
                    len(of_type),
                    int(cores[of_type].sum()),
                    int(cores[of_type[0]]),
                    f"{platform.gflops[of_type[0]]:.4g}",
                    f"{platform.power[of_type[0]]:.4g}",
                    _memory_bandwidth(platform.mem_bw[of_type[0]]),
                )
                for t, name in enumerate(platform.processor_type_names)
                for of_type in [np.flatnonzero(platform.processor_type == t)]
            ),
        ]
    )


def _counts(chosen: np.ndarray, columns: Sequence[np.ndarray]) -> list[int]:
    """Number of the chosen nodes, and the sums of what they have."""
    return [int(chosen.sum()), *(int(column[chosen].sum()) for column in columns)]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _memory_bandwidth(gigabytes_per_second: float) -> str:
    return "unlimited" if gigabytes_per_second == float("inf") else f"{gigabytes_per_second:.4g} GB/s"


def _spread(values: np.ndarray, shown: Callable[[float], str], mean: float | None = None) -> str:
    low, high = shown(float(values.min())), shown(float(values.max()))
    if low == high:
        return low
    return f"{low} to {high}" + ("" if mean is None else f", {shown(mean)} on average")
