"""Messages in which one part has been exchanged for something else."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st


def spoilt(message: Any, data: st.DataObject, values: st.SearchStrategy[Any]) -> Any:
    """A copy of a JSON value with some part of it missing, or another value in its place."""
    place = message = copy.deepcopy(message)
    while keys := list(place) if isinstance(place, dict) else list(range(len(place))):
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and data.draw(st.booleans()):
            place = place[key]
            continue
        if data.draw(st.booleans()):
            del place[key]
        else:
            place[key] = data.draw(values)
        break
    return message
