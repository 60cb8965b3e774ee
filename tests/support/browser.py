"""A real browser that opens a page and reports what the page found: Debian's chromium, without a display."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Thread
from typing import Any

from tests.support.fixtures import do_without

PATIENCE_S = 120


def find_browser() -> str:
    """Return the browser's command, or skip the test."""
    command = shutil.which("chromium")
    if command is None:
        do_without("Chromium", "on Debian: make browser")
    assert command is not None
    return command


class PageServer:
    """Serves one page at `origin`. What the page sends by `report(value)` comes back from `run`."""

    def __init__(self, httpd: ThreadingHTTPServer, reports: SimpleQueue[Any]) -> None:
        self.origin = f"http://127.0.0.1:{httpd.server_address[1]}"
        self._reports = reports

    def run(self, script: str) -> Any:
        """Have the browser run a script in a page of this origin; return what it reports."""
        command = [find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            self._page = script
            browser = subprocess.Popen(
                [*command, f"--user-data-dir={profile}", "--remote-debugging-port=0", f"{self.origin}/"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                return self._reports.get(timeout=PATIENCE_S)
            finally:
                browser.terminate()
                browser.wait()

    @property
    def page(self) -> bytes:
        """The page."""
        return f"""<!doctype html><script type="module">
            const report = (value) => fetch("/report", {{method: "POST", body: JSON.stringify(value)}})
            try {{ {self._page} }} catch (error) {{ await report({{error: String(error)}}) }}
        </script>""".encode()


@contextmanager
def page_server() -> Iterator[PageServer]:
    """Serve pages on a free port of the loopback: an origin of their own."""
    reports: SimpleQueue[Any] = SimpleQueue()

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(server.page)

        def do_POST(self) -> None:
            reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer(b"")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server = PageServer(httpd, reports)
    thread = Thread(target=httpd.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()
