"""The template by default, and with everything that parameters turn on."""

from __future__ import annotations

import pytest

from tests.support.cloudformation import EVERYTHING, Stack


@pytest.fixture(scope="session")
def stack() -> Stack:
    return Stack()


@pytest.fixture(scope="session")
def whole() -> Stack:
    return Stack(**EVERYTHING)
