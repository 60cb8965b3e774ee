"""Texts that others wrote, such as errors and names, as an item stores them: bounded, and fit for UTF-8."""

from __future__ import annotations

import json


def short_text(text: str, max_bytes: int) -> str:
    """Return as much of a text as takes so many bytes as JSON in ASCII; lone surrogates become question marks."""
    clean = text[:max_bytes].encode(errors="replace").decode()
    size = 0
    for number, character in enumerate(clean):
        size += len(json.dumps(character)) - 2
        if size > max_bytes:
            return clean[:number]
    return clean
