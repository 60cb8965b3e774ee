from __future__ import annotations

import pytest

from coldstream.cli.arguments import arrange

COMMANDS = {"read", "streams"}
OPTIONS = {"--output": True, "-o": True, "--all": False}


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("", ""),
        ("read orders --debug", "--debug read orders"),
        ("-o json streams", "streams -o json"),
        ("--output=json --all streams --debug", "--debug streams --output=json --all"),
        ("--output json --unknown streams", "--unknown --output json streams"),
        ("--help read", "--help read"),
        ("-o", "-o"),
        ("read orders -1h", "read orders now-1h"),
        ("read orders --from -1.5h --to -30m", "read orders --from now-1.5h --to now-30m"),
        ("read -- -1h --debug", "read -- -1h --debug"),
        ("-- streams", "-- streams"),
    ],
)
def test_arguments_come_in_the_order_that_the_parser_wants(typed: str, wanted: str) -> None:
    assert arrange(typed.split(), COMMANDS, OPTIONS.get) == wanted.split()
