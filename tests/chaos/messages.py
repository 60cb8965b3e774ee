"""The messages of a chaos run: each carries its number, and is made again from the seed wherever it is compared."""

from __future__ import annotations

import hashlib

STREAM = "chaos"
MAX_PADDING_BYTES = 1000


def message(seed: int, number: int) -> bytes:
    """Return the message of a number, counted from 1."""
    drawn = hashlib.sha256(f"{seed}:{number}".encode()).digest()
    padding = int.from_bytes(drawn[:4]) % MAX_PADDING_BYTES
    return b"%d:" % number + hashlib.shake_128(drawn).digest(padding)


def number_of(raw: bytes) -> int:
    """Return the number that a message carries; 0 for one that carries none."""
    digits, colon, _ = raw.partition(b":")
    return int(digits) if colon and digits.isdigit() else 0
