"""The embedded AWS: a moto server on a free port of the loopback, in a process of its own (`python -m`)."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from coldstream.local.process import Starter
from coldstream.local.serial import OneAtATime
from coldstream.local.tokens import RememberTokens


class EmbeddedAws:
    """A moto server on a free port of `address`, in threads of this process. A context manager.

    It keeps what DynamoDB and S3 promise to writers that meet, which moto alone does not.
    """

    def __init__(self, address: str = "127.0.0.1") -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not a line for every request
        moto = DomainDispatcherApplication(create_backend_app)
        application = OneAtATime(RememberTokens(moto))
        self._server = make_server(address, 0, application, threaded=True, request_handler=MotoRequestHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="embedded AWS", daemon=True)
        host, port = self._server.server_address[:2]
        self.url = f"http://{host!s}:{port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer nobody any more. What was written is gone with this process, not before."""
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
    """Serve until the starter is gone."""
    starter = Starter()
    with EmbeddedAws() as aws:
        starter.tell({"url": aws.url})
        starter.gone.wait()


if __name__ == "__main__":
    main()
