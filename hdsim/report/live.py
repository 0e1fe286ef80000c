"""Pages of replays and sweeps that are under way, from a server on this machine."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep
from typing import Any, Self

import numpy as np

from hdsim.errors import ConfigError
from hdsim.report.charts import Axis, Line, Lines, Panel, View, duration
from hdsim.report.colors import BLUE, GREEN, ORANGE
from hdsim.report.page import page, script, tiles
from hdsim.report.tables import table
from hdsim.results.moment import Moment

#: Most moments of a curve; beyond, every second one is dropped.
_MOMENTS = 2_000
#: Seconds since its last request after which a page counts as closed, and the longest wait for one at the end.
_OPEN, _WAIT = 3.0, 10.0
#: Seconds after which a connection without a request is closed.
_IDLE = 5.0
#: This machine, also by a tunnel from another port.
_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.IGNORECASE)
#: Attribute of a moment, title and colour of each curve of jobs.
_CURVES = {
    "queue": ("waiting", "Queue length", ORANGE),
    "running": ("running", "Running jobs", BLUE),
    "progress": ("done", "Jobs ended", GREEN),
}


class LivePage:
    """A page of replays, one after the other; as a context, it serves until a browser has the last state.

    Args:
        port: Port on the loopback interface, 0 for a free one.

    Attributes:
        url: Address of the page.

    Raises:
        ConfigError: The port cannot be used.
    """

    def __init__(self, port: int = 0) -> None:
        self._lock = threading.Lock()
        self._title, self._jobs, self._cores = "", 0, 1
        self._moments: list[Moment] = []
        self._last, self._status, self._report = Moment(0.0, 0, 0, 0, 0.0), "starting", ""
        self._begin, self._ended, self._stride, self._number = monotonic(), 0.0, 1, 0
        # Time of the last request, and whether a page has the last state and the report.
        self._asked, self._told = -_WAIT, False
        live = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _IDLE

            def do_GET(self) -> None:
                # Another name is that of a site whose page asks through the browser (DNS rebinding).
                known = _HOST.fullmatch(self.headers.get("Host", ""))
                kind, text, last = live._answer(self.path) if known else ("", "expected the host localhost", False)
                body = text.encode()
                missing = HTTPStatus.NOT_FOUND if known else HTTPStatus.MISDIRECTED_REQUEST
                self.send_response(HTTPStatus.OK if kind else missing)
                self.send_header("Content-Type", f"{kind or 'text/plain'}; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                live._told |= last

            def log_message(self, *_: Any) -> None:
                """Requests leave no lines on the terminal."""

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise ConfigError(
                f"port {port}: {error.strerror}; without a port, a free one is taken", where="--live"
            ) from None
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def begin(self, title: str, jobs: int, cores: int) -> None:
        """Begins with a replay."""
        with self._lock:
            self._title, self._jobs, self._cores = title, jobs, max(cores, 1)
            self._last = Moment(0.0, 0, 0, 0, 0.0)
            self._moments, self._stride, self._number = [self._last], 1, 0
            self._begin, self._status = monotonic(), "running"

    def watch(self, moment: Moment) -> None:
        """Takes a moment of the replay."""
        with self._lock:
            self._last = moment
            if self._number % self._stride == 0:
                self._moments.append(moment)
            self._number += 1
            if len(self._moments) > _MOMENTS:
                del self._moments[1::2]
                self._stride *= 2

    def end(self, status: str, report: str = "") -> None:
        """Ends a replay with a word such as ``finished``, and the HTML of its report if it has one."""
        with self._lock:
            self._status, self._report, self._ended, self._told = status, report, monotonic(), False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._status in ("starting", "running"):
            self.end("stopped")
        limit = monotonic() + _WAIT
        while not self._told and monotonic() < min(limit, self._asked + _OPEN):
            sleep(0.05)
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str) -> tuple[str, str, bool]:
        """Type and text of an answer, no type for an unknown path, and whether it is the last one of a page."""
        with self._lock:
            self._asked, ended = monotonic(), self._status not in ("starting", "running")
            if path == "/":
                return "text/html", self._page(), False
            if path == "/state":
                return (
                    "application/json",
                    json.dumps(self._state(ended=ended), default=np.ndarray.tolist),
                    ended and not self._report,
                )
            if path == "/report" and self._report:
                return "text/html", self._report, True
        return "", "not found", False

    def _page(self) -> str:
        panels = [Panel(title, "", (View(key, title, chart),)) for key, (title, chart) in self._charts().items()]
        upper = f"<h1><span id='title'>{escape(self._title)}</span> <small id='status'></small></h1>"
        return page("hdsim", {}, upper, f"<div id='tiles'></div><script>{script('live.js')}</script>", panels)

    def _state(self, *, ended: bool) -> dict[str, Any]:
        seconds = (self._ended if ended else monotonic()) - self._begin
        charts = {key: asdict(chart) for key, (_, chart) in self._charts().items()}
        return {
            "title": self._title,
            "status": self._status,
            "ended": ended,
            "report": bool(self._report),
            "tiles": self._numbers(seconds, ended=ended),
            "charts": charts,
        }

    def _numbers(self, seconds: float, *, ended: bool) -> str:
        """HTML above the charts, `seconds` after the begin."""
        last = self._last
        left = seconds * (self._jobs - last.done) / last.done if last.done else float("nan")
        pace = f", {last.done / seconds:,.0f} a second" if seconds > 0 else ""
        return tiles(
            {
                f"of {self._jobs:,} jobs ended{pace}": f"{last.done:,}",
                "remaining": "–" if ended else duration(round(left) if last.done else left),
                "since the begin": duration(round(seconds)),
                "simulated": duration(last.now),
                "jobs waiting": f"{last.waiting:,}",
                "jobs running": f"{last.running:,}",
                "utilization": f"{100 * last.cores / self._cores:.1f} %",
            }
        )

    def _charts(self) -> Mapping[str, tuple[str, Lines]]:
        moments = [*self._moments, self._last]
        times = np.array([moment.now for moment in moments])
        x = Axis("Time since first submission", "time", 0.0, float(times[-1]) or 1.0)

        def chart(title: str, y: Axis, values: list[float], color: str) -> tuple[str, Lines]:
            return title, Lines(x, y, (Line(title, times, np.array(values, float), color, filled=True),))

        busy = [100 * moment.cores / self._cores for moment in moments]
        return {"utilization": chart("Utilization", Axis("Busy cores (%)", high=100), busy, BLUE)} | {
            key: chart(title, Axis("Jobs", "count"), [getattr(moment, name) for moment in moments], color)
            for key, (name, title, color) in _CURVES.items()
        }


class SweepPage(LivePage):
    """A page of a sweep: numbers, and tables of what has finished; see :class:`LivePage`."""

    def __init__(self, port: int = 0) -> None:
        self._tiles: Mapping[str, str] = {}
        self._tables: Sequence[Sequence[Sequence[str]]] = ()
        super().__init__(port)

    def show(self, numbers: Mapping[str, str], tables: Sequence[Sequence[Sequence[str]]]) -> None:
        """Takes the present state: values by label, and the rows of tables, the first of each being its head.

        The last cell of a shorter row, such as an error, takes the rest of the columns.
        """
        with self._lock:
            self._tiles, self._tables = numbers, tables

    def _numbers(self, seconds: float, *, ended: bool) -> str:
        shown = tiles({**self._tiles, "since the begin": duration(round(seconds))})
        for names, *rows in self._tables:
            head = (f"<th scope='col'>{escape(name.replace('_', ' '))}</th>" for name in names)
            cells = (
                [
                    f"<th scope='row'>{escape(first)}</th>",
                    *(f"<td>{escape(cell)}</td>" for cell in middle),
                    f"<td colspan='{len(names) - len(middle) - 1}'>{escape(last)}</td>",
                ]
                for first, *middle, last in rows
            )
            shown += f"<div class='scroll'>{table(head, cells)}</div>"
        return shown

    def _charts(self) -> Mapping[str, tuple[str, Lines]]:
        return {}
