"""Constraints of jobs: expressions of features such as ``a&b`` and ``(a|b)&c``.

slurmctld takes ``&`` and ``|`` from left to right, none before the other. Numbers of nodes (``a*2``) and alternatives
of which all nodes have the same (``[a|b]``) are not simulated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hdsim.util.arrays import Flags

#: The note about other expressions.
OTHERS = "constraints with numbers of nodes, or [...] for several nodes"


def for_single_node(text: str) -> str:
    """Returns an expression for a job on one node, which has one of the alternatives in brackets."""
    return text.replace("[", "(").replace("]", ")")


def features_in(text: str) -> list[str]:
    """Returns the names of all features of an expression."""
    return [name.split("*")[0] for name in re.findall(r"[^&|()\[\],\s]+", text)]


def is_simulated(text: str) -> bool:
    """Whether an expression has features, ``&``, ``|`` and parentheses only, as they belong together."""
    try:
        nodes_having(text, [])
    except ValueError:
        return False
    return True


def nodes_having(text: str, features: Sequence[set[str]]) -> Flags:
    """Returns the (N,) nodes that fulfil an expression.

    Args:
        text: The expression.
        features: Features of each of the N nodes.

    Raises:
        ValueError: It has another form.
    """
    words = re.findall(r"\s*([&|()]|[^&|()\s]+)", text)
    found, position = _expression(words, 0, features)
    if position < len(words) or re.search(r"[\[\]*,]", text):
        raise ValueError(f"expected features with & and |, such as a&b or (a|b)&c, got '{text}'")
    return found


def _expression(words: list[str], position: int, features: Sequence[set[str]]) -> tuple[Flags, int]:
    """Nodes of an expression that begins at a place, and the place behind it."""
    found, position = _operand(words, position, features)
    while position < len(words) and words[position] in "&|":
        other, following = _operand(words, position + 1, features)
        found = found & other if words[position] == "&" else found | other
        position = following
    return found, position


def _operand(words: list[str], position: int, features: Sequence[set[str]]) -> tuple[Flags, int]:
    word = words[position] if position < len(words) else ""
    if word == "(":
        found, position = _expression(words, position + 1, features)
        if position < len(words) and words[position] == ")":
            return found, position + 1
    if not word or word in "&|()":
        raise ValueError(f"expected a feature, as in a&b or (a|b)&c, got '{''.join(words) or 'nothing'}'")
    return np.array([word in own for own in features], np.bool_), position + 1
