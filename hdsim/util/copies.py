"""Deep copies of objects with state; each class has one of these functions as its ``__deepcopy__``."""

from __future__ import annotations

from array import array
from collections import deque
from copy import copy, deepcopy
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_CONTAINERS = frozenset({list, dict, set, array, deque})
_VALUES = frozenset({int, float, bool, str, bytes, type(None), range, frozenset})


def itself(original: T, memo: dict[int, Any]) -> T:
    """Returns an immutable object itself."""
    return original


def with_own_containers(original: T, memo: dict[int, Any]) -> T:
    """Returns a copy of an object whose lists, dictionaries, sets and arrays have immutable elements.

    These are copied as wholes, which is many times faster than element by element; read-only arrays are shared, and
    other attributes are copied by :func:`copy.deepcopy`. A class with containers of mutable objects names them in
    `deep_containers`.
    """
    kind = type(original)
    memo[id(original)] = other = kind.__new__(kind)
    deep: tuple[str, ...] = getattr(kind, "deep_containers", ())
    attributes = vars(other)
    for name, value in vars(original).items():
        if type(value) in _VALUES:
            attributes[name] = value
        else:
            attributes[name] = deepcopy(value, memo) if name in deep else own(value, memo)
    return other


def own(value: Any, memo: dict[int, Any]) -> Any:
    """Returns the copy of an attribute; see :func:`with_own_containers`."""
    known = memo.get(id(value), memo)
    if known is not memo:
        return known
    kind = type(value)
    if kind in _CONTAINERS:
        new = copy(value)
    elif kind is np.ndarray:
        new = value.copy() if value.flags.writeable else value
    elif isinstance(value, tuple) and not hasattr(value, "__deepcopy__"):
        # A NamedTuple of arrays, or a tuple of values.
        parts = [each if type(each) in _VALUES else own(each, memo) for each in value]
        new = kind(*parts) if hasattr(value, "_fields") else kind(parts)
    else:
        return deepcopy(value, memo)
    memo[id(value)] = new
    return new
