"""The queue of the job runner, in memory."""

from __future__ import annotations

from coldstream.errors import UnavailableError


class MemoryJobQueue:
    """Implements `JobQueue`: `sent` are the ids of the messages that nobody has taken. `fails` calls raise."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.fails = 0

    def send(self, job_id: str) -> None:
        if self.fails:
            self.fails -= 1
            raise UnavailableError("SQS does not answer")
        self.sent.append(job_id)

    def waiting(self) -> int:
        return len(self.sent)
