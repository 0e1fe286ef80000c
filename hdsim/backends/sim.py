"""Backend ``sim``: the discrete-event simulation runs the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hdsim.backends.base import Backend, Capabilities
from hdsim.results.result import Result
from hdsim.simulation.setup import ReplaySetup
from hdsim.simulation.simulation import simulate
from hdsim.util.rules import FLAG, require


class Sim(Backend):
    """The simulation.

    Args:
        kill_at_walltime: Kill jobs at their walltime.
        batch_events: One scheduling pass per instant; otherwise one per event, arrivals first.
    """

    capabilities = Capabilities(
        contention=None,
        network=None,
        failures=True,
        power=True,
        gpus=True,
        supersteps=True,
        gangs=True,
        requeues=True,
        suspends=True,
        resizes=True,
        sets_speed=True,
        sets_frequency=True,
        checked=True,
    )

    def __init__(self, kill_at_walltime: bool = False, batch_events: bool = True) -> None:
        self.episodes: Mapping[str, Any] = {"kill_at_walltime": kill_at_walltime, "batch_events": batch_events}
        require("backend", dict.fromkeys(self.episodes, FLAG), self.episodes)

    def run(
        self, platform: Any, workload: Any, agent: Any, directory: str | Path = ".", **options: Any
    ) -> tuple[Result, dict[str, Any]]:
        """See :meth:`Backend.run`; the simulation has faster modes for some replays."""
        result = simulate(platform, workload, agent, **options, **self.episodes)
        return result, {"engine": result.engine}

    def open(self, setup: ReplaySetup, directory: Path, stop: Sequence[int]) -> None:
        self._engine = setup.engine(**self.episodes)
        self.advance, self.apply = self._engine.advance, self._engine.apply  # type: ignore[method-assign]
