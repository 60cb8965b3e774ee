"""The agent: the process beside a broker that gets each of its streams into the archive.

`run.py` puts it together, and `agent.py` runs it: begin there. A discovery (`disk/`, or `recording/` where the broker's
disk cannot be seen) finds streams and has `ArchiverPool` start a `StreamArchiver` for each. That one pins segments
(`disk/`), proves them committed (`proof/`), and has them staged and announced (`ingest/`). `monitor/` shows and checks.

What runs in a function or in a client does not belong here, and nothing but the command line imports this package.
"""
