"""The journal of a real run: what is finished, durably."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hdsim.errors import ConfigError
from hdsim.util.files import synchronize


class Journal:
    """A file with a JSON object a line: starts of the controller, finished supersteps, faults.

    A line is on the disk when `append` returns. A line that a killed process has begun is dropped.

    A resumed journal continues the file, any other begins it anew.

    Raises:
        ConfigError: The file is no journal.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._file = path.open("a+b" if resume else "w+b")
        entries = self._entries(path)
        #: A ``start`` of each controller: its ``time`` (seconds since the epoch) and its ``root`` in ZooKeeper.
        self.starts = [entry for entry in entries if "root" in entry]
        self.faults = [entry for entry in entries if "fault" in entry]  # causes of interrupted attempts of supersteps
        self.supersteps = [entry for entry in entries if "tasks" in entry]  # the finished ones in their order
        if [entry["superstep"] for entry in self.supersteps] != list(range(len(self.supersteps))):
            raise ConfigError("expected the supersteps from 0 on, each once and in order", where=str(path))
        synchronize([path])

    def start(self, **entry: Any) -> None:
        """Appends the start of a controller."""
        self._append(self.starts, entry)

    def finish(self, **entry: Any) -> None:
        """Appends a finished superstep."""
        self._append(self.supersteps, entry)

    def fail(self, **entry: Any) -> None:
        """Appends a fault."""
        self._append(self.faults, entry)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _append(self, entries: list[dict[str, Any]], entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        entries.append(entry)

    def _entries(self, path: Path) -> list[dict[str, Any]]:
        self._file.seek(0)
        *lines, begun = self._file.read().split(b"\n")
        if begun:
            self._file.truncate(self._file.seek(-len(begun), os.SEEK_END))
        entries = []
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            if not isinstance(entry, Mapping):
                raise ConfigError("expected a JSON object", where=f"{path}:{number}")
            entries.append(dict(entry))
        return entries
