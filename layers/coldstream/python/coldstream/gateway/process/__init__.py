"""The gateway's processes: one a core, and a parent that starts them, starts them again, and answers for them.

    options.py       what may be set; addresses.py: values of it
    supervisor.py    the parent: takes the port, starts children, passes signals on, drains
      gateway_process.py, cores.py   one child as the parent sees it; how many
      signal_inbox.py                signals, for the parent's loop
    channel.py       what the parent and a child tell each other
    child.py         a child: an event loop with a server, until it is to end
      wiring.py      the server that the options mean
      child_reports.py   what it tells its parent
      descriptors.py     how many sockets it may have
      draining.py    how its connections are let go
    broker_probe.py  whether the broker answers
    admin.py         /metrics, /healthz, /livez and /status, answered by the parent
      metrics.py, status.py   figures of all children as text for Prometheus, and as a value

Nothing here looks at what is in a frame, except for the probe. Begin with supervisor.py.
"""
