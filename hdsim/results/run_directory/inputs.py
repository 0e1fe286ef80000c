"""What a run reads: files with their digests, and the jobs that are replayed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hdsim.platform.model import Platform
    from hdsim.workload.model import Workload

#: Columns of a workload that decide what is replayed.
_DIGESTED = (
    "submission_time", "runtime", "requested_time", "walltime", "requested_cores", "memory", "memory_bandwidth",
    "fixed_duration", "return_code",
)  # fmt: skip


def inputs(config: Mapping[str, Any], platform: Platform | None, workload: Workload | None) -> Iterator[dict[str, str]]:
    """Every file that a run reads, with its digest."""
    if platform and platform.sha256:
        yield {"kind": "platform", "path": platform.source, "sha256": platform.sha256}
    if platform:
        for path, digest in platform.type_files.items():
            yield {"kind": "platform types", "path": path, "sha256": digest}
    if workload and workload.sha256:
        yield {"kind": "workload", "path": workload.source, "sha256": workload.sha256}
    for kind, group, key in (
        ("agent", "agent", "path"),
        ("contention", "contention", "path"),
        ("network", "network", "path"),
        ("failures", "failures", "path"),
        ("outages", "failures", "file"),
    ):
        part = config.get(group)
        own = part.get(key) if isinstance(part, Mapping) else None
        if own and Path(own).is_file():
            yield {"kind": kind, "path": str(own), "sha256": hashlib.sha256(Path(own).read_bytes()).hexdigest()}


def digest(workload: Workload) -> str:
    """sha256 of what is replayed: equal for equal jobs, wherever they came from."""
    digest = hashlib.sha256()
    for name in (*_DIGESTED, "requested_gpus") if workload.asks_for_gpus else _DIGESTED:
        digest.update(getattr(workload, name).tobytes())
    if workload.has_programs:
        for row, program in enumerate(workload.program.tolist()):
            if program is not None:
                digest.update(b"%d:%s" % (row, program.fingerprint))
    return digest.hexdigest()
