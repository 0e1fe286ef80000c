"""The life of a run directory: start, then finish, interrupt or fail."""

from __future__ import annotations

import logging
import signal as signals
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdsim.errors import ConfigError, HdsimError, PluginError
from hdsim.results.own_metrics import described, evaluate, load_metrics
from hdsim.results.run_directory.failure import Failure
from hdsim.results.run_directory.formats import plain, read_json, write_json
from hdsim.results.run_directory.inputs import (
    changed_inputs,
    digest,
    file_digest,
    imported_files,
    input_files,
    inputs,
)
from hdsim.results.run_directory.lock import Lock
from hdsim.results.run_directory.manifest import (
    MANIFEST,
    git_commit,
    machine,
    other_software,
    read_manifest,
    told_damage,
    told_status,
    versions,
)
from hdsim.results.run_directory.reader import read_metrics
from hdsim.results.run_directory.writers import write_results
from hdsim.util.files import synchronize

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

log = logging.getLogger(__name__)

#: Further files of trainings, sweeps and pods.
_FURTHER = ("progress.csv", "evaluation.csv", "checkpoints", "pods.csv", "runs.csv")
#: Those of trainings that are as they were written unless they are damaged, beside the files of results.
_OF_TRAININGS = ("evaluation.csv", "checkpoints/best.*", "checkpoints/final.*")
#: Files of results, equal byte for byte in equal runs.
OUTPUTS = (
    "jobs.csv",
    "schedule.csv",
    "machine_states.csv",
    "metrics.json",
    "platform.json",
    "oversubscription.csv",
    "outages.csv",
    "node_states.csv",
    "caps.csv",
    "interruptions.csv",
    "failed_starts.csv",
    "allocations.csv",
    "job_details.csv",
    "contention.csv",
    "supersteps.csv",
    "profile.csv",
    "gangs.csv",
    "barriers.csv",
    "faults.csv",
    "accounting.csv",
    "costs_by_hour.csv",
    "costs_by_job.csv",
    "costs_by_owner.csv",
)


def check_place(path: Path, config: Mapping[str, Any]) -> None:
    """Checks that a run in a directory, which need not exist, replaces no file that is no result of an earlier run.

    Raises:
        ConfigError: An input of the run is in the place of a result, or other files are, without a manifest.
    """
    if not path.is_dir():
        return
    for kind, file in input_files(config):
        if file.name in OUTPUTS and file.resolve().parent == path.resolve():
            raise ConfigError(
                f"expected another directory than that of {kind}={file}, which the results would replace",
                where=str(path),
            )
    if (path / MANIFEST).exists():
        return
    others = [name for name in (*OUTPUTS, *_FURTHER) if (path / name).exists()]
    if others:
        some = ", ".join(others[:3]) + (f" and {len(others) - 3} others" if len(others) > 3 else "")
        raise ConfigError(
            f"expected an empty directory or one of an earlier run (with {MANIFEST}), got one with {some}, which the "
            "results would replace",
            where=str(path),
        )


class RunDirectory:
    """Writes a run directory: `start`, then one of `finish`, `interrupt` and `fail`.

    From `start` to the end of the run no other process can start one in the same directory.

    Args:
        path: The directory; it is made if need be, and results of an earlier run in it are removed by `start`.
        write: Writes a result to the directory and returns facts for the manifest; by default that of a replay.
    """

    def __init__(self, path: str | Path, write: Callable[[Path, Any], Mapping[str, Any]] | None = None) -> None:
        self.path = Path(path)
        self._write = write or write_results
        self._manifest: dict[str, Any] = {}
        self._begin = datetime.now(UTC)

    def start(
        self,
        config: Mapping[str, Any],
        platform: Platform | None = None,
        workload: Workload | None = None,
        *,
        kind: str | None = None,
    ) -> None:
        """Makes the directory and the manifest of a run that has just begun.

        Platform and workload are None when the run fails before they are read. `kind` is the subcommand of ``hdsim``
        that runs such configurations, such as ``"bsp share"``.

        Raises:
            ConfigError: The directory cannot be made, has files in the place of results, or another process uses it.
        """
        check_place(self.path, config)
        self._own = load_metrics(config.get("metrics"))
        self._lock = Lock.of(self.path)
        for name in OUTPUTS:
            (self.path / name).unlink(missing_ok=True)
        self._begin = datetime.now(UTC)
        self._manifest = {
            "status": "running",
            "process": self._lock.owner,
            "start": self._begin.isoformat(timespec="milliseconds"),
            "seeds": {"seed": config.get("seed")},
            "config": plain(config),
            "inputs": list(inputs(config, platform, workload)),
            "platform": platform and _entry(platform),
            # A workload without jobs is none that is missing.
            "workload": None
            if workload is None
            else {"name": workload.name, "jobs": len(workload), "sha256": digest(workload), **_begin_of(workload)},
            "git_commit": git_commit(),
            "command": sys.argv,
            "kind": kind,
            "own_metrics": described(self._own),
            "working_directory": str(Path.cwd()),
            "machine": machine(),
        }
        self._write_manifest()
        if platform is not None:  # after the manifest: a directory with results and without a manifest is none of a run
            self._write_platform(platform)

    def finish(self, result: Any, **facts: Any) -> None:
        """Writes all results; of an interrupted replay, those of the jobs that were done by then.

        The result is a replay, or what `write` takes; the facts are further entries of the manifest.
        """
        faults = self._results(result)
        self._manifest |= facts
        if getattr(result, "interrupted", False):
            self._end("interrupted", faults)
        elif faults:
            raise PluginError.many(faults)
        else:
            self._end("finished")

    def interrupt(self, result: Any, signal: int) -> None:
        """Writes the results of the jobs that had ended when a signal, given by its number, arrived."""
        self._end("interrupted", self._results(result), signal=signals.Signals(signal).name)

    def fail(self, error: BaseException) -> None:
        """Keeps in the manifest why there are no results; also the results of a replay until then.

        A KeyboardInterrupt is an interruption and no failure.
        """
        faults = self._results(result) if (result := getattr(error, "result", None)) is not None else []
        failure = Failure.of(error)
        if isinstance(error, KeyboardInterrupt):
            self._end("interrupted", faults, error=failure.message)
        elif isinstance(error, HdsimError):
            self._end("failed", faults, error=str(error), failure=asdict(failure))
        else:
            told = "".join(traceback.format_exception(error))
            text = f"{failure.kind}: {failure.message}"
            self._end("failed", faults, error=text, failure=asdict(failure), traceback=told)

    def outdated(self, config: Mapping[str, Any]) -> str | None:
        """Returns None if the directory holds a finished run of a configuration, else the reason in words.

        The run must have the same configuration, the same digest of each input, and the same versions of hdsim and of
        the packages that the configuration names. Without any run the text is empty.
        """
        try:
            manifest = read_manifest(self.path)
        except ConfigError:
            return ""
        if manifest["status"] != "finished":
            return told_status(manifest)
        if other := difference(manifest, config):
            return f"finished with {other}"
        return told_damage(self.path, manifest)

    def metrics(self) -> dict[str, float]:
        """Reads the metrics of the run in the directory.

        Raises:
            ConfigError: There are none.
        """
        return read_metrics(self.path, read_manifest(self.path))

    def _results(self, result: Any) -> list[PluginError]:
        """Writes results and the metrics of the user; returns the failures of the latter."""
        platform: Platform | None = getattr(result, "platform", None)
        if platform is not None and platform.n_nodes != (self._manifest["platform"] or {}).get("nodes"):
            # Nodes have come in mid-run.
            self._manifest["platform"] = _entry(platform)
            self._write_platform(platform)
        self._manifest |= self._write(self.path, result)
        faults: list[PluginError] = []
        if self._own:  # a function of a user is called when all else is on the disk
            values, faults = evaluate(self._own, result)
            write_json(self.path / "metrics.json", read_json(self.path / "metrics.json") | values)
        # After a power cut results may be missing behind a manifest that is there: it has their digests.
        kept = [path for name in (*OUTPUTS, *_OF_TRAININGS) for path in sorted(self.path.glob(name)) if path.is_file()]
        synchronize(kept)
        self._manifest["results"] = {str(path.relative_to(self.path)): file_digest(path) for path in kept}
        return faults

    def _write_platform(self, platform: Platform) -> None:
        write_json(self.path / "platform.json", platform.to_dict())

    def _end(self, status: str, faults: Sequence[PluginError] = (), **more: Any) -> None:
        for fault in faults:
            log.warning("%s", fault)
        self._manifest |= {"status": status, "duration": (datetime.now(UTC) - self._begin).total_seconds(), **more}
        self._write_manifest()
        self._lock.release()

    def _write_manifest(self) -> None:
        # At the end more modules have been imported than at the start.
        inputs = [*self._manifest["inputs"], *imported_files()]
        write_json(self.path / MANIFEST, self._manifest | {"inputs": inputs, "versions": versions()})


def difference(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """Words for the first difference between a run and one of a configuration now: settings, inputs or software."""
    if manifest["config"] != plain(config):
        return "another configuration"
    if changed := changed_inputs(manifest.get("inputs") or [], config):
        return f"another content of {', '.join(map(str, changed))}"
    return other_software(manifest)


def _entry(platform: Platform) -> dict[str, Any]:
    """The manifest's entry of a platform."""
    return {"name": platform.name, "cores": platform.n_cores, "nodes": platform.n_nodes}


def _begin_of(workload: Workload) -> dict[str, float]:
    """When the first job was submitted, in seconds on the clock of the workload."""
    return {"begin": float(workload.original_submission_time[0])} if len(workload) else {}
