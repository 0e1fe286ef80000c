"""Placement constraints of pods: node selectors, required node affinity and tolerations.

The semantics are those of kube-scheduler's filters NodeAffinity and TaintToleration. Preferences
(``preferredDuringSchedulingIgnoredDuringExecution``, taints with PreferNoSchedule) have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hdsim.platform.schema import EFFECTS, Taint
from hdsim.util.text import shown

#: Key of requirements on the name of a node (``matchFields``).
NODE_NAME = "metadata.name"

_Part = TypeVar("_Part")
_INTEGER = re.compile(r"[+-]?\d+")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of taints."""

    key: str = ""  # key of the taints, empty for all keys (with the operator Exists)
    operator: str = "Equal"  # ``Equal`` or ``Exists`` (any value)
    value: str = ""  # value of the taints under ``Equal``
    effect: str = ""  # effect of the taints, empty for all effects

    def tolerates(self, taint: Taint) -> bool:
        """Returns whether a taint is tolerated."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or self.value == taint.value


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement on a label of a node."""

    key: str  # key of the label; :data:`NODE_NAME` for the name of the node
    operator: str  # ``In``, ``NotIn``, ``Exists``, ``DoesNotExist``, ``Gt`` or ``Lt``
    values: tuple[str, ...] = ()  # values of the operator

    def holds(self, name: str, labels: Mapping[str, str]) -> bool:
        """Returns whether a node meets the requirement; a node without the label meets NotIn."""
        value = name if self.key == NODE_NAME else labels.get(self.key)
        if self.operator in ("In", "NotIn"):
            return (value in self.values) == (self.operator == "In")
        if self.operator in ("Exists", "DoesNotExist"):
            return (value is not None) == (self.operator == "Exists")
        if value is None or not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(self.values[0])):
            return False
        bound = int(self.values[0])
        return int(value) > bound if self.operator == "Gt" else int(value) < bound


@dataclass(frozen=True, slots=True)
class Constraints:
    """The nodes that a pod may be on."""

    selector: tuple[tuple[str, str], ...] = ()  # labels that a node must have, as (key, value)
    #: Terms of the required node affinity, one of which must hold; a term holds if it has requirements and all
    #: of them hold. Empty: no required affinity.
    affinity: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()  # tolerations of the taints NoSchedule and NoExecute

    def allows(self, name: str, labels: Mapping[str, str], taints: Iterable[Taint]) -> bool:
        """Returns whether a node with a name, labels and taints satisfies the constraints."""
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        if self.affinity and not any(
            term and all(requirement.holds(name, labels) for requirement in term) for term in self.affinity
        ):
            return False
        return self.untolerated(taints) is None

    def untolerated(self, taints: Iterable[Taint]) -> Taint | None:
        """Returns the first taint that keeps a pod off a node, None without one."""
        return next(
            (
                taint
                for taint in taints
                if taint.forbids and not any(toleration.tolerates(taint) for toleration in self.tolerations)
            ),
            None,
        )

    def and_also(self, requirements: tuple[Requirement, ...]) -> Constraints:
        """Returns constraints that allow the nodes that these allow and whose labels meet all requirements."""
        if not requirements:
            return self
        # A term without requirements holds nowhere.
        terms = tuple((*term, *requirements) if term else term for term in self.affinity) or (requirements,)
        return replace(self, affinity=terms)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Constraints | None:
        """Reads ``nodeSelector``, ``affinity`` and ``tolerations`` of a Pod spec; None if it has none of them.

        Raises:
            ValueError: A value is malformed, or the spec requires affinity to other pods, which hdsim does not know;
                the message begins with the path of the value.
        """
        labels = _mapping(spec.get("nodeSelector"), "nodeSelector")
        selector = [(key, _text(value, f"nodeSelector.{key}")) for key, value in labels.items()]
        affinity = _affinity(_mapping(spec.get("affinity"), "affinity"))
        tolerations = _each(spec.get("tolerations"), "tolerations", _toleration)
        made = cls(tuple(sorted(selector)), affinity, tolerations)
        return None if made == cls() else made

    def to_spec(self) -> dict[str, Any]:
        """Returns the keys of a Pod spec from which `from_spec` makes equal constraints."""
        spec: dict[str, Any] = {}
        if self.selector:
            spec["nodeSelector"] = dict(self.selector)
        if self.affinity:
            terms = [_term_spec(term) for term in self.affinity]
            spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
        if self.tolerations:
            spec["tolerations"] = [
                {key: value for key in Toleration.__slots__ if (value := getattr(toleration, key))}
                for toleration in self.tolerations
            ]
        return spec


def _term_spec(term: tuple[Requirement, ...]) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    for requirement in term:
        part = "matchFields" if requirement.key == NODE_NAME else "matchExpressions"
        entry: dict[str, Any] = {"key": requirement.key, "operator": requirement.operator}
        if requirement.values:
            entry["values"] = list(requirement.values)
        spec.setdefault(part, []).append(entry)
    return spec


def _affinity(spec: Mapping[str, Any]) -> tuple[tuple[Requirement, ...], ...]:
    for kind in ("podAffinity", "podAntiAffinity"):
        if _mapping(spec.get(kind), f"affinity.{kind}").get(_REQUIRED):
            raise ValueError(f"affinity.{kind}: expected no required affinity to other pods, which hdsim does not know")
    node = _mapping(spec.get("nodeAffinity"), "affinity.nodeAffinity")
    unknown = [key for key in node if key not in (_REQUIRED, _PREFERRED)]
    if unknown:
        raise ValueError(f"affinity.nodeAffinity: unknown key {unknown[0]}; allowed: {_REQUIRED}, {_PREFERRED}")
    if node.get(_REQUIRED) is None:
        return ()
    path = f"affinity.nodeAffinity.{_REQUIRED}"
    terms = _each(_mapping(node[_REQUIRED], path).get("nodeSelectorTerms"), f"{path}.nodeSelectorTerms", _term)
    if not terms:
        raise ValueError(f"{path}.nodeSelectorTerms: expected at least one term, got none")
    return terms


def _term(spec: Mapping[str, Any], path: str) -> tuple[Requirement, ...]:
    expressions = _each(spec.get("matchExpressions"), f"{path}.matchExpressions", _requirement)
    return expressions + _each(spec.get("matchFields"), f"{path}.matchFields", _field)


def _field(spec: Mapping[str, Any], path: str) -> Requirement:
    made = _requirement(spec, path)
    if made.key != NODE_NAME or made.operator not in ("In", "NotIn") or len(made.values) != 1:
        raise ValueError(f"{path}: expected {NODE_NAME} In or NotIn one value, got {shown(dict(spec))}")
    return made


def _requirement(spec: Mapping[str, Any], path: str) -> Requirement:
    key, operator = _text(spec.get("key"), f"{path}.key"), spec.get("operator")
    if operator not in _OPERATORS:
        raise ValueError(f"{path}.operator: expected one of {', '.join(_OPERATORS)}, got {shown(operator)}")
    values = spec.get("values") or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{path}.values: expected a list of texts, got {shown(values)}")
    expected = {"Exists": "none", "DoesNotExist": "none", "Gt": "one integer", "Lt": "one integer"}
    good = {"none": not values, "one integer": len(values) == 1 and bool(_INTEGER.fullmatch(values[0]))}
    wanted = expected.get(operator, "at least one")
    if not good.get(wanted, bool(values)):
        raise ValueError(f"{path}.values: expected {wanted} for {operator}, got {shown(values)}")
    return Requirement(key, operator, tuple(values))


def _toleration(spec: Mapping[str, Any], path: str) -> Toleration:
    given = {name: spec.get(name) or "" for name in Toleration.__slots__}
    for name, value in given.items():
        if not isinstance(value, str):
            raise ValueError(f"{path}.{name}: expected a text, got {shown(value)}")
    made = Toleration(**{**given, "operator": given["operator"] or "Equal"})
    if made.operator not in ("Equal", "Exists"):
        raise ValueError(f"{path}.operator: expected Equal or Exists, got {shown(made.operator)}")
    if made.effect and made.effect not in EFFECTS:
        raise ValueError(f"{path}.effect: expected one of {', '.join(EFFECTS)}, got {shown(made.effect)}")
    if not made.key and made.operator != "Exists":
        raise ValueError(f"{path}.operator: expected Exists for a toleration without a key, got {made.operator}")
    return made


def _each(value: Any, path: str, read: Callable[[Mapping[str, Any], str], _Part]) -> tuple[_Part, ...]:
    """Reads the objects of a list, which may be absent."""
    if value is not None and not isinstance(value, list):
        raise ValueError(f"{path}: expected a list [...], got {shown(value)}")
    places = [(f"{path}[{index}]", entry) for index, entry in enumerate(value or ())]
    return tuple(read(_mapping(entry, place), place) for place, entry in places)


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{path}: expected an object {{...}}, got {shown(value)}")
    return value or {}


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{path}: expected a text, got {shown(value)}")
    return value
