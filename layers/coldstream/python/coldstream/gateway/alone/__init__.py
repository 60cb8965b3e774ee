"""Archive-only mode: a server of the stream protocol that answers alone, from the archive and direct streams.

    server.py           listens, and keeps the connections; begin here
    connection.py       one client: greeting.py logs it in, then questions.py answers
    consumers.py        its subscriptions, each of which is a reading.py; publishing.py has its publishers
    served_stream.py    what a stream is to it; archived_stream.py and direct_stream.py are the two kinds
    direct_host.py      the direct streams that this process has open to append to
    turns.py            single active consumers: pure; consumer_turns.py keeps them in the table, by leases
    logins.py           who may log in: password_file.py, password_command.py; permissions.py: to do what

No broker is needed. Listener, scanner and outlet are the proxy's; `client_side.py` is how they are used here.
"""
