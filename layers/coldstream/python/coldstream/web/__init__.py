"""What the HTTP servers of this package share: `serve` and `console`, and the small ones of other processes.

    access_tokens.py        who may read and write which streams
    browser_guard.py        pages of other origins, and names that resolve to this machine
    guarded_connection.py   connections that are cut off when their client is too slow
    request_limits.py       requests, live reads and memory
    refusal.py              errors as problems (RFC 9457)
    small_http.py, bounded_connections.py   the server of processes that have another task: /metrics, health, status
    listening.py, server_process.py, json_log.py    the process: its address, its orderly end, its log

Nothing here knows what is served. Begin with server_process.py.
"""
