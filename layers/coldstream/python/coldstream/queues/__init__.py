"""Classic queues, taken into the archive: each becomes a stream that holds what was consumed of the queue.

Begin with `archiver.py`: its protocol settles a message at the broker only after the manifest has it. `message.py`
makes of a delivery what the broker would have written into a stream, `state.py` is the fence, `delivery.py` the port to
a queue, which `pika_queue.py` implements by AMQP 0.9.1. Nothing here writes to the manifest's log: batches are staged
and announced, and the upload function does.
"""
