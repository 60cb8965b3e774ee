"""Handlers of functions, loaded as Lambda loads them: each file by itself."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


@dataclass
class FunctionContext:
    """What Lambda says of an invocation. `remaining_ms` is the time that is left of it."""

    function_name: str
    remaining_ms: int = 300_000
    memory_limit_in_mb: int = 512
    aws_request_id: str = "52fdfc07-2182-154f-163f-5f0f9a621d72"

    @property
    def invoked_function_arn(self) -> str:
        return f"arn:aws:lambda:eu-central-1:123456789012:function:{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


def load_function(name: str) -> ModuleType:
    """Load the module of a function."""
    spec = importlib.util.spec_from_file_location(f"{name}_app", ROOT / f"functions/{name}/app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
