"""What each finding means to whoever reads it, in a sentence or two: by what was looked at."""

from __future__ import annotations

from collections.abc import Mapping

from coldstream.operate.diagnosis import ArchivePart

MEANINGS: Mapping[str, str] = {
    "it can be listed": "Without a listing neither garbage nor lost objects are found.",
    "its objects can be read": "Without reads nobody gets an archived message back.",
    "it keeps versions of what is deleted": "Without versions, what is deleted by mistake is gone for good.",
    "holds reach S3 Object Lock": "With Object Lock, S3 itself refuses to delete what a legal hold protects.",
    "it is encrypted, and drops unfinished uploads": "Unfinished uploads cost storage that no listing shows.",
    "its items can be read": "Without reads of the table nothing of the archive is found.",
    "it can be queried": "Without Queries nothing of the archive is found.",
    "it has its index and backups": "Lookups by time need the index; backups bring a damaged table back.",
    "a rule sends events to the queue": "Without the rule no announced segment is archived: agents keep them pinned.",
    "events are handled": "Events that wait are segments that are not archived yet: agents keep them pinned.",
    "no event failed for good": "Each dead letter is a segment that is not archived. Its staged copy is still there.",
    "no alarm rings": "CloudWatch watches the functions, queues and the table of the stack.",
    "agents announce, and fragments arrive": "If nothing arrives, no stream had messages, or agents stand still.",
    "the last scrub found no damage": "The scrub holds the table against the bucket: what it finds can be repaired.",
    "the last deep scrub found no damage": "The deep scrub reads every chunk and checks its CRC.",
    "no damage is found": "The scrub holds table, bucket and bytes against each other.",
    "no orphan is known": "Orphans are objects that no entry names: they cost storage, and nobody reads them.",
    "agents archive, and keep up": "Only the agents know what their brokers have that is not archived yet.",
    "unfinished compaction": "Every offset is still found. Old fragments stay until the compaction is finished.",
    "unrecovered batches": "Acknowledged batches are in a log that is not at hand here, and not in the archive yet.",
    "quarantine": "Segments that failed verification, or contradict the archive: kept whole, and not archived.",
    "overdue purge": "The stream is deleted, and its objects should be gone by now. They still cost storage.",
    "overdue sweep": "Objects that nothing names any more should be gone by now. They still cost storage.",
    "unfinished erasure": "Some of the messages that were to be erased may still be there.",
    "unexplained gaps": "Offsets between archived ones that are missing. They are still to come, or lost.",
    "losses": "Offsets that will never be archived, as an agent announced. Readers are told, and go on after them.",
    "holds": "Nothing of what a hold protects is removed, erased or deleted until the hold is released.",
    "quiet streams": "Nothing came for long: their publishers are quiet, or nobody archives them any more.",
    "streams looked at": "What was not looked at may have troubles that are not told here.",
    "dead letter": "An event that the upload function gave up on: its segment is not archived.",
}

_OF_PART: Mapping[ArchivePart, str] = {
    ArchivePart.SETTINGS: "Without its settings, no part of the archive can be asked.",
    ArchivePart.ALARMS: "An alarm of the stack rings: docs/operations.md has a section of the same name.",
    ArchivePart.AGENTS: "An agent pins segments at the broker until they are archived: its disk fills while it cannot.",
}


def meaning_of(part: ArchivePart, what: str) -> str:
    """Return what a finding about this means."""
    return MEANINGS.get(what) or _OF_PART.get(part, "")
