"""A real browser driven over the DevTools protocol: pages opened, clicked and typed in, looked at, and photographed.

Chromium takes the protocol over a pair of pipes (`--remote-debugging-pipe`): messages of JSON, each ended by a NUL.
So there is no port, and no library of WebSockets.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.support.browser import find_browser

PATIENCE_S = 60
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
    *("--hide-scrollbars", "--no-first-run", "--no-default-browser-check", "--disable-extensions", "--mute-audio"),
    *("--disable-background-networking", "--force-color-profile=srgb", "--font-render-hinting=none"),
)
_KEYS = {
    "Tab": (9, "Tab", ""),
    "Enter": (13, "Enter", "\r"),
    "Escape": (27, "Escape", ""),
    "Space": (32, " ", " "),
    "ArrowDown": (40, "ArrowDown", ""),
    "ArrowUp": (38, "ArrowUp", ""),
}
_SHIFT = 8


class DevToolsError(Exception):
    """The browser refused a command, or a script in a page failed."""


@dataclass(frozen=True)
class Screen:
    """What a page is shown on."""

    width: int = 1360
    height: int = 900
    is_dark: bool = False
    is_phone: bool = False
    has_scripts: bool = True


DESKTOP, DARK = Screen(), Screen(is_dark=True)
PHONE = Screen(390, 844, is_phone=True)
PHONE_DARK = Screen(390, 844, is_dark=True, is_phone=True)
NO_SCRIPTS = Screen(has_scripts=False)


class DevTools:
    """The connection to a browser. For one thread."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out = os.fdopen(to_browser, "wb", buffering=0)
        self._in = os.fdopen(from_browser, "rb", buffering=0)
        self._found: Queue[dict[str, Any]] = Queue()
        self._number = 0
        self.events: list[dict[str, Any]] = []
        threading.Thread(target=self._read, name="devtools", daemon=True).start()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer; events that come before it are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        self._out.write(json.dumps(message).encode() + b"\0")
        ends_at = time.monotonic() + PATIENCE_S
        while True:
            found = self._next(ends_at - time.monotonic(), method)
            if found.get("id") == self._number:
                if "error" in found:
                    raise DevToolsError(f"{method}: {found['error']['message']}")
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def wait(self, method: str, session: str) -> dict[str, Any]:
        """Return the next event of a kind; those before it are kept."""
        ends_at = time.monotonic() + PATIENCE_S
        while True:
            for number, event in enumerate(self.events):
                if event.get("method") == method and event.get("sessionId") == session:
                    del self.events[number]
                    found: dict[str, Any] = event["params"]
                    return found
            self.events.append(self._next(ends_at - time.monotonic(), method))

    def drain(self) -> None:
        """Keep the events that have come."""
        with suppress(Empty):
            while True:
                self.events.append(self._found.get_nowait())

    def _next(self, within_s: float, what: str) -> dict[str, Any]:
        try:
            return self._found.get(timeout=max(0.0, within_s))
        except Empty:
            raise DevToolsError(f"{what}: nothing came within {PATIENCE_S} s") from None

    def _read(self) -> None:
        buffered = b""
        with suppress(OSError, ValueError):
            while part := self._in.read(1 << 20):
                *messages, buffered = (buffered + part).split(b"\0")
                for message in messages:
                    self._found.put(json.loads(message))


class Tab:
    """A tab of the browser, with cookies of its own, on one screen."""

    def __init__(self, tools: DevTools, screen: Screen) -> None:
        self._tools = tools
        self.screen = screen
        self._context = tools.call("Target.createBrowserContext")["browserContextId"]
        target = tools.call("Target.createTarget", url="about:blank", browserContextId=self._context)["targetId"]
        self._session = tools.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=screen.width,
            height=screen.height,
            deviceScaleFactor=1,
            mobile=screen.is_phone,
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if screen.is_dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self._call("Emulation.setEmulatedMedia", features=features)
        if not screen.has_scripts:
            self._call("Emulation.setScriptExecutionDisabled", value=True)

    def go(self, url: str) -> None:
        """Open a page, and wait until it and all that it loads are there."""
        self._forget("Page.loadEventFired")
        found = self._call("Page.navigate", url=url)
        if "errorText" in found:
            raise DevToolsError(f"{url}: {found['errorText']}")
        self._tools.wait("Page.loadEventFired", self._session)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page, also of a promise."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise DevToolsError(str(details.get("exception", {}).get("description", details["text"])))
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until an expression in the page is true."""
        ends_at = time.monotonic() + PATIENCE_S
        while True:
            with suppress(DevToolsError):  # in the midst of going to another page
                if self.run(condition):
                    return
            if time.monotonic() > ends_at:
                raise DevToolsError(f"{condition} was not true within {PATIENCE_S} s, at {self.url}")
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """Click the middle of an element, as a person would."""
        box = self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            " if (!one) return null; one.scrollIntoView({block: 'center'}); const box = one.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2] })()"
        )
        if box is None:
            raise DevToolsError(f"there is no {selector} at {self.url}")
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def follow(self, selector: str) -> None:
        """Click what leads to another page, and wait for that."""
        self._forget("Page.loadEventFired")
        self.click(selector)
        self._tools.wait("Page.loadEventFired", self._session)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key."""
        code, name, text = _KEYS.get(key, (ord(key.upper()) if len(key) == 1 else 0, key, key))
        parameters: dict[str, Any] = {"key": name, "windowsVirtualKeyCode": code, "modifiers": _SHIFT if shift else 0}
        self._call("Input.dispatchKeyEvent", type="keyDown", **parameters, **({"text": text} if text else {}))
        self._call("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def enter(self) -> None:
        """Press Enter on what leads to another page, and wait for that."""
        self._forget("Page.loadEventFired")
        self.press("Enter")
        self._tools.wait("Page.loadEventFired", self._session)

    def write(self, text: str) -> None:
        """Type a text where the focus is."""
        self._call("Input.insertText", text=text)

    def photograph(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or all of the page, as PNG."""
        parameters: dict[str, Any] = {"format": "png"}
        if whole:
            size = self._call("Page.getLayoutMetrics")["cssContentSize"]
            height = min(size["height"], 3000)
            parameters["clip"] = {"x": 0, "y": 0, "width": self.screen.width, "height": height, "scale": 1}
            parameters["captureBeyondViewport"] = True
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", **parameters)["data"]))

    @property
    def url(self) -> str:
        """Where the tab is."""
        return str(self._call("Page.getFrameTree")["frameTree"]["frame"]["url"])

    @property
    def title(self) -> str:
        """The title of the page."""
        return str(self.run("document.title"))

    def problems(self) -> list[str]:
        """Return what the browser complained about since the last time: errors, and what a policy refused."""
        self._call("Runtime.evaluate", expression="0")
        self._tools.drain()
        found, kept = [], []
        for event in self._tools.events:
            told = _problem(event) if event.get("sessionId") == self._session else None
            if told is not None:
                found.append(told)
            else:
                kept.append(event)
        self._tools.events[:] = [event for event in kept if event.get("method") == "Page.loadEventFired"]
        return found

    def close(self) -> None:
        """Close the tab, and forget its cookies."""
        self._tools.call("Target.disposeBrowserContext", browserContextId=self._context)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._tools.call(method, self._session, **parameters)

    def _forget(self, method: str) -> None:
        self._tools.drain()
        mine = (method, self._session)
        self._tools.events[:] = [one for one in self._tools.events if (one.get("method"), one.get("sessionId")) != mine]


def _problem(event: dict[str, Any]) -> str | None:
    method, told = event.get("method"), event.get("params", {})
    if method == "Runtime.exceptionThrown":
        details = told["exceptionDetails"]
        return f"exception: {details.get('exception', {}).get('description', details['text'])}"
    if method == "Runtime.consoleAPICalled" and told["type"] in {"error", "assert"}:
        return "console: " + " ".join(str(one.get("value", one.get("description"))) for one in told["args"])
    if method == "Log.entryAdded" and told["entry"]["level"] == "error":
        return f"log: {told['entry']['text']} {told['entry'].get('url', '')}"
    return None


class Browser:
    """A browser without a display."""

    def __init__(self, tools: DevTools) -> None:
        self._tools = tools

    @contextmanager
    def tab(self, screen: Screen = DESKTOP) -> Iterator[Tab]:
        """Have a tab for the duration of the block."""
        made = Tab(self._tools, screen)
        try:
            yield made
        finally:
            made.close()


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start a browser for the duration of the block; skip the test if none is installed."""
    command = find_browser()
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Chromium reads from descriptor 3 and writes to 4.
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", command, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        tools = DevTools(ours_out, ours_in)
        try:
            yield Browser(tools)
        finally:
            with suppress(DevToolsError, OSError):
                tools.call("Browser.close")
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
