"""``hdsim kwok top``: nodes and pods as they change."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hdsim.cli.kwok.options import kubeconfig

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from hdsim.cluster.requests import Amounts
    from hdsim.kubernetes.top import Snapshot, WatchedPod

#: Colours of states.
_COLOURS = {
    "Ready": "green",
    "Running": "green",
    "Pending": "yellow",
    "Starting": "cyan",
    "Succeeded": "blue",
    "Failed": "red",
    "NotReady": "red",
    "Cordoned": "yellow",
    "Terminating": "magenta",
    "control plane": "dim",
}
_BAR = 14
#: Lines of a screen besides the rows of the tables.
_AROUND = 12


@click.command()
@kubeconfig
@click.option("--namespace", help="Pods of this namespace only.")
@click.option(
    "--sort",
    "order",
    type=click.Choice(["cpu", "memory", "pods", "gpus", "name"]),
    default="name",
    show_default=True,
    help="Order of the nodes: the fullest first, or by name.",
)
@click.option(
    "--interval", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Seconds between two views."
)
@click.option("--once", is_flag=True, help="Print all nodes and pods once, as plain text, and end.")
def top(kubeconfig: Path | None, namespace: str | None, order: str, interval: float, once: bool) -> None:
    """Show nodes and pods as they change: requested shares, pending pods and why they are pending.

    Pods without a node come first, then the youngest ones; as many rows are shown as the terminal has. CTRL-C ends it.
    """
    try:
        from rich.console import Console, Group
        from rich.live import Live
    except ImportError as error:
        from hdsim.errors import ConfigError, install_hint

        raise ConfigError(f"expected the package rich: {error}{install_hint('rich')}", where="hdsim kwok top") from None
    from hdsim.kubernetes.connection import Connection
    from hdsim.kubernetes.top import Top
    from hdsim.simulation.terminal import signals_received

    with Connection(kubeconfig, where="--kubeconfig") as connection:
        if namespace is not None:
            connection.require_namespace(namespace, "--namespace")
        source = Top(connection, namespace, order)
        if once:
            everything = source.snapshot(reasons=1 << 30)
            console = Console(width=1000, color_system=None, highlight=False)
            with console.capture() as text:
                console.print(Group(*_view(everything, connection.server, len(everything.nodes), len(everything.pods))))
            click.echo("\n".join(line.rstrip() for line in text.get().splitlines()))
            return
        console = Console()
        with signals_received() as stop, Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while not stop:
                free = max(console.height - _AROUND, 4)
                present = source.snapshot(reasons=free)
                nodes = min(len(present.nodes), max(free - min(len(present.pods), free // 2), 2))
                live.update(Group(*_view(present, connection.server, nodes, free - nodes)), refresh=True)
                deadline = time.monotonic() + interval
                while not stop and time.monotonic() < deadline:
                    time.sleep(0.05)


def _view(present: Snapshot, server: str, nodes: int, pods: int) -> list[RenderableType]:
    """The lines of totals, the table of the first nodes, and that of the first pods."""
    return [_totals(present, server), "", _node_table(present, nodes), "", _pod_table(present, pods)]


def _totals(present: Snapshot, server: str) -> Text:
    from rich.text import Text

    ready = sum(use.node.ready for use in present.nodes)
    text = Text.assemble((server, "bold"), time.strftime("  %Y-%m-%d %H:%M:%S\n", time.localtime(present.time)))
    text.append(f"nodes  {ready:,} of {len(present.nodes):,} ready\n")
    text.append(f"pods   {sum(present.states.values()):,}")
    for place, (state, number) in enumerate(sorted(present.states.items())):
        text.append(", " if place else ": ")
        text.append(f"{number:,} {state}", style=_COLOURS.get(state, ""))
    return text


def _node_table(present: Snapshot, rows: int) -> Table:
    used, there = present.total()
    gpus = there.gpus > 0
    table = _table("NODE", "STATE")
    for resource in ("CPU", "MEMORY", *(("GPUS",) if gpus else ()), "PODS"):
        table.add_column(resource, no_wrap=True, overflow="ellipsis")
        # Bars are the first to be cut in a narrow terminal.
        table.add_column(max_width=_BAR)
        table.add_column(no_wrap=True, justify="right")
    for use in present.nodes[:rows]:
        table.add_row(use.node.name, _state(use.state), *_amounts(use.used, use.node.allocatable, gpus))
    hidden = len(present.nodes) - rows
    table.add_row("total", f"{hidden} not shown" if hidden > 0 else "", *_amounts(used, there, gpus), style="bold")
    return table


def _pod_table(present: Snapshot, rows: int) -> Table:
    table = _table("POD", "STATE", "NODE", "CPU", "MEMORY", "AGE", "SCHEDULER")
    # The others keep their widths in a narrow terminal.
    table.add_column("REASON", no_wrap=True, overflow="ellipsis", ratio=1)
    table.expand = True
    for each in present.pods[:rows]:
        table.add_row(*_pod(each, present.time))
    hidden = len(present.pods) - rows
    if hidden > 0:
        table.add_row(f"{hidden:,} not shown", style="dim")
    return table


def _pod(each: WatchedPod, now: float) -> list[str | Text]:
    pod = each.pod
    reason = " ".join(each.reason.split()) if pod.waits else ""
    cells = (f"{pod.requests.cpu:g}", _memory(pod.requests.memory), _age(now - pod.created), pod.scheduler, reason)
    return [pod.key, _state(each.state), pod.node, *cells]


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold underline")
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    return table


def _amounts(used: Amounts, there: Amounts, gpus: bool) -> list[RenderableType]:
    """Cells of the requested and allocatable amounts of resources, each with a bar and the share."""
    from rich.progress_bar import ProgressBar

    cells: list[RenderableType] = []
    for resource in ("cpu", "memory", *(("gpus",) if gpus else ()), "pods"):
        one, all_ = float(getattr(used, resource)), float(getattr(there, resource))
        shown = _memory if resource == "memory" else "{:,.6g}".format
        share = one / all_ if all_ else 0.0
        colour = "green" if share < 0.7 else "yellow" if share < 0.9 else "red"
        bar = ProgressBar(1.0, share, complete_style=colour, finished_style=colour)
        cells += [f"{shown(one)} / {shown(all_)}", bar, f"{share:.0%}"]
    return cells


def _state(state: str) -> Text:
    from rich.text import Text

    return Text(state, style=_COLOURS.get(state, ""))


def _memory(amount: float) -> str:
    """Bytes in the unit of Kubernetes, such as 2Gi."""
    unit = next(unit for unit in (3, 2, 1, 0) if amount >= 1024**unit or not unit)
    return f"{amount / 1024**unit:,.5g}{('', 'Ki', 'Mi', 'Gi')[unit]}"


def _age(seconds: float) -> str:
    """A duration in its two largest units, such as 3m12s."""
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
