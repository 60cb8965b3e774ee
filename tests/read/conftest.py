from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _several_transactions(small_transactions: None) -> None:
    """Have compactions of a few fragments stop half-way."""
