"""Permissions of credentials, asked for before a run: some calls come hours after its start, or after a fault only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hdsim.errors import ConfigError
from hdsim.kubernetes.connection import Call, Connection

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_CREATED = 201


class Permission(NamedTuple):
    """A call that a run makes.

    Attributes:
        call: Verb, group and resource.
        namespace, name: Empty for all namespaces, and for any object.
    """

    call: Call
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        kind = f"a Role in the namespace {self.namespace}" if self.namespace else "a ClusterRole"
        return f"{self.call}; {kind} with this rule does: {self.call.rule(self.name)}"


def require(connection: Connection, permissions: Iterable[Permission]) -> None:
    """Checks that credentials permit all calls of a run.

    Raises:
        ConfigError: Some are not permitted; all are listed with the rules that permit them.
        BackendError: The API server does not answer, or does not accept the credentials.
    """
    missing = denied(connection, permissions)
    if missing:
        raise ConfigError.many([ConfigError(each) for each in missing])


def denied(connection: Connection, permissions: Iterable[Permission]) -> list[str]:
    """Returns the permissions that credentials do not have, as sentences with the rules that permit them.

    Raises:
        BackendError: The API server does not answer, or does not accept the credentials.
    """
    missing = [permission for permission in permissions if _is_denied(connection, permission)]
    return [f"the {connection.user} do not permit to {permission}" for permission in missing]


def _is_denied(connection: Connection, permission: Permission) -> bool:
    """Asks for the access review of a permission; a server without such reviews, as one without RBAC, denies none."""
    (verb, group, resource), namespace, name = permission
    resource, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name}
    if subresource:
        attributes["subresource"] = subresource
    status, review = connection.request("POST", _REVIEWS, {"spec": {"resourceAttributes": attributes}})
    return status == _CREATED and not review["status"]["allowed"]
