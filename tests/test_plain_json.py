from __future__ import annotations

import pytest

from coldstream.plain_json import read_json


@pytest.mark.parametrize("data", [b'{"a": [1, 2.5, "\xc3\xbc", null, true]}', '{"a": [1, 2.5, "ü", null, true]}'])
def test_text_and_bytes_are_read_alike(data):
    assert read_json(data) == {"a": [1, 2.5, "ü", None, True]}


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"NaN", b"-Infinity", b'{"a": 1e999}', b"[-1e999]", b"\xff", b"[" * 2000, b'{"a":' * 2000, b"1" * 5000],
    ids=lambda data: repr(data[:12]),
)
def test_whatever_is_wrong_is_one_error(data):
    with pytest.raises(ValueError, match=r"."):
        read_json(data)


def test_a_number_of_any_size_that_a_float_can_hold_is_read():
    assert read_json("1e308") == 1e308
    assert read_json(b"18446744073709551616") == 1 << 64
