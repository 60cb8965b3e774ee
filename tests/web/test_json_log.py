"""The log of a server is lines that a program and a terminal can both take."""

from __future__ import annotations

import json
import logging

from coldstream.web.json_log import JsonLines


def test_the_log_has_no_control_characters_of_a_path() -> None:
    record = logging.makeLogRecord({"msg": "request", "path": "/a\x9b2J\x7f\u2028\n{}"})
    line = JsonLines().format(record)
    assert line.isascii()
    assert json.loads(line)["path"] == "/a\x9b2J\x7f\u2028\n{}"
