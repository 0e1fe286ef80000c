"""A panel of reports: cores that queued jobs ask for, in the report of the run directory runs/easy."""

from hdsim.report import panels
from hdsim.report.charts import POINTS, Axis, Line, Lines, Panel, View
from hdsim.report.html import render
from hdsim.results import series
from hdsim.results.run_directory.reader import read


def queued_cores(run):
    """Cores that the waiting jobs ask for."""
    steps = series.queued_cores(run).thinned(POINTS)
    line = Line("waiting for", steps.times, steps.values, "var(--orange)", filled=True)
    time = Axis("Time since first submission", "time", 0.0, run.end_time)
    return Panel(
        "Queued cores",
        "Cores that the waiting jobs ask for.",
        (View("queued_cores", "", Lines(time, Axis("Cores"), (line,))),),
    )


panels.PANELS += (queued_cores,)
assert "Queued cores" in render(read("runs/easy"))
