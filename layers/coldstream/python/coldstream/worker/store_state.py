"""The directories of store jobs on a worker's machine: what was read of a broker's streams and is not archived yet.

    {state}/{job id}/              of a job; or, while another process still holds that,
    {state}/{job id}.{number}/     one beside it

None of them is needed: the archive is the cursor, and a worker without the directory reads again what is missing. With
it, nothing is read twice, and what the broker has deleted meanwhile is not lost.
"""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

from coldstream.agent.state_directory import StateDirectory
from coldstream.errors import UnavailableError
from coldstream.jobs.store import JobStore

_MOST_BESIDE = 50


def choose_directory(root: Path, job_id: str) -> Path:
    """Return the directory of a job that no other process holds, as a worker that was paused for long may do.

    Raises UnavailableError if all are held, or cannot be written to.
    """
    for number in range(_MOST_BESIDE):
        path = root / (job_id if not number else f"{job_id}.{number}")
        if _is_free(path):
            return path
    raise UnavailableError(f"other processes hold the directories of job {job_id} in {root}")


def tidy(root: Path, store: JobStore, *, but: str) -> None:
    """Remove the directories of jobs that have ended, or are not there any more. Cost: a GetItem for each directory."""
    if not root.is_dir():
        return
    for path in root.iterdir():
        job_id = path.name.partition(".")[0]
        if job_id == but or not path.is_dir():
            continue
        job = store.find(job_id)
        if (job is None or job.state.has_ended) and _is_free(path):
            shutil.rmtree(path, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a directory of which all is archived."""
    shutil.rmtree(path, ignore_errors=True)


def _is_free(path: Path) -> bool:
    """Tell whether no process holds a directory; it may be taken right after that, and then its lock is refused."""
    state = StateDirectory(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with state.lock_file.open("w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as err:
        raise UnavailableError(f"{path} cannot be written to: {err.strerror}") from err
    return True
