"""Functions of users, named as `module:function`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from coldstream.errors import InvalidSettingError


def load_function(name: str, setting: str) -> Callable[..., Any]:
    """Import `module:function`. Raises InvalidSettingError, about `setting`."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as err:
        raise InvalidSettingError(setting, f"{name!r} cannot be imported as module:function: {err}") from err
    if not callable(found):
        raise InvalidSettingError(setting, f"{name!r} is not a function")
    return found  # type: ignore[no-any-return]
