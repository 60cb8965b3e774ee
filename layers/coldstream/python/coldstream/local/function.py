"""Run one function: its own process with its own environment, as on Lambda (`python -m`).

Its code and layers are on the process's path, its variables in its environment. It is called for the messages of its
queues and for HTTP requests, one at a time. It ends when its starter does, having finished the event at hand.
"""

from __future__ import annotations

import os
import threading
import traceback
from dataclasses import asdict

from coldstream.local.environment import client
from coldstream.local.http_api import HttpApi
from coldstream.local.invocation import Invoker
from coldstream.local.messages import FunctionConfig, Handled
from coldstream.local.poller import poll
from coldstream.local.process import Starter


def main() -> None:
    """Run the function that the starter asks for, until it is gone."""
    starter = Starter()
    config = FunctionConfig.from_message(starter.request)

    def report(handled: Handled) -> None:
        starter.tell(asdict(handled))

    api = None
    try:
        invoke = Invoker(config)
        if config.http:
            api = HttpApi(config.port, function=config.name, invoke=invoke, report=report)
    except Exception as err:  # noqa: BLE001 - a handler's module may raise anything
        traceback.print_exc()
        starter.tell({"error": f"{config.name}: {type(err).__name__}: {err}"})
        return
    threads = [
        threading.Thread(
            target=poll,
            args=(queue,),
            kwargs={
                "sqs": client("sqs", os.environ),
                "function": config.name,
                "invoke": invoke,
                "report": report,
                "stop": starter.gone,
            },
        )
        for queue in config.queues
    ]
    if api is not None:
        threads.append(threading.Thread(target=api.serve_forever))
    starter.tell({"url": api.url if api is not None else None})
    for thread in threads:
        thread.start()
    starter.gone.wait()
    if api is not None:
        api.shutdown()
        api.server_close()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
