"""Ids that are made by chance are the same in each run: so two runs that did the same leave the same."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import shake_128
from itertools import count

import pytest


@contextmanager
def same_ids(name: str) -> Iterator[None]:
    """Draw bytes from a sequence that follows from a name, instead of from the system.

    Bytes of each length have a sequence of their own: who draws a token more, as a request is made again, finds the
    same ids after that.
    """
    drawn: defaultdict[int, count[int]] = defaultdict(count)

    def draw(size: int) -> bytes:
        return shake_128(f"{name} {size} {next(drawn[size])}".encode()).digest(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", draw)
        patch.setattr(random, "_urandom", draw)  # which `secrets` draws from
        patch.setattr(os, "getpid", lambda: 1)  # workers are named by it
        yield
