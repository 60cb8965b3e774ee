"""Decoding by either implementation: Python, and the native module. One contract holds both."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from coldstream.format.amqp import message
from coldstream.format.native import NATIVE
from coldstream.rows import batches
from tests.support.fixtures import do_without


def native_module() -> ModuleType:
    """Return the native module; skip the test without it, or fail it where everything is required."""
    if NATIVE is None:
        do_without("the native module", "make setup, with Rust: cargo and rustc, 1.83 or newer")
    assert NATIVE is not None
    return NATIVE


@pytest.fixture(scope="module", params=["python", "native"])
def decoding(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each implementation in turn. Of the module, for tests that draw their input may have no fixture of their own."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(message, "_messages", message.messages_in_python)
            patch.setattr(batches, "_native", None)
        else:
            patch.setattr(message, "_messages", message.native_messages(native_module()))
            patch.setattr(batches, "_native", native_module())
        yield
