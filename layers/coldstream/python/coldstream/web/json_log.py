"""A server's log: a line of JSON for each record."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def log_as_json(level: int = logging.INFO) -> None:
    """Write each record of the log as a line of JSON to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)


class JsonLines(logging.Formatter):
    """A record as an object: time, level, message, and whatever was logged beside."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        found = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _KNOWN},
        }
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)  # in ASCII: a path may have what a terminal obeys
