"""The panels of a report as static figures, one file each, and an overview of the run in one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from hdsim.errors import ConfigError, nearest
from hdsim.report.charts import Axis, Blocks, Chart, ChartTable, Floats, Heat, Line, Lines, Panel, Plot, time_unit
from hdsim.report.colors import BLUE, HEAT, ORANGE, light
from hdsim.report.panels import longest_wait, schedule

if TYPE_CHECKING:
    from hdsim.results.run_directory.reader import Run

#: Panels that the overview stacks, by the key of a view.
OVERVIEW = ("occupancy", "utilization", "queue", "running", "power")
#: Number of blocks beyond which a bitmap of this many pixels is drawn, since the SVG would be too large to open.
_MAX_SHAPES, _PIXELS = 3_000, (2_700, 1_200)
#: Size of the names of blocks, in points.
_NAME = 8
#: Most columns of a legend, and letters in its width.
_COLUMNS, _WIDTH = 4, 110
#: Most types of nodes in a legend.
_MOST_TYPES = 16
#: Letters of the names of clusters that fit beside a chart.
_LETTERS = 40
_HEIGHTS = {"lines": 2.9, "blocks": 4.6, "heat": 4.6}
_DURATIONS = {
    1: "1 s",
    10: "10 s",
    60: "1 min",
    600: "10 min",
    3600: "1 h",
    36000: "10 h",
    86400: "1 d",
    864000: "10 d",
    8640000: "100 d",
}
#: Metrics below schedules, with their headings and factors.
_BARS = {
    "mean_execution_time": ("Mean execution time (s)", 1.0),
    "mean_slowdown_factor": ("Mean slow-down factor", 1.0),
    "communication_share": ("Time in messages (%)", 100.0),
    "barrier_waiting_share": ("Time at barriers (%)", 100.0),
}
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": light("var(--rule)"),
    "axes.labelcolor": light("var(--ink)"),
    "text.color": light("var(--ink)"),
    "xtick.color": light("var(--soft)"),
    "ytick.color": light("var(--soft)"),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": light("var(--line)"),
    "legend.frameon": False,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    # Names inside an SVG do not differ between two equal figures.
    "svg.hashsalt": "hdsim",
}


class ShownFigure(Figure):
    """A figure that notebooks show, also without pyplot."""

    def __init__(self, size: tuple[float, float], layout: Any = "constrained") -> None:
        super().__init__(figsize=size, layout=layout)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        png = BytesIO()
        self.savefig(png, format="png", dpi=80)
        return png.getvalue()


def write_all(panels: Sequence[Panel], directory: Path, kind: str = "png") -> list[Path]:
    """Draws every view of every panel but tables, and the overview of a replay, to ``KEY.png``, ``.pdf`` or ``.svg``.

    Returns:
        The files, in the order of the page.

    Raises:
        OSError: They cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        return [save(_figure(charts), directory / f"{key}.{kind}") for key, charts in _by_key(panels).items()]


def draw(panels: Sequence[Panel], kind: str) -> Figure:
    """Draws a figure of `write_all` by the key of its view, ``overview``, or ``gantt``.

    ``gantt`` is the jobs by core, for many jobs the busy cores by node.

    Raises:
        ConfigError: There is no such figure.
    """
    figures = _by_key(panels)
    if kind == "gantt":
        kind = "gantt_cores" if "gantt_cores" in figures else "occupancy"
    if kind not in figures:
        raise ConfigError(
            f"expected one of gantt, {', '.join(figures)}, got '{kind}'{nearest(kind, figures)}", where="plot"
        )
    with mpl.rc_context(_STYLE):
        return _figure(figures[kind])


def _by_key(panels: Sequence[Panel]) -> dict[str, list[tuple[str, Plot]]]:
    """Charts with their headings of each view but tables, and of the overview of a replay, by the key of the view."""
    figures: dict[str, list[tuple[str, Plot]]] = {}
    for panel in panels:
        for view in panel.views:
            if isinstance(view.chart, ChartTable):
                continue
            label = f"{panel.title}: {view.label[0].lower()}{view.label[1:]}"
            figures[view.key] = [(panel.title if view.label == panel.title else label, view.chart)]
    titles = {view.key: panel.title for panel in panels for view in panel.views}
    parts = [(titles[key], figures[key][0][1]) for key in OVERVIEW if key in figures]
    return figures | ({"overview": parts} if parts else {})


def write_schedules(runs: Mapping[str, Run], path: Path) -> Path:
    """Draws the schedules of runs side by side, over one span of time, and below them statistics of the jobs.

    Returns:
        The file.

    Raises:
        OSError: It cannot be written.
    """
    longest = longest_wait(runs.values())
    charts = {name: by_node(run, longest) for name, run in runs.items()}
    end = max(run.end_time for run in runs.values()) or 1.0
    bars = [name for name in _BARS if all(name in run.metrics for run in runs.values())]
    lines = -(-len(runs) // 2)
    with mpl.rc_context(_STYLE):
        figure = ShownFigure((12, 3.4 * lines + 0.5 + 0.28 * len(runs) + 0.7))
        parts: Any = figure.subfigures(2, 1, height_ratios=(3.4 * lines, 1.2 + 0.28 * len(runs)))
        upper, lower = parts
        axes = upper.subplots(lines, 2, squeeze=False, sharex=True)
        for ax, (name, chart) in zip(axes.flat, charts.items(), strict=False):
            ax.set_title(name, fontsize=10, pad=_above(chart) if chart else 9)
            if chart is not None:
                _draw(ax, chart)
                ax.set_ylabel("" if chart.y.names else chart.y.label)
            _x_axis(ax, Axis("Time since first submission", "time", 0.0, end))
            ax.label_outer()
        for ax in axes.flat[len(runs) :]:
            ax.set_visible(False)
        for ax, metric in zip(lower.subplots(1, len(bars), squeeze=False, sharey=True)[0], bars, strict=True):
            _draw_bars(ax, metric, {name: run.metrics.get(metric, np.nan) for name, run in runs.items()})
        return save(figure, path)


def write_chart(title: str, chart: Chart, path: Path) -> None:
    """Draws one chart, no table, as ``.png``, ``.svg`` or ``.pdf``."""
    assert not isinstance(chart, ChartTable)
    with mpl.rc_context(_STYLE):
        save(_figure([(title, chart)]), path)


def by_node(run: Run, longest: float) -> Plot | None:
    """Returns the schedule by nodes, None where no job has started.

    The scale of colours ends with a wait of `longest` seconds.
    """
    views = {view.key: view.chart for view in schedule(run, longest).views}
    chart = views.get("gantt_nodes", views.get("occupancy"))
    return None if isinstance(chart, ChartTable) else chart


def _draw_bars(ax: Any, metric: str, values: Mapping[str, float]) -> None:
    label, scale = _BARS[metric]
    numbers = [scale * value for value in values.values()]
    bars = ax.barh(list(values), numbers, color=[light(BLUE if place % 2 else ORANGE) for place in range(len(values))])
    texts = [f"{number:,.0f}" if number >= 1000 else f"{number:.3g}" for number in numbers]
    ax.bar_label(bars, texts, padding=3, fontsize=9)
    ax.set_title(label, fontsize=10)
    ax.margins(x=0.2)
    ax.set_ylim(len(values) - 0.5, -0.5)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=4))
    ax.tick_params(labelsize=9)


def save(figure: Figure, path: Path) -> Path:
    """Writes a figure as its name ends: ``.png``, ``.svg`` or ``.pdf``. The same figure gives the same bytes.

    Raises:
        OSError: It cannot be written.
    """
    if path.suffix == ".png":
        figure.savefig(path, dpi=140, metadata={"Software": "hdsim"}, pil_kwargs={"optimize": True})
    else:
        figure.savefig(path, metadata={"Date" if path.suffix == ".svg" else "CreationDate": None})
    return path


def _figure(parts: Sequence[tuple[str, Plot]]) -> Figure:
    """Charts below each other; only the last of several over time has a labelled time axis."""
    alone = len(parts) == 1
    heights = [_HEIGHTS[chart.kind] * (1 if alone else 0.65) for _, chart in parts]
    legends = sum(max(_above(chart) - 24, 0) for _, chart in parts) / 72
    size = (10, sum(heights) + 0.2 + legends)
    figure = ShownFigure(size, ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    axes = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)[:, 0]
    for ax, (title, chart) in zip(axes, parts, strict=True):
        ax.set_title(title, y=1.0, pad=_above(chart))
        _draw(ax, chart)
        _x_axis(ax, chart.x)
        ax.set_ylabel("" if chart.y.names else chart.y.label)
        if ax is not axes[-1]:
            ax.set_xlabel("")
            ax.tick_params(labelbottom=False)
    figure.align_ylabels()
    return figure


def _above(chart: Plot) -> int:
    """Points between a chart and its title: room for the legend."""
    labels, bar = _labels(chart), isinstance(chart, Heat)
    return 9 + 15 * max(-(-len(labels) // _columns(chart)) if labels else 0, bar)


def _labels(chart: Plot) -> list[str]:
    """Labels of the legend; none without one."""
    if isinstance(chart, Lines) and len(chart.lines) > 1:
        return [line.label for line in chart.lines]
    return [label for label, _ in _marks(chart)]


def _marks(chart: Plot) -> list[tuple[str, str]]:
    """Labels and colours of a legend that are no curves: of blocks, and of the marks beside the axis."""
    if isinstance(chart, Lines):
        return []
    own, strip = list(chart.legend) if isinstance(chart, Blocks) else [], chart.strip
    if strip is None or not 2 <= len(strip.names) <= _MOST_TYPES:
        return own
    return own + [(name, strip.colors[kind % len(strip.colors)]) for kind, name in enumerate(strip.names)]


def _columns(chart: Plot) -> int:
    """Columns of a legend; beside the scale of a heat map there is room for fewer."""
    width = 0.6 * _WIDTH if isinstance(chart, Heat) else _WIDTH
    return max(1, min(_COLUMNS, int(width // (max(map(len, _labels(chart))) + 6))))


def _legend(ax: Any, chart: Plot, handles: Sequence[Any] | None = None) -> None:
    options = {
        "loc": "lower left",
        "bbox_to_anchor": (0, 1.0),
        "ncols": _columns(chart),
        "borderaxespad": 0.1,
        "handlelength": 1.4,
    }
    ax.legend(**options, **({"handles": handles} if handles else {}))


def _x_axis(ax: Any, axis: Axis) -> None:
    ax.set_xlim(axis.low, axis.high)
    if axis.kind == "time":
        unit = time_unit((axis.high or 0.0) - axis.low)
        # Ticks at whole numbers of the unit; data are in seconds.
        ticks = MaxNLocator(nbins=12, steps=[1, 2, 5, 10]).tick_values(
            axis.low / unit.seconds, (axis.high or 0) / unit.seconds
        )
        ax.xaxis.set_major_locator(FixedLocator([tick * unit.seconds for tick in ticks]))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / unit.seconds:,.6g}"))
        ax.set_xlim(axis.low, axis.high)
        ax.set_xlabel(f"{axis.label} ({unit.name})")
        return
    ax.set_xlabel(axis.label)
    if axis.kind in ("duration", "log"):
        ax.set_xscale("log")
        ax.set_xlim(axis.low, axis.high)
        ax.xaxis.set_minor_locator(NullLocator())
    if axis.kind == "duration":
        ax.xaxis.set_major_locator(FixedLocator(list(_DURATIONS)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _DURATIONS.get(round(x), "")))
    elif axis.kind == "log":
        ax.xaxis.set_major_locator(LogLocator(10))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    elif axis.kind == "count":
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_lines(ax: Any, chart: Lines) -> None:
    _draw_curves(ax, chart.y, [line for line in chart.lines if not line.right])
    handles = ax.get_legend_handles_labels()[0]
    if chart.right is not None:
        other = ax.twinx()
        _draw_curves(other, chart.right, [line for line in chart.lines if line.right])
        other.set_ylabel(chart.right.label)
        handles += other.get_legend_handles_labels()[0]
    ax.grid(True)
    ax.set_axisbelow(True)
    if _labels(chart):
        _legend(ax, chart, handles)


def _draw_curves(ax: Any, axis: Axis, lines: Sequence[Line]) -> None:
    for line in lines:
        color = light(line.color)
        if line.low is not None and line.high is not None:
            ax.fill_between(line.x, line.low, line.high, step="post", color=color, alpha=0.35, linewidth=0)
        if line.filled:
            ax.fill_between(line.x, line.y, step="post", color=color, alpha=0.2, linewidth=0)
        ax.step(line.x, line.y, where="post", color=color, linewidth=1.1, label=line.label)
    largest = max((line.top for line in lines), default=0.0)
    ax.set_ylim(axis.low, axis.high if axis.high is not None else (largest or 1.0) * 1.06)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=axis.kind == "count", steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.6g}"))


def _draw_blocks(ax: Any, chart: Blocks) -> None:
    start, finish = chart.start[chart.item], chart.finish[chart.item]
    low, high = chart.position[chart.low], chart.position[chart.high]
    color, palette = chart.color[chart.item], [light(name) for name in chart.colors]
    if len(start) <= _MAX_SHAPES:
        # Spans shorter than a pixel get one pixel.
        finish = np.maximum(finish, start + (chart.x.high or 1.0) / _PIXELS[0])
        corners: Any = np.stack(
            [np.stack([x, y], axis=1) for x, y in ((start, low), (finish, low), (finish, high), (start, high))], axis=1
        )
        colors = to_rgba_array(palette)[color]
        # White lines between neighbours, unless they would hide thin blocks.
        visible = ((high - low) * _PIXELS[1] > 12 * (chart.y.high or 1.0)) & (
            (finish - start) * _PIXELS[0] > 6 * (chart.x.high or 1.0)
        )
        widths = np.where(visible, 0.3, 0.0)
        blocks = PolyCollection(corners, facecolors=colors, edgecolors="white", linewidths=widths)
        ax.add_collection(blocks, autolim=False)
    else:
        extent = (chart.x.low, chart.x.high or 1.0, chart.y.low, chart.y.high or 1.0)
        picture = _paint(start, finish, low, high, color, palette, extent)
        ax.imshow(picture, extent=extent, origin="lower", aspect="auto", interpolation="nearest")
    if chart.named:
        _name_blocks(ax, chart, start, finish, low, high)
    _lanes(ax, chart.y)
    _strip(ax, chart)


def _name_blocks(
    ax: Any, chart: Blocks, start: Floats, finish: Floats, low: NDArray[np.float32], high: NDArray[np.float32]
) -> None:
    """Writes the first fact of each item into its largest block, where there is room for it."""
    across, up = (72 * ax.get_window_extent().size / ax.figure.dpi) / (chart.x.high or 1.0, chart.y.high or 1.0)
    wide, tall = (finish - start) * across, (high - low) * up
    texts = chart.facts[0].values
    # Brighter than this, black has more contrast than white (relative luminance of WCAG 2.2).
    bright = to_rgba_array([light(name) for name in chart.colors])[:, :3] ** 2.2 @ (0.2126, 0.7152, 0.0722) > 0.179
    order = np.argsort(-(wide * tall), kind="stable")
    items, first = np.unique(chart.item[order], return_index=True)
    for item, block in zip(items.tolist(), order[first].tolist(), strict=True):
        text = str(texts[item])
        if tall[block] >= 1.2 * _NAME and wide[block] >= 0.7 * _NAME * len(text) + 2:
            place = (start[block] + finish[block]) / 2, (low[block] + high[block]) / 2
            ink = light(f"var(--on-{'bright' if bright[chart.color[item]] else 'dark'})")
            ax.text(*place, text, ha="center", va="center", fontsize=_NAME, color=ink, clip_on=True, parse_math=False)


def _paint(
    start: Floats,
    finish: Floats,
    low: NDArray[np.float32],
    high: NDArray[np.float32],
    color: NDArray[np.uint8],
    colors: Sequence[str],
    extent: tuple[float, float, float, float],
) -> NDArray[np.uint8]:
    """Picture (height, width, RGB) of blocks, bottom row first, each of them at least a pixel in size."""
    left, right, bottom, top = extent
    width, height = _PIXELS
    x0 = np.rint((start - left) * (width / (right - left))).astype(np.int64)
    x1 = np.maximum(np.rint((finish - left) * (width / (right - left))).astype(np.int64), x0 + 1)
    y0 = np.rint((low - bottom) * (height / (top - bottom))).astype(np.int64)
    y1 = np.maximum(np.rint((high - bottom) * (height / (top - bottom))).astype(np.int64), y0 + 1)
    palette = (255 * to_rgba_array(colors)[:, :3]).astype(np.uint8)
    picture = np.full((height, width, 3), 255, np.uint8)
    for block in zip(x0.tolist(), x1.tolist(), y0.tolist(), y1.tolist(), color.tolist(), strict=True):
        picture[block[2] : block[3], block[0] : block[1]] = palette[block[4]]
    return picture


def _draw_heat(ax: Any, chart: Heat) -> None:
    colors = LinearSegmentedColormap.from_list("share", [light(color) for color in HEAT])
    mesh = ax.pcolormesh(chart.times, chart.lanes, 100 * chart.share, cmap=colors, vmin=0, vmax=100, rasterized=True)
    # Above the chart, which keeps the width of the charts it is stacked with.
    inches = ax.get_window_extent().height / ax.figure.dpi
    bar = ax.figure.colorbar(
        mesh, cax=ax.inset_axes((0.78, 1 + 0.3 / inches, 0.22, 0.09 / inches)), orientation="horizontal"
    )
    bar.ax.tick_params(labelsize=8, length=2)
    bar.ax.set_ylabel(f"{chart.label} (%)", rotation=0, ha="right", va="center", fontsize=9)
    bar.outline.set_visible(False)
    _lanes(ax, chart.y)
    _strip(ax, chart)


def _strip(ax: Any, chart: Blocks | Heat) -> None:
    """The legend of blocks, and marks left of the axis with lines between clusters."""
    marks = _marks(chart)
    if marks:
        _legend(ax, chart, [Patch(color=light(color), label=label) for label, color in marks])
    strip = chart.strip
    if strip is None:
        return
    across = ax.get_yaxis_transform()
    for low, high, kind in zip(strip.first[:-1], strip.first[1:], strip.kind.tolist(), strict=True):
        color = light(strip.colors[kind % len(strip.colors)])
        ax.add_patch(Rectangle((-0.011, low), 0.008, high - low, color=color, lw=0, transform=across, clip_on=False))
    ax.tick_params(axis="y", length=0, pad=10)
    for bound in strip.clusters[1:-1]:
        ax.axhline(bound, color=light("var(--rule)"), linewidth=0.8)
    if len(strip.cluster_names) > 1:
        for low, high, name in zip(strip.clusters[:-1], strip.clusters[1:], strip.cluster_names, strict=True):
            # Names that are longer than their cluster would lie on each other.
            if (high - low) * _LETTERS > len(name) * strip.clusters[-1]:
                ax.text(1.005, (low + high) / 2, name, transform=across, rotation=270, va="center", fontsize=8)


def _lanes(ax: Any, axis: Axis) -> None:
    ax.set_ylim(axis.low, axis.high)
    if axis.names:
        ax.set_yticks(np.arange(len(axis.names)) + 0.5, axis.names)
        return
    ax.yaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))


def _draw(ax: Any, chart: Plot) -> None:
    match chart:
        case Lines():
            _draw_lines(ax, chart)
        case Blocks():
            _draw_blocks(ax, chart)
        case Heat():
            _draw_heat(ax, chart)
