"""Whether the broker's files can be seen and linked, and whether there is room."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from coldstream.agent.disk.pins import segment_files
from coldstream.agent.monitor.check import Check, CheckedPart, CheckOutcome
from coldstream.agent.options import AgentOptions, SegmentSource
from coldstream.units import MIB

LOW_SHARE = 0.05
"""Of the disk: less than that free, and a failure of anything soon stops the broker's publishers."""

GIB = 1024 * MIB

AS_BROKER = "run the agent as the user that owns the broker's files, rabbitmq"


FIRST_STREAM = "the broker makes it with its first stream; declare one, and check again"


def check_disk(options: AgentOptions) -> list[Check]:
    """Check the broker's directory, the agent's own, and the links between the two. Leaves nothing there."""
    return [*_data(options), *_state(options), _space(options)]


def _data(options: AgentOptions) -> Iterator[Check]:
    if options.source is SegmentSource.PROTOCOL:
        return
    assert options.data is not None
    what = "the broker's directory of streams can be read"
    if _comes_with_the_first_stream(options.data):
        yield Check(CheckedPart.DISK, what, CheckOutcome.UNKNOWN, f"{options.data} is not there yet", FIRST_STREAM)
        return
    try:
        directories = [path for path in options.data.iterdir() if path.is_dir()]
        for path in directories[:1]:
            list(path.iterdir())
    except OSError as err:
        yield Check(CheckedPart.DISK, what, CheckOutcome.FAILED, str(err), AS_BROKER)
        return
    yield Check(CheckedPart.DISK, what, CheckOutcome.OK, f"{len(directories)} streams in {options.data}")


def _comes_with_the_first_stream(data: Path) -> bool:
    """Tell whether the broker's directory is missing alone: what it lies in can be seen."""
    try:
        return not data.exists() and any(data.parent.iterdir())
    except OSError:
        return False


def _state(options: AgentOptions) -> Iterator[Check]:
    what = "the state directory can be written to"
    there = next(path for path in (options.state, *options.state.parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=".coldstream-check-") as made:
            yield Check(CheckedPart.DISK, what, CheckOutcome.OK, f"{options.state}{_running(options.state)}")
            if options.source is SegmentSource.DISK:
                yield _links(options, Path(made))
    except OSError as err:
        yield Check(CheckedPart.DISK, what, CheckOutcome.FAILED, str(err), AS_BROKER)


def _running(state: Path) -> str:
    """Tell whether an agent runs there, without being in the way of one that starts."""
    try:
        with (state / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "; an agent runs on it now"
    except OSError:
        pass
    return ""


def _links(options: AgentOptions, made: Path) -> Check:
    what = "segments can be linked into the state directory"
    data = options.data
    assert data is not None
    todo = f"choose a --state on the file system of {data}, and under the same mount"
    is_coming = _comes_with_the_first_stream(data)
    there = data if data.exists() else data.parent
    if there.stat().st_dev != made.stat().st_dev:
        return Check(
            CheckedPart.DISK, what, CheckOutcome.FAILED, f"{options.state} is on another file system than {data}", todo
        )
    try:
        lives = () if is_coming else data.iterdir()
        sample = next((path for life in lives for path in segment_files(life).values()), None)
    except OSError as err:
        return Check(CheckedPart.DISK, what, CheckOutcome.UNKNOWN, str(err), AS_BROKER)
    if sample is None:
        return Check(CheckedPart.DISK, what, CheckOutcome.UNKNOWN, "the broker has no segment yet to try it with", None)
    try:
        os.link(sample, made / "try.link")
    except FileNotFoundError:
        return Check(CheckedPart.DISK, what, CheckOutcome.UNKNOWN, f"{sample} was deleted this moment", "check again")
    except OSError as err:
        found = f"cannot link {sample}: {err.strerror}"
        return Check(
            CheckedPart.DISK, what, CheckOutcome.FAILED, found, todo if err.errno == errno.EXDEV else AS_BROKER
        )
    return Check(CheckedPart.DISK, what, CheckOutcome.OK, f"{sample.name} was linked, and let go of")


def _space(options: AgentOptions) -> Check:
    what = "there is room on the disk"
    there = next(path for path in (options.state, *options.state.parents) if path.exists())
    try:
        space = os.statvfs(there)
    except OSError as err:
        return Check(CheckedPart.DISK, what, CheckOutcome.UNKNOWN, str(err), AS_BROKER)
    free_bytes, total_bytes = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    limit_bytes = options.release_below_bytes
    found = f"{free_bytes / GIB:.1f} of {total_bytes / GIB:.1f} GiB free"
    if limit_bytes is not None and limit_bytes >= total_bytes:
        return Check(
            CheckedPart.DISK,
            what,
            CheckOutcome.FAILED,
            found,
            "--release-pins-below is more than the whole disk: lower it",
        )
    if limit_bytes is not None and limit_bytes >= free_bytes:
        todo = f"less is free than --release-pins-below {limit_bytes / GIB:.1f} GiB: pins would be let go; add room"
        return Check(CheckedPart.DISK, what, CheckOutcome.FAILED, found, todo)
    if free_bytes < LOW_SHARE * total_bytes:
        return Check(
            CheckedPart.DISK, what, CheckOutcome.FAILED, found, "add room: pins need some while AWS does not answer"
        )
    if options.source is SegmentSource.PROTOCOL and free_bytes < options.max_spool_bytes:
        return Check(
            CheckedPart.DISK,
            what,
            CheckOutcome.FAILED,
            found,
            "a single stream may spool --max-spool: lower it, or add room",
        )
    return Check(CheckedPart.DISK, what, CheckOutcome.OK, found)
