"""The embedded AWS: a moto server on a free port of the loopback, in a process of its own (`python -m`)."""

from __future__ import annotations

import logging

from moto.server import ThreadedMotoServer
from moto.sqs.models import Queue

from coldstream.local.process import Starter


def lock_deletes() -> None:
    """Have moto keep the messages that come to a queue while another is deleted from it.

    moto 5.2's Queue.delete_message puts a new list in place of the old one, without the lock that add_message holds.
    """
    delete = Queue.delete_message

    def delete_message(self: Queue, receipt_handle: str) -> None:
        with self._messages_lock:
            delete(self, receipt_handle)

    Queue.delete_message = delete_message  # type: ignore[method-assign]  # the one method that forgets the lock


def main() -> None:
    """Serve until the starter is gone."""
    starter = Starter()
    lock_deletes()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not a line for every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    starter.tell({"url": f"http://{host}:{port}"})
    starter.gone.wait()
    server.stop()


if __name__ == "__main__":
    main()
