from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
from moto.sqs.models import Message, Queue, SQSBackend

from coldstream.local.emulator import lock_deletes

MESSAGES = 100


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Have threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_a_message_that_comes_while_others_are_deleted_is_kept(
    quick_switches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Queue, "delete_message", Queue.delete_message)  # so that it is put back
    lock_deletes()
    backend = SQSBackend("eu-central-1", "123456789012")
    queue = backend.create_queue("queue", {})

    def send(kind: str) -> None:
        for number in range(MESSAGES):
            message = Message(f"{kind}-{number}", kind)
            message.mark_sent()
            queue.add_message(message)

    send("deleted")
    (*received,) = backend.receive_message("queue", MESSAGES, 0, 60)
    sending = threading.Thread(target=send, args=("kept",))
    sending.start()
    for message in received:
        assert message.receipt_handle is not None
        queue.delete_message(message.receipt_handle)
    sending.join()
    assert len(queue._messages) == MESSAGES
