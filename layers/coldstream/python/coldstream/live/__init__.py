"""A live broker, by the stream protocol: what the agent, consumers and replay ask of one.

Begin with `connection.py`: all that can be asked for. `wire.py` sends and receives frames, `subscription.py` is the
flow of chunks, `publisher.py` the flow of entries. rstream encodes and decodes frames; its client is not used (wire.py
says why). Nothing here knows the archive, and nothing here connects again by itself: its callers decide when.
"""
