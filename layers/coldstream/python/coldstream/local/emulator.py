"""The embedded AWS: a moto server. As a program (`python -m`) it is a process of the stack."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from coldstream.local.child_process import ParentProcess
from coldstream.local.dynamodb.application import DynamoItems
from coldstream.local.request_lock import RequestLock
from coldstream.local.transaction_tokens import TransactionTokens


class EmbeddedAws:
    """A moto server on a free port of `address`, in threads of this process. A context manager.

    Two wrappers keep the promises of DynamoDB and S3 to concurrent writers, which moto alone breaks.
    """

    def __init__(self, address: str = "127.0.0.1") -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # otherwise a line for every request
        moto = DomainDispatcherApplication(create_backend_app)
        # The lock goes outside: without it, two attempts of one transaction could both find its token unknown.
        application = RequestLock(TransactionTokens(DynamoItems(moto)))
        self._server = make_server(address, 0, application, threaded=True, request_handler=MotoRequestHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="embedded AWS", daemon=True)
        host, port = self._server.server_address[:2]
        self.url = f"http://{host!s}:{port}"

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End serving. The data stays in this process until it ends."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def main() -> None:
    """Serve until the parent closes the pipe or dies."""
    parent = ParentProcess()
    with EmbeddedAws() as aws:
        parent.send({"url": aws.url})
        parent.gone.wait()


if __name__ == "__main__":
    main()
