"""Play a schedule, and tell each request: python -m tests.explore 'upload+delete/1c0l0r:a3b2!a'."""

from __future__ import annotations

import sys

from tests.explore import further
from tests.explore.playing import play

if __name__ == "__main__":
    further.load()
    sys.exit(play(sys.argv[1]))
