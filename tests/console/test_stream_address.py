"""Addresses of streams: any name fits into a path, and comes back."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import quote, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.console.stream_address import path_of, segment_of, text_of
from tests.support.hostile_text import HOSTILE_TEXTS, hostile_streams


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_a_hostile_name_is_one_segment_and_comes_back(text: str) -> None:
    segment = segment_of(text)
    assert text_of(segment) == text
    assert quote(segment, safe="~") == segment == unquote(segment)
    assert segment not in {".", ".."}


@given(st.text(min_size=1, max_size=60).filter(lambda text: text.isprintable() or True))
def test_any_text_comes_back(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert text_of(segment_of(text)) == text


def test_paths_are_the_same_after_a_browser_and_a_proxy_have_tidied_them() -> None:
    paths = [path_of(stream) for stream in hostile_streams()]
    assert len(set(paths)) == len(paths)
    for path in paths:
        parts = urlsplit(f"http://localhost{path}")
        assert (parts.path, parts.query, parts.fragment) == (path, "", "")
        assert posixpath.normpath(path) == path
        assert path.count("/") == 4


@pytest.mark.parametrize(
    "segment", ["", "~", "~4", "~4g", "~41", "~e2~82~ac", "~FF", "~C3", "~ED~A0~80", "a/b", "a b", "é", "..", "x" * 800]
)
def test_only_what_is_written_so_is_read(segment: str) -> None:
    assert text_of(segment) is None


def test_ordinary_names_are_readable() -> None:
    assert segment_of("orders.eu_1-b") == "orders.eu_1-b"
    assert re.fullmatch(r"~2F", segment_of("/"))
    assert segment_of("..") == "~2E~2E"
