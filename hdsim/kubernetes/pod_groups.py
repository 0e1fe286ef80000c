"""PodGroups of the coscheduling plugin: the number of pods of a gang that have to start together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from hdsim.kubernetes.connection import Call, Connection, Permission

_GROUP, _VERSION, _RESOURCE = "scheduling.x-k8s.io", "v1alpha1", "podgroups"
_API = f"/apis/{_GROUP}/{_VERSION}"
PATH = f"{_API}/{_RESOURCE}"
PERMISSIONS = tuple(Permission(Call(verb, _GROUP, _RESOURCE)) for verb in ("list", "watch"))


@dataclass(frozen=True, slots=True)
class PodGroupView:
    """A PodGroup."""

    key: str
    uid: str
    version: str
    gang: tuple[str, str]  # namespace and name of its gang
    min_member: int | None  # number of pods that have to start together, None if it is no positive integer

    @classmethod
    def of(cls, group: Mapping[str, Any]) -> PodGroupView:
        """Reads a PodGroup object."""
        metadata = group["metadata"]
        gang = metadata["namespace"], metadata["name"]
        number = (group.get("spec") or {}).get("minMember")
        valid = isinstance(number, int) and number > 0
        return cls("/".join(gang), metadata["uid"], metadata["resourceVersion"], gang, number if valid else None)


def are_served(connection: Connection) -> bool:
    """Returns whether an API server has the custom resource.

    Raises:
        BackendError: It does not answer.
    """
    status, answer = connection.call(connection.send("GET", _API))
    return status == 200 and any(each["name"] == _RESOURCE for each in orjson.loads(answer)["resources"])
