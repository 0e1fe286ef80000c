"""Connection to a cluster of Ray, the extra ``ray``."""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import time
from typing import Any

from hdsim.errors import BackendError, ConfigError, install_hint

#: Bytes of shared memory of a node that `connect` starts; larger objects lie in files.
_OBJECT_STORE = 100_000_000
#: Seconds until an address counts as unreachable, and until a cluster that names no node with processors has none.
_PATIENCE = 10.0


def connect(address: str | None, cpus: int, where: str) -> bool:
    """Connects this process to a cluster, unless it is connected; returns whether, to call ``ray.shutdown`` then.

    The address is ``HOST:PORT``, ``auto`` for the cluster that this machine belongs to, or None to start one with some
    processors: a node on the loopback interface without dashboard and usage statistics, which ends with this process.

    Raises:
        ConfigError: Ray is not installed, or the address has another form.
        BackendError: No cluster answers.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(f"expected the package ray{install_hint('ray')}", where=where)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Announced behaviour of versions to come, without which Ray prints a warning.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # Loopback only; Ray reads it on import.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        options |= {"address": "local", "num_cpus": cpus, "include_dashboard": False}
        options["object_store_memory"] = _OBJECT_STORE
    elif address != "auto":
        _check_reachable(address, where)
    import ray

    if ray.is_initialized():
        return False
    # Ray prints the last lines of a lost node's log to standard output, and has no setting for it.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, OSError, ValueError, TimeoutError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BackendError(f"expected a Ray cluster at {address or 'this machine'}: {reason}", where=where) from None
    return True


def nodes_alive() -> dict[str, float]:
    """Processors of each node of the cluster by its name, of those that have any; BackendError without one."""
    import ray

    deadline = time.monotonic() + _PATIENCE
    # Ray's answer is empty if the head of the cluster gives none, as on a machine under load.
    while not (nodes := _nodes_with_processors(ray.nodes())) and time.monotonic() < deadline:
        time.sleep(0.5)
    if not nodes:
        known = [node["Alive"] for node in ray.nodes()]
        told = f"it names {len(known)} nodes, of which {sum(known)} are alive"
        raise BackendError(f"expected a node with processors in the Ray cluster, none is left: {told}")
    return nodes


def _nodes_with_processors(nodes: list[dict[str, Any]]) -> dict[str, float]:
    return {node["NodeID"]: cpus for node in nodes if node["Alive"] and (cpus := node["Resources"].get("CPU", 0.0))}


def _check_reachable(address: str, where: str) -> None:
    """Checks that a port is open; Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ConfigError(f"expected null, auto or HOST:PORT, got '{address}'", where=where)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BackendError(f"expected a Ray cluster at {address}: {reason}", where=where) from None
