"""The state of a site at a moment of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hdsim.site.beginning import recorded_nodes, recorded_times
from hdsim.site.formats import expand_nodes
from hdsim.site.jobs_table import jobs_table
from hdsim.site.model import Site
from hdsim.site.platform import nodes_of
from hdsim.site.scheduler import SlurmScheduler
from hdsim.site.workload import columns_of

if TYPE_CHECKING:
    from hdsim.workload.model import Workload


def recorded_state(site: Site, workload: Workload, at: float, phase: float = 0.0) -> SlurmScheduler:
    """Returns the scheduler of a site when its jobs have started and ended as recorded.

    Args:
        site: The site.
        workload: Its jobs, with the columns ``recorded_start`` and ``recorded_end``, and ``recorded_nodes``
            if the nodes count.
        at: Seconds after the first submission.
        phase: Seconds after the first submission of one of the calculations of priorities.

    Raises:
        WorkloadError: There are no recorded starts, or a job asks for something that the site lacks.
    """
    times, on = recorded_times(workload), recorded_nodes(workload)
    table = jobs_table(columns_of(workload), site, workload.source)
    begin = float(table.submitted[0])
    now, period = begin + at, site.priority.calculation_period
    scheduler = SlurmScheduler(site, table, begin + phase % period - period)
    shift = table.submitted - workload.original_submission_time
    start, end = times.start + shift, times.end + shift
    place = {name: row for row, (name, _) in enumerate(nodes_of(site))}
    events: list[tuple[float, int, int]] = []
    for job, (began, ended, eligible) in enumerate(
        zip(start.tolist(), end.tolist(), table.eligible.tolist(), strict=True)
    ):
        if began <= now:
            events.append((began, 1, job))
            if ended <= now:
                events.append((ended, 0, job))
        elif eligible <= now and not (ended <= now):
            events.append((eligible, 2, job))
    for time, kind, job in sorted(events):
        scheduler.calculate(time)
        if kind == 0:
            scheduler.end(job, time)
        elif kind == 1:
            nodes = [place[name] for name in expand_nodes(on[job]) if name in place]
            cpus = [0] * len(nodes)
            cpus[:1] = [int(workload.requested_cores[job])]
            scheduler.hold(job, time, nodes or [0], cpus or [0])
        else:
            scheduler.submit(job, time)
    scheduler.calculate(now)
    return scheduler
