"""One function in a process of its own, as on Lambda (`python -m`).

The parent puts the function's code and layers on the process's path, and its variables into the environment. The
function is called for the messages of its queues, by its schedule and for HTTP requests, one at a time. The process
ends when its parent does, after the event at hand.
"""

from __future__ import annotations

import os
import threading
import traceback
from dataclasses import asdict

from coldstream.local.child_process import ParentProcess
from coldstream.local.environment import client
from coldstream.local.forwarding import Forwards
from coldstream.local.function_protocol import FunctionConfig, InvocationReport
from coldstream.local.http_api import HttpApi
from coldstream.local.invoker import Invoker
from coldstream.local.poller import poll
from coldstream.local.timer import call_every


def main() -> None:
    """Run the function that the parent asks for, until the parent closes the pipe or dies."""
    parent = ParentProcess()
    config = FunctionConfig.from_message(parent.request)

    def report(invocation: InvocationReport) -> None:
        parent.send(asdict(invocation))

    api = None
    try:
        invoke = Invoker(config)
        if config.http:
            forwards = Forwards(config.forwards)
            api = HttpApi(config.port, function=config.name, invoke=invoke, report=report, forwards=forwards)
    except Exception as err:  # noqa: BLE001 - a handler's module may raise anything
        traceback.print_exc()
        parent.send({"error": f"{config.name}: {type(err).__name__}: {err}"})
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
                "stop": parent.gone,
            },
        )
        for queue in config.queues
    ]
    if config.every_s is not None:
        how = {"function": config.name, "invoke": invoke, "report": report, "stop": parent.gone}
        threads.append(threading.Thread(target=call_every, args=(config.every_s,), kwargs=how))
    if api is not None:
        threads.append(threading.Thread(target=api.serve_forever))
    parent.send({"url": api.url if api is not None else None})
    for thread in threads:  # only now: the parent takes the first message for the one that says ready
        thread.start()
    parent.gone.wait()
    if api is not None:
        api.shutdown()
        api.server_close()
    for thread in threads:
        # The event at hand is finished first. If a handler hangs, `ParentProcess` ends the process after GRACE_S.
        thread.join()


if __name__ == "__main__":
    main()
