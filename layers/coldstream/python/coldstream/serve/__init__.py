"""`coldstream serve`: direct streams over HTTP, by the Durable Streams protocol; archived broker streams to read.

    options.py                  what may be set
    app.py                      the routes, and what every response has: headers, errors, rights, limits
      creating.py, appending.py, reading.py    the requests, from headers to a response
      protocol/                 pure: tokens of offsets, headers, JSON messages, events, cursors, producers
    page_response.py            pages on their way to slow clients
    stream_host.py              the streams that this process has open, and until when
      hosted_stream.py          one of them; host_archive.py, host_forks.py, expiry.py: what it may be besides
    server.py                   its process, and its orderly end

Begin with app.py. What other HTTP servers need, too, is in `web`. All state is in the archive: in the streams, their
properties, and key-values (side_state.py).
"""
