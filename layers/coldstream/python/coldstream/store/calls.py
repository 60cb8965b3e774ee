"""The calls to AWS that this process waits for, so that a command can tell a person what does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from botocore.hooks import BaseEventHooks
from botocore.model import OperationModel

_AS_LONG_AS_THEIR_DATA = frozenset(
    {"CompleteMultipartUpload", "CopyObject", "PutObject", "UploadPart", "UploadPartCopy"}
)
"""Operations whose answer comes when all bytes were sent or copied: that they take long tells nothing."""


class CallsUnderWay:
    """Which calls are under way, of all threads; each thread waits for one at most."""

    def __init__(self) -> None:
        self._begun: dict[int, tuple[float, str]] = {}
        self._answered_at = 0.0

    def silent(self) -> tuple[float, str] | None:
        """Return since when nothing was answered (`time.monotonic`), and by which service; None without any call."""
        oldest = min(tuple(self._begun.values()), default=None)
        return None if oldest is None else (max(oldest[0], self._answered_at), oldest[1])

    def watch(self, events: BaseEventHooks) -> None:
        """Take note of a client's calls, from the first attempt to the last. Twice for the same hooks is once."""
        for event, handler in (
            ("before-call", self._begin),
            ("after-call", self._end),
            ("after-call-error", self._end),
        ):
            events.register(f"{event}.*.*", handler, unique_id=f"coldstream-{event}")

    def _begin(self, model: OperationModel, params: Mapping[str, Any], **_: object) -> None:
        if model.name not in _AS_LONG_AS_THEIR_DATA:
            service = f"{model.service_model.service_id}, {urlsplit(params['url']).netloc}"
            self._begun[threading.get_ident()] = time.monotonic(), service

    def _end(self, **_: object) -> None:
        self._begun.pop(threading.get_ident(), None)
        self._answered_at = time.monotonic()


CALLS = CallsUnderWay()
"""Those of this process: all of its clients tell it (`answers.refuse_broken_answers`)."""
