"""A ZooKeeper server for one run, on the loopback interface."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Self

from hdsim.errors import ConfigError
from hdsim.util.process import Process

log = logging.getLogger(__name__)

_HOST = "127.0.0.1"
_SCRIPT = "zkServer.sh"
#: Folder of the script in Debian's package.
_DEBIAN = "/usr/share/zookeeper/bin"
#: A server for one gang: little memory, a quick start, no wait for the disk, since its data end with the run.
_JVM = (
    "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Dzookeeper.forceSync=no "
    "-Dzookeeper.admin.enableServer=false -Dzookeeper.root.logger=WARN,CONSOLE"
)
#: Number of starts in a run, for one that ends at once.
_STARTS = 10
_SETTINGS = """\
dataDir={folder}
clientPort={port}
clientPortAddress={host}
tickTime=500
minSessionTimeout=500
maxSessionTimeout=600000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=envi
"""


class Server:
    """A server that ends with the run, and is started again on its data when it ends before.

    The folder of its data is emptied.

    Raises:
        ConfigError: ZooKeeper is not installed.
    """

    def __init__(self, folder: Path, log_file: Path) -> None:
        script = shutil.which(_SCRIPT, path=os.pathsep.join([os.environ.get("PATH", os.defpath), _DEBIAN]))
        if script is None:
            raise ConfigError(
                f"expected {_SCRIPT} on PATH or in {_DEBIAN} to start ZooKeeper, found none: apt-get install "
                "zookeeper, or zookeeper=host:port of a server that runs",
                where="zookeeper",
            )
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with socket.socket() as free:
            free.bind((_HOST, 0))
            port = free.getsockname()[1]
        self.address = f"{_HOST}:{port}"  # ``host:port``
        self._folder, self._log_file = folder, log_file
        self._closing, self._changed = False, threading.Event()
        settings = folder / "zoo.cfg"
        settings.write_text(_SETTINGS.format(folder=folder, port=port, host=_HOST))
        self._command = [script, "start-foreground", str(settings)]
        self._environment = {
            **os.environ,
            "JMXDISABLE": "true",
            "SERVER_JVMFLAGS": _JVM,
            "ZOO_LOG_DIR": str(folder),
        }
        # The kernel ends a child with the thread that started it, so one thread starts them all.
        self._thread = threading.Thread(target=self._keep, name="zookeeper")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._changed.set()
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _keep(self) -> None:
        for _ in range(_STARTS):
            self._changed.clear()
            with Process(
                self._command,
                self._log_file,
                "ZooKeeper",
                environment=self._environment,
                ended=self._changed.set,
            ) as process:
                while not (self._closing or (fault := process.fault())):
                    self._changed.wait()
                    self._changed.clear()
            if self._closing:
                return
            log.warning("ZooKeeper %s; it is started again", fault)
