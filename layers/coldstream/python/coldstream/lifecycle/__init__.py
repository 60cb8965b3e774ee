"""The end of what is archived: retention, truncation, deletion, holds, storage classes, and the sweep.

    which     expiry.py                     the fragments at the beginning of a log that a policy lets go; pure
              policies.py                   policies, in table and bucket
    remove    prefix.py                     entries go, the oldest first; a floor and tombstones stay
              retention.py, truncation.py   what asks for it
              unfinished.py                 a compaction that somebody left unfinished is finished first
    delete    sweep.py, deletes.py          the objects whose tombstones are due
              markers.py                    what the bucket has to say before the first object goes
              deletion.py, purge.py         a whole stream: marked, and after its grace removed for good
              tend.py                       all that the sweep function does
    keep      holds.py, object_locks.py     legal holds, and their mirror in S3 Object Lock
    move      classes.py, restore.py        colder storage classes, and back for a while

Begin with prefix.py and sweep.py. Every run may be killed anywhere, repeated, and run beside others: what is left to do
is in the manifest. Transactions are planned in `manifest` and only applied here. Nothing here knows Lambda, a terminal
or compaction; compaction takes its sweep from here.
"""
