"""Jobs of a site from the rows of sacct.

Source of the columns: the manual page sacct(1) of Slurm 22.05. ElapsedRaw is without the time in which a job was
suspended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from hdsim.errors import ConfigError
from hdsim.site.features import OTHERS, features_in, is_simulated
from hdsim.site.formats import expand_nodes
from hdsim.site.jobs_table import YEAR
from hdsim.site.local_times import decide, read_times
from hdsim.site.model import Site
from hdsim.site.notes import Notes
from hdsim.site.platform import MB_PER_MIB, nodes_of
from hdsim.site.sacct_demands import counts, gres, licenses, of_lines, unread, whole
from hdsim.site.sacct_values import MIB, amount_of, duration, limit, memory_of, number, something
from hdsim.site.submit_lines import of_component
from hdsim.workload.swf import CANCELLED, COMPLETED, FAILED

#: Limits in seconds, MiB and CPUs beyond which a number is damaged.
_LONGEST, _LARGEST, _MOST = 100 * YEAR, 1e9, 1e9
#: States of runs that are not over.
_ONGOING = ("RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "CONFIGURING")
_WAITING = ("PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED", "RESV_DEL_HOLD")
#: Seconds between the end of a run and the submission of the next one of the same job.
_REQUEUE = 3600.0
#: Flag of ReqMem that sacct printed as a number: the memory is of each CPU.
_OF_CPU = 2**31
#: Most tasks of a pending array that a row may stand for.
_TASKS = 4_000_001


def jobs_of(rows: pl.DataFrame, files: Sequence[Path], site: Site, notes: Notes) -> pl.DataFrame:
    """Returns the jobs in order of submission, as columns of a workload in Parquet and those of the site's own.

    Args:
        rows: Those of :func:`hdsim.site.sacct.read_sacct`.
        files: The files by number, for the notes.
        site: The site: its time zone, nodes and partitions.
        notes: Takes what is changed and left out.

    Raises:
        ConfigError: No job is left.
    """
    return _Jobs(files, site, notes).made(rows)


class _Jobs:
    """The steps from rows to jobs."""

    def __init__(self, files: Sequence[Path], site: Site, notes: Notes) -> None:
        self.files, self.site, self.notes = files, site, notes
        self.have: set[str] = set()  # columns of the dump

    def note(self, add: Callable[..., None], rows: pl.DataFrame, reason: str) -> None:
        """Notes some rows with their places."""
        for (file,), part in rows.select("file", "line").group_by("file", maintain_order=True):
            name = self.files[int(file)].name
            for line in part["line"][:3]:
                add(name, reason, f"{name}:{line}")
            add(name, reason, count=max(part.height - 3, 0))

    def leave_out(self, rows: pl.DataFrame, bad: pl.Series | np.ndarray, reason: str) -> pl.DataFrame:
        """Returns the other rows."""
        bad = pl.Series(bad).fill_null(False)
        if not bad.any():
            return rows
        self.note(self.notes.leave_out, rows.filter(bad), reason)
        return rows.filter(~bad)

    def change(self, rows: pl.DataFrame, changed: pl.Series | np.ndarray, reason: str) -> None:
        changed = pl.Series(changed).fill_null(False)
        if changed.any():
            self.note(self.notes.change, rows.filter(changed), reason)

    def made(self, rows: pl.DataFrame) -> pl.DataFrame:
        rows = self.named(rows)
        if (rows["cluster"] == self.site.name).any():
            rows = self.leave_out(rows, rows["cluster"] != self.site.name, "jobs of other clusters")
        rows = self.leave_out(rows, rows["state"] == "REVOKED", "jobs that another cluster of a federation has run")
        rows = self.timed(self.expanded(rows))
        rows = self.leave_out(rows, rows["submit"].is_null(), "damaged lines: no time of submission")
        jobs = self.joined(self.unrepeated(rows))
        if not jobs.height:
            raise ConfigError("expected at least one job, got none", where=", ".join(map(str, self.files)))
        jobs = self.within_site(self.demands(jobs))
        if not jobs.height:
            raise ConfigError(
                f"expected jobs of the partitions {', '.join(self.site.partitions)}, got none", where=str(self.files[0])
            )
        return jobs

    def named(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds the columns that are missing, and the numbers of jobs and tasks."""
        have = self.have = set(rows.columns)

        def text(*names: str) -> pl.Expr:
            given = [something(name) for name in names if name in have]
            return pl.coalesce(given) if given else pl.lit(None, pl.String)

        rows = rows.select(
            "file",
            "line",
            id=text("jobid", "jobidraw"),
            user=text("user", "uid"),
            account=text("account"),
            qos=text("qos"),
            name=text("jobname"),
            partition=text("partition"),
            submit_text=text("submit"),
            eligible_text=text("eligible"),
            start_text=text("start"),
            end_text=text("end"),
            state=text("state").str.extract(r"^([A-Z_]+)", 1),
            elapsed=duration(text("elapsedraw"), text("elapsed")),
            suspended=duration(text("suspended")).fill_null(0.0),
            limit=limit(text("timelimitraw"), text("timelimit")),
            req_tres=text("reqtres"),
            alloc_tres=text("alloctres"),
            req_memory=text("reqmem"),
            req_cpus=number(text("reqcpus")),
            req_nodes=number(text("reqnodes")),
            cpus_now=number(text("ncpus", "alloccpus")),
            nodes_now=number(text("nnodes", "allocnodes")),
            req_gres=text("reqgres"),
            alloc_gres=text("allocgres"),
            licenses=text("licenses"),
            nodelist=text("nodelist"),
            priority=number(text("priority")),
            reason=text("reason"),
            reservation=text("reservation"),
            constraints=text("constraints"),
            submit_line=text("submitline"),
            known_restarts=number(text("restarts")),
            cluster=text("cluster"),
        )
        for name in ("user", "account", "qos"):
            if name not in have:
                self.notes.change(self.files[0].name, f"no column {name}: not known of any job")
        return rows.with_columns(number=pl.col("id").str.extract(r"^(\d+)", 1).cast(pl.Int64))

    def expanded(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Makes a row of each task of a pending array."""
        arrays = rows.filter(pl.col("id").str.contains("[", literal=True))
        if arrays.height:
            made = [self.tasks(row["id"], row) for row in arrays.select("id", "file", "line").iter_rows(named=True)]
            arrays = arrays.with_columns(id=pl.Series(made, dtype=pl.List(pl.String))).explode("id")
            self.note(self.notes.change, arrays, "tasks of pending arrays: a job each")
            rows = pl.concat([rows.filter(~pl.col("id").str.contains("[", literal=True)), arrays])
        self.change(rows, rows["id"].str.contains("+", literal=True), "components of heterogeneous jobs: a job each")
        array = pl.col("id").str.contains("_", literal=True)
        return rows.with_columns(array=pl.when(array).then(pl.col("number")))

    def tasks(self, text: str, row: Mapping[str, Any]) -> list[str]:
        """The ids of the tasks of an array such as ``7_[3-9:2%4,12]``."""
        number, _, listed = text.partition("_[")
        found: dict[int, None] = {}
        file, cut = self.files[row["file"]].name, not listed.endswith("]")
        for part in re.sub(r"%.*$", "", listed.rstrip("]")).split(","):
            match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part.strip())
            if not match:
                cut |= bool(part.strip())
                continue
            first, last, step = int(match[1]), int(match[2] or match[1]), max(int(match[3] or 1), 1)
            found |= dict.fromkeys(range(first, min(last, first + _TASKS) + 1, step))
        if cut:
            self.notes.leave_out(file, "tasks that sacct has cut off (...)", f"{file}:{row['line']}")
        return [f"{number}_{task}" for task in found]

    def timed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds the times in seconds since 1970."""
        names = ("submit", "eligible", "start", "end")
        times = {name: read_times(rows[f"{name}_text"], self.site.time_zone) for name in names}
        for name, one in times.items():
            self.change(rows, one.unreadable, f"{name.capitalize()} that is no time: taken as unknown")
            self.change(rows, one.missing, f"{name.capitalize()} in the hour that the clock passes over: an hour later")
        absent = np.isnan(times["submit"].first)
        if absent.any():
            other = np.where(np.isnan(times["eligible"].first), times["start"].first, times["eligible"].first)
            self.change(rows, absent & ~np.isnan(other), "no Submit: that of Eligible or Start")
            for which in ("first", "second"):
                later = getattr(times["start"], which)
                first = getattr(times["eligible"], which)
                column = getattr(times["submit"], which)
                column[absent] = np.where(np.isnan(first), later, first)[absent]
        lasted = (rows["elapsed"] + rows["suspended"]).fill_null(np.nan).to_numpy()
        made, decided, guessed = decide(times, lasted, rows["number"].to_numpy())
        self.change(
            rows, decided, "times in the hour that occurs twice: decided by Elapsed and the numbers of the jobs"
        )
        self.change(rows, guessed, "times in the hour that occurs twice: nothing decides, taken as the first")
        columns = {name: pl.Series(column, nan_to_null=True) for name, column in made.items()}
        rows = rows.with_columns(**columns).drop(f"{name}_text" for name in names)
        # Without columns of nodes only the state tells that a job of no time never started.
        unassigned = pl.col("elapsed").fill_null(0) == 0
        if {"nodelist", "alloctres"} & self.have:
            unassigned &= pl.col("nodelist").is_null() & pl.col("alloc_tres").is_null()
        else:
            unassigned &= pl.col("state").is_in(["CANCELLED", "DEADLINE"])
        waiting = pl.col("state").is_in([*_WAITING, "REVOKED"])
        never = waiting | (unassigned & (pl.col("start") == pl.col("end")) & (pl.col("state") != "COMPLETED"))
        rows = rows.with_columns(start=pl.when(~never.fill_null(False)).then("start"))
        return self.lasting(rows)

    def lasting(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Completes the times that runs lasted; none is negative."""
        between = pl.col("end") - pl.col("start") - pl.col("suspended")
        wrong = (pl.col("elapsed") < 0) | (pl.col("elapsed") >= 2.0**31)
        unknown = rows.select(wrong & pl.col("start").is_not_null()).to_series()
        self.change(rows, unknown, "negative Elapsed: the time from Start to End, at least 0")
        rows = rows.with_columns(elapsed=pl.when(~wrong).then("elapsed"))
        backwards = rows.select(pl.col("end") < pl.col("start")).to_series()
        self.change(rows, backwards, "End before Start: Start and Elapsed later")
        lasted = pl.col("elapsed").fill_null(0.0) + pl.col("suspended")
        rows = rows.with_columns(end=pl.when(backwards).then(pl.col("start") + lasted).otherwise("end"))
        return rows.with_columns(
            elapsed=pl.when(pl.col("start").is_null())
            .then(0.0)
            .otherwise(pl.coalesce("elapsed", pl.max_horizontal(between, 0.0), 0.0))
        )

    def unrepeated(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Leaves out rows of runs that a later row or file has with more."""
        rows = rows.sort("number", "id", "submit", "start", "end", "file", "line", nulls_last=False)
        same = (pl.col("id") == pl.col("id").shift(-1)) & (pl.col("submit") == pl.col("submit").shift(-1))
        # The same run, or the waiting or running job of an earlier dump.
        again = same & (pl.col("start").is_null() | (pl.col("start") == pl.col("start").shift(-1)))
        repeated = rows.select(again.fill_null(False)).to_series()
        return self.leave_out(rows, repeated, "rows of runs that another row has too")

    def joined(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Makes one job of the runs of each, which are sorted."""
        before = {name: pl.col(name).shift(1) for name in ("id", "submit", "end", "user", "state")}
        of_same = pl.col("user").eq_missing(before["user"]) & (
            (pl.col("submit") == before["submit"])
            | ((pl.col("submit") - before["end"]).abs() <= _REQUEUE)
            | before["state"].is_in(["REQUEUED", "PREEMPTED", "RESIZING", *_WAITING])
        )
        rows = rows.with_columns(
            reused=((pl.col("id") == before["id"]) & ~of_same.fill_null(False)).fill_null(False),
            begins=((pl.col("id") != before["id"]) | ~of_same.fill_null(False)).fill_null(True),
        )
        self.change(rows, rows["reused"], "numbers that another job had before: named such as 7.1")
        job = rows["begins"].cum_sum().alias("job")
        rows = rows.with_columns(job, copy=pl.col("reused").cum_sum().over("id"))
        rows = rows.with_columns(id=pl.when(pl.col("copy") > 0).then(pl.format("{}.{}", "id", "copy")).otherwise("id"))
        single = rows.filter(pl.len().over("job") == 1)
        several = rows.filter(pl.len().over("job") > 1)
        run = pl.struct("start", "end", "state", nodes="nodelist")
        single = single.with_columns(
            restarts=pl.lit(0, pl.Int64), runs=pl.lit(None, pl.List(rows.select(run.alias("run")).schema["run"]))
        )
        if several.height:
            last = several.group_by("job", maintain_order=True).last()
            resized = pl.col("state") == "RESIZING"
            first = several.group_by("job", maintain_order=True).agg(
                pl.col("submit").first(),
                pl.col("eligible").first(),
                pl.col("start").filter(resized).first().alias("first_size"),
                pl.col("elapsed").filter(resized).sum().alias("before_resizing"),
                (pl.len() - resized.sum() - 1).cast(pl.Int64).clip(0).alias("restarts"),
                run.alias("runs"),
            )
            last = last.drop("submit", "eligible").join(first, on="job", how="left", maintain_order="left")
            last = last.with_columns(
                elapsed=pl.col("elapsed") + pl.col("before_resizing"), start=pl.coalesce("first_size", "start")
            )
            self.change(last, last["restarts"] > 0, "runs of requeued and preempted jobs: one job with restarts")
            self.change(last, last["before_resizing"] > 0, "jobs that were resized: as of their last size")
            single = pl.concat([single, last.select(single.columns)])
        late = single.select(pl.col("submit") > pl.col("start")).to_series()
        self.change(single, late, "Submit after Start: that of Start")
        single = single.with_columns(submit=pl.min_horizontal("submit", "start"))
        restarts = pl.max_horizontal("restarts", pl.col("known_restarts").fill_null(0).cast(pl.Int64))
        jobs = single.with_columns(restarts=restarts).sort("submit", "number", "file", "line")
        self.change(
            jobs, jobs["state"].is_in(_ONGOING), "running at the end of the dump: jobs with the run time until then"
        )
        self.change(
            jobs, jobs["state"].is_in(_WAITING), "waiting at the end of the dump: kept with status 5, never started"
        )
        cancelled = jobs["start"].is_null() & ~jobs["state"].is_in(_WAITING)
        self.change(jobs, cancelled, "ended before they started: kept with status 5, leave the queue at their end")
        return jobs

    def demands(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """Adds the resources that the jobs ask for and got."""
        several = pl.col("id").str.contains("+", literal=True) & pl.col("submit_line").str.contains(" : ", literal=True)
        if jobs.select(several.fill_null(False).any()).item():
            pairs = jobs.select("id", "submit_line", several=several.fill_null(False)).iter_rows()
            lines = [of_component(line, int(name.rpartition("+")[2])) if of else line for name, line, of in pairs]
            jobs = jobs.with_columns(submit_line=pl.Series(lines, dtype=pl.String))
        for option, rows in unread(jobs["submit_line"]).items():
            self.note(self.notes.leave_out, jobs[rows], f"{option}: not simulated, the job is as without it")
        jobs = jobs.with_columns(of_lines(jobs["submit_line"]))
        started = pl.col("start").is_not_null()
        got = {name: pl.when(started).then(amount_of(pl.col("alloc_tres"), name)) for name in ("cpu", "node", "mem")}
        known = (amount_of(pl.col("req_tres"), "cpu"), "req_cpus", "cpus_now", amount_of(pl.col("alloc_tres"), "cpu"))
        self.change(jobs, jobs.select(pl.coalesce(*known, 0) < 1).to_series(), "no number of CPUs: taken as one")
        counted = pl.max_horizontal(*known, got["cpu"], got["node"], "req_nodes", "nodes_now")
        beyond = jobs.select(counted > _MOST).to_series()
        jobs = self.leave_out(jobs, beyond, "damaged lines: more than a billion CPUs or nodes")
        cpus = pl.coalesce(*known, 1).clip(1)
        nodes = pl.coalesce("of_line_nodes", "req_nodes", amount_of(pl.col("req_tres"), "node"))
        jobs = jobs.with_columns(
            cpus=cpus.cast(pl.Int64),
            nodes=pl.when(nodes > 0).then(nodes).cast(pl.Int64),
            got_cpus=pl.coalesce(got["cpu"], pl.when(started & (pl.col("cpus_now") > 0)).then("cpus_now"), cpus)
            .clip(1)
            .cast(pl.Int64),
            got_nodes=pl.coalesce(got["node"], pl.when(started).then("nodes_now"), nodes, 1).clip(1),
            got_memory=got["mem"],
        )
        # Several nodes are asked for by -N, of which one number is the least and the most.
        exact = (pl.col("nodes") > 1) & (pl.col("got_nodes") == pl.col("nodes"))
        jobs = jobs.with_columns(most_nodes=pl.coalesce("of_line_most_nodes", pl.when(exact).then("nodes")))
        jobs = self.known_nodes(jobs.with_columns(gres(jobs), licenses=licenses(jobs)))
        jobs = self.memory(jobs)
        beyond = jobs.select(pl.max_horizontal("memory_mib", "memory") > _LARGEST).to_series().fill_null(False)
        self.change(jobs, beyond, "memory of more than a billion MiB: not asked for")
        jobs = jobs.with_columns(
            memory_mib=pl.when(~beyond).then("memory_mib"), memory=pl.when(~beyond).then("memory").otherwise(0.0)
        )
        jobs = jobs.with_columns(whole=pl.col("of_line_whole") | whole(jobs, self.site))
        return jobs

    def memory(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """Adds ``memory_mib`` and ``memory_per``, and the MB of each core."""
        consumable = "MEMORY" in self.site.slurm.consumable
        text = pl.col("req_memory")
        amount = text.str.extract(r"^([\d.]+)", 1).cast(pl.Float64, strict=False)
        unit = text.str.extract(r"^[\d.]+([KMGTP]?)", 1).replace_strict(MIB, default=1.0, return_dtype=pl.Float64)
        suffix = text.str.extract(r"([nc])$", 1)
        jobs = jobs.with_columns(asked=amount * unit, suffix=suffix)
        broken = jobs.select(pl.col("asked").is_null() & text.is_not_null()).to_series()
        self.change(jobs, broken, "ReqMem that is no amount: taken as unknown")
        flagged = pl.col("asked").is_between(_OF_CPU, 2 * _OF_CPU)
        self.change(
            jobs, jobs.select(flagged).to_series(), "ReqMem above 2^31 MiB, as 2147486648Mn: without 2^31, of each CPU"
        )
        jobs = jobs.with_columns(
            asked=pl.when(flagged).then(pl.col("asked") - _OF_CPU).otherwise("asked"),
            suffix=pl.when(flagged).then(pl.lit("c")).otherwise("suffix"),
        )
        total = pl.coalesce(
            pl.when(pl.col("suffix").is_null()).then("asked"), memory_of(pl.col("req_tres")).fill_nan(None)
        )
        nodes, usual = pl.col("nodes").fill_null(1).clip(1), self.usual_memory()
        per_cpu, per_node = total / pl.col("cpus"), total / nodes
        of_cpu = (
            pl.when(pl.col("got_nodes") != nodes)
            .then((pl.col("got_memory") - per_node * pl.col("got_nodes")).abs() > 1)
            .when(pl.col("got_cpus") != pl.col("cpus"))
            .then((pl.col("got_memory") - per_cpu * pl.col("got_cpus")).abs() <= 1)
            .otherwise(per_cpu.is_in(usual))
        )
        per = pl.coalesce(
            "suffix", "of_line_memory_per", pl.when(of_cpu.fill_null(False)).then(pl.lit("c")).otherwise(pl.lit("n"))
        )
        jobs = jobs.with_columns(memory_per=per)
        jobs = jobs.with_columns(
            memory_mib=pl.when(pl.col("suffix").is_not_null())
            .then("asked")
            .otherwise(pl.when(pl.col("memory_per") == "c").then(per_cpu).otherwise(per_node))
        )
        if not consumable:
            # sacct has the memory of a node for jobs that ask for none if memory is not counted.
            of_nodes = [one.memory for one in self.site.nodes.values()]
            jobs = jobs.with_columns(
                memory_mib=pl.when(
                    ~((total / nodes).round(0).is_in([*of_nodes]) | pl.col("asked").round(0).is_in(of_nodes))
                ).then("memory_mib")
            )
            return jobs.with_columns(memory=pl.lit(0.0))
        asked = (
            pl.when(pl.col("memory_per") == "c")
            .then(pl.col("memory_mib") * pl.col("got_cpus"))
            .otherwise(pl.col("memory_mib") * pl.col("got_nodes"))
        )
        taken = pl.coalesce(pl.when(pl.col("got_memory") > 0).then("got_memory"), asked, 0.0)
        return jobs.with_columns(memory=taken * MB_PER_MIB / pl.col("got_cpus"))

    def usual_memory(self) -> list[float]:
        """The values of DefMemPerCPU."""
        found = {one.default_memory_per_cpu for one in self.site.partitions.values()}
        return sorted(value for value in found if value is not None)

    def within_site(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """Leaves out jobs of partitions that the site lacks, and returns the columns of the file."""
        known = list(self.site.partitions)
        jobs = jobs.with_columns(partition=pl.col("partition").fill_null(self.site.default_partition or known[0]))
        jobs = jobs.with_columns(
            partitions=pl.coalesce("of_line_partitions", "partition")
            .str.split(",")
            .list.eval(pl.element().str.strip_chars().filter(pl.element().str.strip_chars().is_in(known))),
            partition=pl.col("partition")
            .str.split(",")
            .list.eval(pl.element().filter(pl.element().is_in(known)))
            .list.first(),
        )
        strange = jobs["partition"].is_null()
        jobs = self.leave_out(jobs, strange, "jobs of partitions that slurm.conf does not have")
        maximal = {name: min(one.max_time, YEAR) for name, one in self.site.partitions.items()}
        beyond = jobs.select(pl.col("limit").is_finite() & (pl.col("limit") > _LONGEST)).to_series()
        self.change(jobs, beyond, "Timelimit of more than a hundred years: that of the partition")
        given = pl.when(pl.col("limit") <= _LONGEST).then("limit")
        requested = pl.coalesce(given, pl.col("partition").replace_strict(maximal, return_dtype=pl.Float64))
        status = (
            pl.when(pl.col("start").is_null())
            .then(CANCELLED)
            .when(pl.col("state") == "COMPLETED")
            .then(COMPLETED)
            .when(pl.col("state") == "CANCELLED")
            .then(CANCELLED)
            .when(pl.col("state").is_null() | pl.col("state").is_in(_ONGOING))
            .then(-1)
            .otherwise(FAILED)
        )
        held = pl.col("start").is_null() & (
            (pl.col("priority") == 0)
            | pl.col("reason").str.contains("JobHeld").fill_null(False)
            | pl.col("of_line_held")
        )
        constraints = pl.coalesce("constraints", "of_line_constraints")
        jobs = jobs.with_columns(
            requested=requested,
            reservation=pl.coalesce("reservation", "of_line_reservation"),
            # A single node has one of the alternatives in brackets.
            constraints=pl.when(pl.col("got_nodes") == 1)
            .then(constraints.str.replace_many(["[", "]"], ["(", ")"]))
            .otherwise(constraints),
        )
        jobs = self.without_unknown(jobs).with_columns(begin=self.begin(jobs))
        text_ids = not jobs["id"].str.contains(r"^\d+$").all()
        return jobs.select(
            job_id=pl.col("id") if text_ids else pl.col("id").cast(pl.Int64),
            submission_time="submit",
            runtime="elapsed",
            requested_time="requested",
            walltime=pl.max_horizontal("requested", "elapsed"),
            requested_cores="got_cpus",
            requested_gpus="gpus",
            memory="memory",
            user="user",
            group="account",
            queue="qos",
            partition="partition",
            executable="name",
            status=status.cast(pl.Int64),
            eligible=pl.max_horizontal("submit", pl.coalesce("eligible", "begin", "submit")),
            begin="begin",
            cpus="cpus",
            nodes="nodes",
            most_nodes="most_nodes",
            use_min_nodes="of_line_use_min_nodes",
            per_task="of_line_per_task",
            tasks_per_node="of_line_tasks_per_node",
            min_cpus="of_line_min_cpus",
            array_limit="of_line_array_limit",
            memory_mib="memory_mib",
            memory_per=pl.when(pl.col("memory_mib").is_not_null()).then("memory_per"),
            whole="whole",
            whole_cores="of_line_whole_cores",
            exclusive_user="of_line_exclusive_user",
            nice="of_line_nice",
            constraints="constraints",
            reservation="reservation",
            licenses="licenses",
            gres="gres",
            gpus_asked="of_line_gpus_asked",
            gpus_per_task="of_line_gpus_per_task",
            cpus_per_gpu="of_line_cpus_per_gpu",
            dependency="of_line_dependency",
            held=held.fill_null(False),
            partitions=pl.when(pl.col("partitions").list.len() > 0)
            .then(pl.col("partitions").list.join(","))
            .otherwise("partition"),
            required_nodes="of_line_required_nodes",
            excluded_nodes="of_line_excluded_nodes",
            array_job_id="array",
            restarts="restarts",
            runs="runs",
            state="state",
            reason="reason",
            recorded_start="start",
            recorded_end=pl.when(~pl.col("state").is_in([*_ONGOING, *_WAITING])).then("end"),
            recorded_nodes=pl.when(pl.col("start").is_not_null()).then("nodelist"),
            recorded_priority="priority",
        )

    def begin(self, jobs: pl.DataFrame) -> pl.Series:
        """Seconds since 1970 of options such as ``--begin=now+2hours`` and ``--begin=2026-03-02T00:24:35``."""
        text = pl.col("of_line_begin")
        units = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
        unit = text.str.extract(r"^now\+\d+([a-z])", 1).replace_strict(units, default=1.0, return_dtype=pl.Float64)
        later = pl.col("submit") + text.str.extract(r"^now\+(\d+)", 1).cast(pl.Float64, strict=False) * unit
        dates = pl.Series("date", read_times(jobs["of_line_begin"], self.site.time_zone).first, nan_to_null=True)
        return jobs.with_columns(dates).select(pl.coalesce(later, "date")).to_series()

    def known_nodes(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """Takes away malformed lists of nodes, and notes the jobs that ran on nodes that the site does not have."""
        known, strange, malformed = {name for name, _ in nodes_of(self.site)}, [], []
        for text in jobs.filter(pl.col("start").is_not_null())["nodelist"].drop_nulls().unique().to_list():
            try:
                if text not in known and not known.issuperset(expand_nodes(text)):
                    strange.append(text)
            except ValueError:
                malformed.append(text)
        self.change(jobs, jobs["nodelist"].is_in(strange), "nodes that slurm.conf does not have: --from takes others")
        self.change(jobs, jobs["nodelist"].is_in(malformed), "NodeList that is no list of nodes: taken as unknown")
        return jobs.with_columns(pl.when(~pl.col("nodelist").is_in(malformed)).then("nodelist"))

    def without_unknown(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """Takes away reservations, features, licences and kinds of GPUs that the site does not have."""
        known = set(self.site.reservations)
        features = {name for _, kind in nodes_of(self.site) for name in kind.features}
        kinds = {name for kind in self.site.nodes.values() for name in kind.gres}
        licenses = set(self.site.licenses)

        def is_number(text: str) -> bool:
            """Whether a text is a number of GPUs of the site."""
            found = re.fullmatch(r"(?:([\w.-]+):)?\d{1,6}", text)
            return found is not None and (found[1] is None or f"gpu:{found[1]}" in kinds)

        for column, fits, what in (
            ("reservation", lambda text: text in known, "reservations that are not in reservations.txt"),
            (
                "constraints",
                lambda text: set(features_in(text)) <= features,
                "constraints with features that slurm.conf does not have",
            ),
            ("constraints", is_simulated, OTHERS),
            ("licenses", lambda text: set(counts(text)) <= licenses, "licences that slurm.conf does not have"),
            (
                "gres",
                lambda text: {one.rpartition(":")[0] for one in text.split(",")} <= {*kinds, "gpu"},
                "generic resources that slurm.conf does not have",
            ),
            ("of_line_gpus_asked", is_number, "GPUs that slurm.conf does not have"),
            ("of_line_gpus_per_task", is_number, "GPUs that slurm.conf does not have"),
        ):
            values = [text for text in jobs[column].unique() if text and not fits(text)]
            if values:
                self.change(jobs, jobs[column].is_in(values), f"{what}: not asked for")
                jobs = jobs.with_columns(pl.when(~pl.col(column).is_in(values)).then(column))
        return jobs
