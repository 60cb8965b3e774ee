from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import coldstream

PACKAGES = Path(coldstream.__path__[0]).parent
SCRIPT = """
import logging, sys, threading, time
from coldstream.gateway.process.child import end_process
from coldstream.web.json_log import log_as_json
log_as_json()
threading.Thread(target=time.sleep, args=(600,)).start()
logging.getLogger().error("the last word")
end_process(3)
"""


def test_a_thread_that_hangs_does_not_keep_a_child_from_ending() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 3
    assert b"the last word" in done.stderr
