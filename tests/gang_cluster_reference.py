"""Gangs and rigid jobs on one machine as a plain loop over instants, in whole millicores: an oracle of the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

#: Shares of the next superstep from its number and the largest sum of shares; None keeps the present ones.
Choose = Callable[[int, int], list[int] | None]
#: Duration of a superstep from its number and the shares.
Duration = Callable[[int, list[int]], float]


@dataclass
class RigidJob:
    submitted: float
    millicores: int
    runtime: float
    begin: float = -1.0
    end: float = -1.0


@dataclass
class GangJob:
    submitted: float
    least: list[int]
    most: int
    supersteps: int
    penalty: float
    choose: Choose
    duration: Duration
    begin: float = -1.0
    end: float = -1.0
    shares: list[int] = field(default_factory=list)
    rows: list[tuple[bool, list[int]]] = field(default_factory=list)
    barrier: float = -1.0

    @property
    def millicores(self) -> int:
        return sum(self.shares or self.least)


Job = RigidJob | GangJob


def simulate(jobs: list[Job], machine: int) -> None:
    """Runs jobs, which are in order of submission, first come, first served."""
    waiting, running, now = list(jobs), list[Job](), 0.0
    while waiting or running:
        dates = [job.submitted for job in waiting if job.submitted > now]
        dates += [job.end if isinstance(job, RigidJob) else job.barrier for job in running]
        ended = [job for job in running if is_over(job, now)]
        for job in ended:
            job.end = now
            running.remove(job)
        again = True
        while again:
            again = False
            while waiting and waiting[0].submitted <= now and waiting[0].millicores <= machine - held(running):
                job = waiting.pop(0)
                job.begin = now
                running.append(job)
                if isinstance(job, RigidJob):
                    job.end = now + job.runtime
                else:
                    job.shares, job.barrier = list(job.least), now
            for gang in sorted((job for job in running if isinstance(job, GangJob)), key=jobs.index):
                if gang.barrier == now and not is_over(gang, now):
                    before = gang.millicores
                    plan(gang, running, machine, now)
                    again = again or gang.millicores < before
        dates = [job.submitted for job in waiting if job.submitted > now]
        dates += [job.end if isinstance(job, RigidJob) else job.barrier for job in running]
        if dates:
            now = min(dates)


def is_over(job: Job, now: float) -> bool:
    if isinstance(job, RigidJob):
        return job.end == now
    return job.barrier == now and len(job.rows) == job.supersteps


def held(running: list[Job]) -> int:
    return sum(job.millicores for job in running)


def plan(gang: GangJob, running: list[Job], machine: int, now: float) -> None:
    growing = [job for job in running if isinstance(job, GangJob) and job.millicores < job.most]
    total = gang.most
    if gang in growing:
        part = (machine - held(running)) // len(growing)
        if gang.millicores + part < gang.most:
            total = gang.millicores + 1000 * (part // 1000)
    number = len(gang.rows)
    chosen = gang.choose(number, total)
    if chosen is not None:
        gang.shares = chosen
    gang.rows.append((chosen is not None, list(gang.shares)))
    paid = gang.penalty if chosen is not None and number else 0.0
    gang.barrier = now + (paid + gang.duration(number, gang.shares))
