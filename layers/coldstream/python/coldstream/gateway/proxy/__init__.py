"""Between each client and its broker: two sockets, and frames that stream from one to the other.

Begin with `server.py`, which listens, and `connection.py`, which is one client's. `scanner.py` cuts bytes into frames;
what is done with a frame is decided in `from_client.py` and `from_broker.py`. Nothing here knows the archive: whoever
takes over subscriptions is an `Interceptor` of `ports.py`.
"""
