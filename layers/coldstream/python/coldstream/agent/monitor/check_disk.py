"""The checks of the disk: that the broker's files can be seen and linked, and that there is room."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from coldstream.agent.disk.pins import segment_files
from coldstream.agent.monitor.check import Check, CheckedPart, failed, ok, unknown
from coldstream.agent.options import AgentOptions, SegmentSource
from coldstream.agent.state_directory import StateDirectory
from coldstream.units import MIB

LOW_SHARE = 0.05
"""The share of the disk that has to be free: with less, any failure of AWS soon stops the broker's publishers."""

GIB = 1024 * MIB

AS_BROKER = "run the agent as the user that owns the broker's files, rabbitmq"
FIRST_STREAM = "the broker makes it with its first stream; declare one, and check again"


def check_disk(options: AgentOptions) -> list[Check]:
    """Check the broker's directory, the agent's own, and the links between the two. Leaves nothing there."""
    return [*_check_data(options), *_check_state(options), _check_space(options)]


def _check_data(options: AgentOptions) -> Iterator[Check]:
    if options.source is SegmentSource.PROTOCOL:
        return
    assert options.data is not None
    what = "the broker's directory of streams can be read"
    if _comes_with_the_first_stream(options.data):
        yield unknown(CheckedPart.DISK, what, f"{options.data} is not there yet", FIRST_STREAM)
        return
    try:
        directories = [path for path in options.data.iterdir() if path.is_dir()]
        for path in directories[:1]:
            list(path.iterdir())
    except OSError as err:
        yield failed(CheckedPart.DISK, what, err, AS_BROKER)
        return
    yield ok(CheckedPart.DISK, what, f"{len(directories)} streams in {options.data}")


def _comes_with_the_first_stream(data: Path) -> bool:
    """Tell whether nothing but the broker's directory is missing: what it will lie in can be seen."""
    try:
        return not data.exists() and any(data.parent.iterdir())
    except OSError:
        return False


def _existing_ancestor(state: Path) -> Path:
    """Return the state directory, or the deepest directory above it that exists."""
    return next(path for path in (state, *state.parents) if path.exists())


def _check_state(options: AgentOptions) -> Iterator[Check]:
    what = "the state directory can be written to"
    try:
        ancestor = _existing_ancestor(options.state)
        with tempfile.TemporaryDirectory(dir=ancestor, prefix=".coldstream-check-") as scratch:
            running = "; an agent runs on it now" if _is_locked(options.state) else ""
            yield ok(CheckedPart.DISK, what, f"{options.state}{running}")
            if options.source is SegmentSource.DISK:
                yield _check_links(options, Path(scratch))
    except OSError as err:
        yield failed(CheckedPart.DISK, what, err, AS_BROKER)


def _is_locked(state: Path) -> bool:
    """Tell whether an agent runs on a state directory.

    The lock tried here is a shared one, and is let go at once, but an agent that starts in this moment would be
    refused.
    """
    try:
        with StateDirectory(state).lock_file.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # No lock file, or none that may be read: no agent is seen to run.
        pass
    return False


def _check_links(options: AgentOptions, scratch: Path) -> Check:
    what = "segments can be linked into the state directory"
    data = options.data
    assert data is not None
    same_mount = f"choose a --state on the file system of {data}, and under the same mount"
    is_coming = _comes_with_the_first_stream(data)
    existing = data if data.exists() else data.parent
    if existing.stat().st_dev != scratch.stat().st_dev:
        return failed(CheckedPart.DISK, what, f"{options.state} is on another file system than {data}", same_mount)
    try:
        directories = () if is_coming else data.iterdir()
        sample = next((path for directory in directories for path in segment_files(directory).values()), None)
    except OSError as err:
        return unknown(CheckedPart.DISK, what, err, AS_BROKER)
    if sample is None:
        return unknown(CheckedPart.DISK, what, "the broker has no segment yet to try it with")
    try:
        os.link(sample, scratch / "try.link")
    except FileNotFoundError:
        return unknown(CheckedPart.DISK, what, f"{sample} was deleted this moment", "check again")
    except OSError as err:
        finding = f"cannot link {sample}: {err.strerror}"
        return failed(CheckedPart.DISK, what, finding, same_mount if err.errno == errno.EXDEV else AS_BROKER)
    return ok(CheckedPart.DISK, what, f"{sample.name} was linked, and the link removed")


def _check_space(options: AgentOptions) -> Check:
    what = "there is room on the disk"
    try:
        space = os.statvfs(_existing_ancestor(options.state))
    except OSError as err:
        return unknown(CheckedPart.DISK, what, err, AS_BROKER)
    free_bytes, total_bytes = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    advice = _advice_on_space(options, free_bytes, total_bytes)
    finding = f"{free_bytes / GIB:.1f} of {total_bytes / GIB:.1f} GiB free"
    if advice is None:
        return ok(CheckedPart.DISK, what, finding)
    return failed(CheckedPart.DISK, what, finding, advice)


def _advice_on_space(options: AgentOptions, free_bytes: int, total_bytes: int) -> str | None:
    """Return what to do about too little space, None if it is enough."""
    limit_bytes = options.release_below_bytes
    if limit_bytes is not None and limit_bytes >= total_bytes:
        return "--release-pins-below is more than the whole disk: lower it"
    if limit_bytes is not None and limit_bytes >= free_bytes:
        return f"less is free than --release-pins-below {limit_bytes / GIB:.1f} GiB: pins would be released; add room"
    if free_bytes < LOW_SHARE * total_bytes:
        return "add room: pins need some while AWS does not answer"
    if options.source is SegmentSource.PROTOCOL and free_bytes < options.max_spool_bytes:
        return "a single stream may spool --max-spool: lower it, or add room"
    return None
