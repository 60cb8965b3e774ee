"""Replay: put what is archived back, into a broker or into tables.

    arguments.py             what a user may say, for the command line and for Spark's job alike
    request.py               which offsets of which incarnation: fixed when a run begins
    read_ahead.py            their slices and gaps, read ahead of whoever sends them
    send.py                  to the target that was named:
      stream.py, forward.py    a stream or super stream, exactly once: the broker remembers what it has
      exchange.py              an exchange, at least once: a progress file remembers
      broker_replay.py         what both have in common
    tables/                  files of rows, exactly once: marks in the table remember

Begin with broker_replay.py, or with tables/run.py. Nothing here keeps a state of its own between runs: the target says
what it has, and the next run, or another one at the same time, adds the rest. Of the package only the command line and
Spark's jobs make use; it knows neither a terminal nor Spark.
"""
