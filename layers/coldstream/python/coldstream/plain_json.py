"""JSON that others have written: items, notes, cursors, events. One error for whatever is wrong with it.

Python's own reader takes NaN, and numbers that become infinite, of which no integer can be made; and it raises an error
of another kind for values that are nested too deep.
"""

from __future__ import annotations

import json
import math
from typing import Any


def read_json(data: str | bytes) -> Any:
    """Return the value. Raises ValueError unless `data` is JSON, of finite numbers and not nested a thousand deep."""
    try:
        return json.loads(data, parse_float=_finite, parse_constant=_refused)
    except RecursionError as err:
        raise ValueError("nested too deep") from err


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _refused(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
