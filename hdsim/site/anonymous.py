"""Names of a site that are taken away: users become u1, u2 ..., accounts a1, groups g1, jobs j1, reservations r1."""

from __future__ import annotations

from typing import Any

import polars as pl

from hdsim.site.model import Site, site_of

#: Slurm's own names.
_KEPT = {"", "root"}


class Anonymizer:
    """New names, the same for the same name wherever it stands."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, str]] = {}

    def name(self, letter: str, name: str) -> str:
        """Returns the new name of a user (u), account (a), group (g), job (j) or reservation (r)."""
        known = self._names.setdefault(letter, {})
        bare = name.lstrip("-+")
        if bare in _KEPT:
            return name
        return name[: len(name) - len(bare)] + known.setdefault(bare, f"{letter}{len(known) + 1}")

    def site(self, site: Site) -> Site:
        """Returns a site with new names."""

        def listed(letter: str, names: list[str]) -> list[str]:
            return [self.name(letter, one) for one in names]

        document: dict[str, Any] = site.model_dump()
        for one in document["associations"]:
            one |= {key: self.name("a", one[key]) for key in ("account", "parent")}
            one["user"] = self.name("u", one["user"])
        for one in document["partitions"].values():
            one["allow_accounts"] = one["allow_accounts"] and listed("a", one["allow_accounts"])
            one["deny_accounts"] = listed("a", one["deny_accounts"])
            one["allow_groups"] = one["allow_groups"] and listed("g", one["allow_groups"])
        reservations = document["reservations"]
        for one in reservations.values():
            one |= {"users": listed("u", one["users"]), "accounts": listed("a", one["accounts"])}
        document["reservations"] = {self.name("r", name): one for name, one in reservations.items()}
        return site_of(document, site.name)

    def jobs(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """Returns jobs with new names."""
        letters = {"user": "u", "group": "a", "executable": "j", "reservation": "r"}
        for column, letter in letters.items():
            names = jobs[column].drop_nulls().unique(maintain_order=True)
            new = {name: self.name(letter, name) for name in names}
            jobs = jobs.with_columns(pl.col(column).replace(new))
        return jobs
