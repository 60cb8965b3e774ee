"""The erased message: what stands in the place of a message whose bytes were erased.

    0x00 0x53 0x75   an AMQP 1.0 data section
    0xa0 0x00        binary, of 0 bytes

It is a whole message to every reader: one with an empty body, and without properties or annotations. Sub-batches keep
the number of their members, each of which is this message.
"""

from __future__ import annotations

ERASED_MESSAGE = bytes.fromhex("005375a000")
