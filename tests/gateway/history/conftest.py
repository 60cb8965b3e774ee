"""What tests of the history share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.served_history import ServedHistory, served_history


@pytest.fixture
def served() -> Iterator[ServedHistory]:
    """An archive behind a server that can fail."""
    with served_history() as archive:
        yield archive
