"""Metrics for Prometheus, and health, over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Protocol

from hdsim.errors import ConfigError, install_hint
from hdsim.kubernetes.connection import Connection

log = logging.getLogger(__name__)

#: Upper bounds of latencies in seconds.
_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Source(Protocol):
    """Origin of the metrics."""

    connection: Connection

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        """Yields name, description and value of what rises and falls."""

    def counters(self) -> Iterable[tuple[str, str, float]]:
        """Yields name, description and value of what only rises."""

    def fault(self) -> str:
        """Returns why the scheduler does not work, empty if it does."""

    def unready(self) -> str:
        """Returns why neither pods are bound nor the lease is waited for, empty if one of them is."""


class Monitoring:
    """A server of ``/metrics``, ``/healthz`` and ``/readyz``; its coroutines run in the thread of the connection.

    A port of 0 is a free one.

    Raises:
        ConfigError: Prometheus's client library is missing.
    """

    def __init__(self, source: Source, host: str, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, Histogram
        except ImportError as error:
            raise ConfigError(f"{error}{install_hint('prometheus_client')}", where="backend.metrics_port") from None
        self._source, self._host, self._port = source, host, port
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._latencies = {
            name: Histogram(f"hdsim_{name}_latency_seconds", text, registry=self._registry, buckets=_BOUNDS)
            for name, text in (
                ("decision", "Seconds from the arrival of a pod to its decision"),
                ("binding", "Seconds from a decision to the answer of the API server"),
            )
        }

    def observe(self, name: str, seconds: float) -> None:
        """Takes note of a latency, ``decision`` or ``binding``."""
        self._latencies[name].observe(seconds)

    async def start(self) -> None:
        """Begins to listen; ConfigError if the address cannot be used."""
        from aiohttp import web

        pages = web.Application()
        pages.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        self._runner = web.AppRunner(pages, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {self._host}:{self._port}: {error.strerror}", where="backend.metrics_port"
            ) from None
        self.address = "http://{}:{}".format(*self._runner.addresses[0][:2])
        log.warning("metrics at %s/metrics", self.address)

    async def stop(self) -> None:
        """Stops listening."""
        await self._runner.cleanup()

    def collect(self) -> Iterable[Any]:
        """Yields the metrics; called by Prometheus's client library."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, text, value in self._source.gauges():
            yield GaugeMetricFamily(f"hdsim_{name}", text, value)
        for name, text, value in self._source.counters():
            yield CounterMetricFamily(f"hdsim_{name}", text, value)
        calls = CounterMetricFamily("hdsim_api_calls", "Calls of the API server", labels=["verb", "resource"])
        for call, number in list(self._source.connection.calls.items()):
            calls.add_metric([call.verb, call.resource], number)
        yield calls

    async def _metrics(self, _: Any) -> Any:
        from aiohttp import web
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _: Any) -> Any:
        return _health(self._source.fault())

    async def _readyz(self, _: Any) -> Any:
        return _health(self._source.unready())


def _health(problem: str) -> Any:
    from aiohttp import web

    return web.Response(text=problem or "ok", status=503 if problem else 200)
