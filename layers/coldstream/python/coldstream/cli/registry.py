"""All commands by task: where each is, and what it does in a line. A command's code is imported once it is called.

So `coldstream --help` reads this file alone. A test holds the lines against the commands' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ListedCommand:
    """A command, or a group of commands.

    `place` is `module:function` below `coldstream.cli`; of a group, the function that runs without a verb, if any.
    """

    panel: str
    help: str
    place: str | None = None
    verbs: Mapping[str, str] = field(default_factory=dict)


_BOUND = "Bound the archive, and delete from it"
_MEND = "Check the archive, and mend it"
_MAINTAIN = "Maintain the archive"

COMMANDS: Mapping[str, ListedCommand] = {
    "agent": ListedCommand(
        "Archive streams",
        "Archive all streams of a broker, continuously.",
        "agent:agent",
        {"status": "agent_status:status"},
    ),
    "announce": ListedCommand("Archive streams", "Archive a directory of segments once.", "announce:announce"),
    "recover": ListedCommand(
        "Archive streams", "Archive what only the recovery log has, once a node is lost.", "recover:recover"
    ),
    "streams": ListedCommand("Look up and read", "List the archived streams, with sizes and times.", "streams:streams"),
    "describe": ListedCommand(
        "Look up and read", "Show what is archived of one stream, now or at a time.", "streams:describe"
    ),
    "read": ListedCommand("Look up and read", "Read messages, from the archive and then live.", "read:read"),
    "resolve": ListedCommand("Look up and read", "Show which S3 objects hold a stream's data.", "resolve:resolve"),
    "inspect": ListedCommand(
        "Look up and read", "Show what a segment, index or fragment holds.", "inspect_file:inspect_file"
    ),
    "gateway": ListedCommand(
        "Let stock clients read the archive",
        "Let stock stream clients read the whole history.",
        "gateway:gateway",
        {"status": "gateway_status:status", "hash-password": "gateway_password:hash_password"},
    ),
    "console": ListedCommand(
        "See and steer it in a browser", "Show the archive in a browser, and steer its jobs.", "console:console"
    ),
    "serve": ListedCommand("Use streams without a broker", "Serve streams over HTTP.", "serve:serve"),
    "shards": ListedCommand(
        "Shard streams",
        "Declare sharded streams, see them, and archive queues.",
        verbs={
            "apply": "shards:apply",
            "list": "shards_show:list_shards",
            "status": "shards:status",
            "show": "shards_show:show",
            "history": "shards_show:history",
            "groups": "shards_groups:groups",
            "archive": "shards_archive:archive",
        },
    ),
    "worker": ListedCommand("Run jobs", "Run the archive's jobs: load, export, store and others.", "worker:worker"),
    "jobs": ListedCommand(
        "Run jobs",
        "Create, see and steer jobs.",
        verbs={
            "list": "jobs:list_jobs",
            "create": "jobs_create:create",
            "show": "jobs:show",
            "logs": "jobs:logs",
            "pause": "jobs:pause",
            "resume": "jobs:resume",
            "edit": "jobs:edit",
            "cancel": "jobs:cancel",
            "delete": "jobs:delete",
        },
    ),
    "compact": ListedCommand(_MAINTAIN, "Merge small fragments into large ones, or compress them.", "compact:compact"),
    "replay": ListedCommand(_MAINTAIN, "Replay messages from the archive, each once.", "replay:replay"),
    "access": ListedCommand(
        _MAINTAIN,
        "Manage which IAM principals may read streams.",
        verbs={"list": "access:grants", "grant": "access:grant", "revoke": "access:revoke"},
    ),
    "truncate": ListedCommand(_BOUND, "Remove the beginning of a stream for good.", "truncate:truncate"),
    "delete": ListedCommand(_BOUND, "Delete a stream from the archive; the broker's stream stays.", "delete:delete"),
    "undelete": ListedCommand(_BOUND, "Bring back a deleted stream, until its grace is over.", "delete:undelete"),
    "erase": ListedCommand(_BOUND, "Erase the bytes of messages for good; offsets stay.", "erase:erase"),
    "sweep": ListedCommand(_BOUND, "Delete the objects that are due; purge deleted streams.", "sweep:sweep"),
    "restore": ListedCommand(_BOUND, "Make offsets in GLACIER or DEEP_ARCHIVE readable.", "restore:restore"),
    "policy": ListedCommand(
        _BOUND,
        "Manage how long streams are kept, and in which class.",
        verbs={"list": "policy:policies", "show": "policy:show", "set": "policy:set_policy", "rm": "policy:rm"},
    ),
    "retention": ListedCommand(_BOUND, "Remove what the policies let go.", verbs={"run": "retention:run"}),
    "hold": ListedCommand(
        _BOUND,
        "Manage legal holds, against which nothing is removed.",
        verbs={"list": "hold:holds", "put": "hold:put", "release": "hold:release"},
    ),
    "doctor": ListedCommand(_MEND, "Look at everything around an archive: what to do next?", "doctor:doctor"),
    "scrub": ListedCommand(_MEND, "Compare table, bucket and bytes: what is damaged?", "scrub:scrub"),
    "garbage": ListedCommand(_MEND, "Find objects that belong to nothing, and delete them.", "garbage:garbage"),
    "history": ListedCommand(_MEND, "Show what changed a stream's manifest, oldest first.", "history:history"),
    "rebuild": ListedCommand(_MEND, "Make the manifest's table anew, from the bucket alone.", "rebuild:rebuild"),
    "quarantine": ListedCommand(
        _MEND,
        "Deal with segments that could not be archived.",
        verbs={
            "list": "quarantine:list_quarantine",
            "show": "quarantine:show",
            "retry": "quarantine:retry",
            "release": "quarantine:release",
            "discard": "quarantine:discard",
        },
    ),
    "dead-letters": ListedCommand(
        _MEND,
        "Deal with events that the upload function could not handle.",
        verbs={
            "list": "dead_letters:list_letters",
            "show": "dead_letters:show_letter",
            "redrive": "dead_letters:redrive",
            "discard": "dead_letters:discard_letters",
        },
    ),
    "up": ListedCommand("Try it", "Run the archive on this machine, on an emulated AWS.", "up:up"),
}
"""The commands, by name, in the order of `coldstream --help`."""
