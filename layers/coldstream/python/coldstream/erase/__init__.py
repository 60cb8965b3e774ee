"""Erasure: the bytes of some messages go for good, and everything else of their stream stays as it is.

    select    selection.py, digests.py      which messages: by offset, value, or a user's function
    rewrite   chunk.py, fragment.py         the chunks of a fragment, one at a time, with those messages emptied
    write     new_object.py, readback.py    a new object at a fresh key, read back and proven before anything names it
    commit    run.py                        its entry takes the old one's place, whose object gets a tombstone
    look      copies.py, forecast.py        where else the bytes are; what a run would do and cost

Begin with run.py. Offsets, chunk ids, timestamps, and the counts of entries and records do not change. An erased
message is an AMQP 1.0 message of one empty data section (`format.erased`), so every reader decodes it.

A run may be killed anywhere. The manifest has how far it came, and any later run goes on from there. This package knows
no terminal and no Lambda.
"""
