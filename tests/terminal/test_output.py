from __future__ import annotations

import io

import pytest

from coldstream.cli.progress import progress
from coldstream.terminal.output import printable, size_text, write_json, write_table


def test_columns_are_as_wide_as_they_must_be_and_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(("name", "count"), [("orders", 5), ("a", 12345)])
    assert capsys.readouterr().out == "name    count\norders      5\na       12345\n"


def test_a_table_without_rows_has_its_heads(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(("name", "count"), [])
    assert capsys.readouterr().out == "name  count\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [("grün 注文", "grün 注文"), ("a\x1b[31m\n", "a\\x1b[31m\\n"), ("\x85", "\\x85"), (None, "-"), (12, "12")],
)
def test_what_could_steer_a_terminal_is_escaped(value: object, text: str) -> None:
    assert printable(value) == text


def test_what_the_terminals_encoding_lacks_is_escaped_and_json_is_utf_8_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="latin-1", write_through=True))
    write_table(("name",), [("grün 注文",)])
    write_json({"name": "grün 注文", "file": "\udcff"})
    assert raw.getvalue() == "name\ngrün \\u6ce8\\u6587\n".encode("latin-1") + (
        '{"name": "grün 注文", "file": "\\udcff"}\n'.encode()
    )


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (3 << 40, "3.0 TiB"),
        (1 << 60, "1048576.0 TiB"),
    ],
)
def test_sizes_have_the_unit_that_suits_them(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 10, "messages") as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")


def test_progress_keeps_out_of_data_on_the_same_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("sys.stdout", terminal)
    with progress("reading", 10, "messages", beside_data=True) as advance:
        advance(10)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("unit", ["bytes", "messages"])
def test_progress_goes_to_a_terminal(monkeypatch: pytest.MonkeyPatch, unit: str) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    # What a terminal can do is taken from here, wherever the tests run.
    monkeypatch.setenv("TERM", "xterm")
    with progress("working", 10, unit) as advance:
        advance(10)
    assert "working" in terminal.getvalue()
    assert "10/10" in terminal.getvalue()
