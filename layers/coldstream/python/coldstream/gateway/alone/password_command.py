"""Users that a command knows: it gets user and password, and its exit code says whether they are right.

It is started without a shell for each login. On its standard input are two lines, user and password, so neither is seen
in a list of processes. 0 is yes, 1 is no. Anything else is a failure of the command, which is logged: whether the
password is right is not known then, and nobody is told that it is wrong.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from coldstream.errors import InvalidSettingError, UnavailableError

_LOG = logging.getLogger(__name__)
COMMAND_TIMEOUT_S = 5.0
_YES, _NO = 0, 1


class PasswordCommand:
    """A command that checks passwords. Implements `PasswordCheck`."""

    def __init__(self, command: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        """Take a program and its arguments. Raises InvalidSettingError for none."""
        if not command:
            raise InvalidSettingError("users_command", "is empty")
        self._command = tuple(command)
        self._timeout_s = timeout_s

    def check(self, user: str, password: str) -> bool:
        """Tell whether the command takes a user with this password. It is killed after `timeout_s`.

        Raises UnavailableError if it says neither yes nor no.
        """
        if any(end in text for end in "\n\r\0" for text in (user, password)):
            return False  # it could pass for two lines
        try:
            status = self._run(f"{user}\n{password}\n".encode(errors="surrogatepass"))
        except (OSError, subprocess.TimeoutExpired) as err:
            # The error of a timeout has the input in it.
            failure = type(err).__name__
        else:
            if status in {_YES, _NO}:
                return status == _YES
            failure = f"exit status {status}"
        _LOG.error("the command of users failed: %s", failure)
        raise UnavailableError(f"the command of users failed: {failure}")

    def knows(self, user: str) -> bool:  # noqa: ARG002
        """Return True: it tells only at a login."""
        return True

    def look(self) -> None:
        """Do nothing: it is asked at each login."""

    def _run(self, text: bytes) -> int:
        # In a session of its own: what it has started itself, and waits for, ends with it.
        with subprocess.Popen(  # noqa: S603  the operator's own command, without a shell
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                process.communicate(text, timeout=self._timeout_s)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        return process.returncode
