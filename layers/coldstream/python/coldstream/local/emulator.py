"""The embedded AWS: a moto server on a free port of the loopback, in a process of its own (`python -m`)."""

from __future__ import annotations

import logging

from moto.server import ThreadedMotoServer

from coldstream.local.process import Starter


def main() -> None:
    """Serve until the starter is gone."""
    starter = Starter()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not a line for every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    starter.tell({"url": f"http://{host}:{port}"})
    starter.gone.wait()
    server.stop()


if __name__ == "__main__":
    main()
