"""`WatchedFile`: a file of settings that is read again when it has changed, while the process runs.

What cannot be read then, or is malformed, as half of a file is, is logged and changes nothing: it is looked at again.
"""

from __future__ import annotations

import asyncio
import logging
import stat
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Generic, TypeVar

from coldstream.errors import InvalidSettingError

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)
LOOK_EVERY_S = 5.0
_TRY_EVERY_S = 1.0


class WatchedFile(Generic[_T]):
    """A file, and what `parse` makes of its text. `field` names it in errors. `look` blocks: call it in a thread."""

    def __init__(self, path: Path, field: str, parse: Callable[[str], _T]) -> None:
        """Read the file. Raises InvalidSettingError, also if everybody may write it."""
        self._path = path
        self._field = field
        self._parse = parse
        self._looked_at = time.monotonic()
        self._stamp, self._content = self._read()

    @property
    def current(self) -> _T:
        """What was read last: the same object until it changes."""
        return self._content

    def look(self) -> None:
        """Read the file again if it has changed, and was not looked at just now."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        try:
            if _stamp_of(self._path) != self._stamp:
                self._stamp, self._content = self._read()
                _LOG.info("read %s again", self._path)
        except (InvalidSettingError, OSError) as err:
            _LOG.error("%s cannot be read; what it said before stays: %s", self._path, err)

    def _read(self) -> tuple[tuple[int, int, int], _T]:
        try:
            # Before the text: what is written meanwhile is then seen by the next look.
            stamp = _stamp_of(self._path)
            if self._path.stat().st_mode & stat.S_IWOTH:
                raise InvalidSettingError(self._field, f"{self._path} can be written by everybody: chmod o-w")
            text = self._path.read_text()
        except (OSError, UnicodeDecodeError) as err:
            raise InvalidSettingError(self._field, f"{self._path}: {err}") from err
        return stamp, self._parse(text)


def _stamp_of(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


@asynccontextmanager
async def looking_again(*looks: Callable[[], None]) -> AsyncIterator[None]:
    """Have files looked at again and again during the block, in a thread: one that hangs delays no client."""
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(1, thread_name_prefix="coldstream-files")

    async def go_on() -> None:
        while True:
            await asyncio.sleep(_TRY_EVERY_S)
            for look in looks:
                try:
                    await loop.run_in_executor(executor, look)
                except Exception:  # noqa: BLE001  a defect of ours must not end all looks
                    _LOG.exception("could not look whether a file has changed")

    task = asyncio.create_task(go_on(), name="files that may change")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        executor.shutdown(wait=False, cancel_futures=True)
