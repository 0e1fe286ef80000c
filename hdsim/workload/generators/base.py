"""Models that generate jobs, by name; further ones come from files and installed packages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hdsim.errors import ConfigError, not_one_of
from hdsim.util.plugins import NamedType
from hdsim.workload.model import COLUMNS, Workload
from hdsim.workload.raw import RawJobs

if TYPE_CHECKING:
    from hdsim.platform.model import Platform

#: Sets of traces without common seeds.
SPLITS = ("train", "validation", "test")
#: Columns of a trace, after which come those of which a generator has more than defaults.
_TRACE_COLUMNS = (
    "job_id",
    "submission_time",
    "runtime",
    "requested_time",
    "requested_cores",
    "memory",
    "queue",
    "status",
)


def require_split(split: str, where: str = "workload.generate.split") -> str:
    """Returns one of :data:`SPLITS`.

    Args:
        split: Its name.
        where: Setting that it was given in.

    Raises:
        ConfigError: There is none of this name.
    """
    if split not in SPLITS:
        raise ConfigError(not_one_of(split, SPLITS), where=where)
    return split


def seed_in(split: str, seed: int) -> np.random.SeedSequence:
    """Returns the seed of a trace; traces of other splits have others."""
    return np.random.SeedSequence(seed, spawn_key=(SPLITS.index(split),))


class Generator(ABC):
    """A model that generates jobs; the constructor takes its settings."""

    @abstractmethod
    def generate(self, platform: Platform | None, seed: int) -> Workload | tuple[RawJobs, str]:
        """Draws jobs; equal settings, platforms and seeds give equal jobs.

        Args:
            platform: The platform of the replay, None if it is not known.
            seed: Seed of the draws.

        Returns:
            The jobs; or jobs as in a file, with the name of their source.
        """


GENERATORS = NamedType(
    "generator",
    Generator,
    "hdsim.workload.generators.Generator",
    "workload.generate.model",
    {
        "lublin": "hdsim.workload.generators.families.Lublin",
        "family": "hdsim.workload.generators.families.Family",
        "kind": "hdsim.workload.generators.kinds.Kind",
        "like": "hdsim.workload.generators.like.Like",
        "deployments": "hdsim.workload.generators.deployments.Deployments",
    },
)


def is_generator(source: Any) -> bool:
    """Whether a text in place of a trace is the name of a generator of hdsim, or a Python file with one."""
    return isinstance(source, str) and (source in GENERATORS.bundled or source.endswith(".py"))


def generated(model: Any, settings: dict[str, Any], platform: Platform | None, seed: int) -> tuple[RawJobs, str]:
    """Generates jobs as a trace file of them states them; returns them and what to call them.

    Raises:
        ConfigError: There is no such generator, it does not take the settings, or it returns no jobs.
    """
    found = GENERATORS.find(model)
    drawn = GENERATORS.construct(found, model, **settings).generate(platform, seed)
    if isinstance(drawn, tuple) and len(drawn) == 2 and isinstance(drawn[0], RawJobs):
        return drawn
    if not isinstance(drawn, Workload):
        told = f"expected a hdsim.Workload from {found.__name__}.generate, got {type(drawn).__name__}"
        raise ConfigError(told, where=GENERATORS.key)
    source = drawn.source if model in GENERATORS.bundled else f"<{model} seed {seed}>"
    columns = {name: getattr(drawn, name) for name in _TRACE_COLUMNS}
    plain = Workload.from_columns(**columns)
    others = (name for name in COLUMNS if name not in (*columns, "original_submission_time"))
    more = {name: getattr(drawn, name) for name in others}
    columns |= {name: column for name, column in more.items() if not np.array_equal(column, getattr(plain, name))}
    where = f"{source}: job"
    raw = RawJobs(columns, lambda row, column: f"{where} {row + 1}: {column}", drawn.header, names=drawn.names)
    return replace(raw, further=drawn.further), source
