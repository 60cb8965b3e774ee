"""The options of maintain.py: an action, and what the command of that name has for it."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

from coldstream.compact.arguments import LONGEST_URL_EXPIRY
from coldstream.terminal.exits import HELP
from coldstream.terminal.options import StreamArguments, add_options, option
from coldstream_spark.report import ABOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainArguments(StreamArguments):
    """What all actions have."""

    every: bool = option(False, flag="--all", help="Every stream of every vhost, in each of its incarnations.")
    jobs: int = option(64, help="Tasks at a time.", metavar="N")
    part: int | None = option(
        None,
        help="About how many fragments are one task's; a stream that has more is shared by several."
        " Default: 1000; for garbage 100,000; for scrub --deep 100.",
        metavar="N",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunArguments(MaintainArguments):
    """What an action has that changes something."""

    dry_run: bool = option(False, help="Show what a run would do, and change nothing.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalArguments(DryRunArguments):
    """What an action has that removes objects from the log: they stay for a while."""

    url_expiry: str = option(
        LONGEST_URL_EXPIRY,
        help="How long URLs of the archive's resolvers are valid. What is removed stays an hour longer than that.",
        metavar="TIME",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageArguments(DryRunArguments):
    """What garbage has."""

    delete: bool = option(False, help="Delete what is proven to be garbage; else it is only reported.")
    older_than: str = option(
        "24h", help="Leave fragments alone that are younger, by S3's clock; at least 1h.", metavar="DURATION"
    )
    unknown_streams: bool = option(False, help="Count fragments of streams that nothing knows as garbage, too.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubArguments(MaintainArguments):
    """What the scrub has."""

    deep: bool = option(False, help="Read every byte: each chunk, each frame, and replay the journal.")
    repair: bool = option(False, help="Mend what has a repair. Nothing is deleted.")
    take_again: bool = option(
        False, help="With --repair: remove an entry whose object is damaged, so that an agent announces it again."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildArguments(DryRunArguments):
    """What the rebuild has."""

    to_table: str = option("", help="The table to write, which has nothing of these streams.", metavar="TABLE")
    at: str | None = option(
        None, help="Rebuild what the bucket was then, such as 2026-01-31T09:30:00Z.", metavar="TIME"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseArguments(RemovalArguments):
    """What the erasure of one stream has."""

    offsets: str | None = option(None, help="Offsets A:B. Without B up to the tail.", metavar="A:B")
    filter_value: str | None = option(None, help="Messages that say this filter value themselves.")
    key: str | None = option(None, help="Messages with this key, by which super streams route.")
    where: str | None = option(
        None,
        help="Messages for which this function is true; its module goes to the executors by --py-files.",
        metavar="MODULE:FUNCTION",
    )
    reason: str = option("", help="Why: a ticket, a request. It stays in the journal for good.")
    by: str | None = option(None, help="Who does this. Default: the user of this machine.", variable="COLDSTREAM_BY")
    grace: str | None = option(None, help="Time until the sweep may delete the old objects.", metavar="TIME")
    with_quarantine: bool = option(False, help="First delete other copies of the bytes.")
    resume: bool = option(False, help="Go on with what was interrupted.")
    erasure_id: str | None = option(
        None, help="The id of the erasure: if it is there, go on with it; else begin it.", metavar="ID"
    )
    selection: str | None = option(
        None, help="The conditions as the journal has them, with digests of values; for other programs.", metavar="JSON"
    )


ACTIONS: dict[str, tuple[type[MaintainArguments], str]] = {
    "retention": (RemovalArguments, "Remove what the policies let go, and move what they want colder."),
    "sweep": (RemovalArguments, "Delete the objects whose grace is over; purge deleted streams."),
    "garbage": (GarbageArguments, "Find objects that belong to nothing, and delete them."),
    "scrub": (ScrubArguments, "Compare table, bucket and bytes."),
    "rebuild": (RebuildArguments, "Make the manifest's table anew, from the bucket alone."),
    "erase": (EraseArguments, "Erase messages: their bytes go for good."),
}


def parser(about: str) -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    options = argparse.ArgumentParser(prog="maintain.py", description=about, epilog=HELP)
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (arguments, what) in ACTIONS.items():
        one = actions.add_parser(name, help=what, description=what, epilog=HELP)
        one.add_argument("--stream", action="append", default=[], metavar="NAME", help="This one. Repeatable.")
        add_options(one, arguments)
        if arguments is EraseArguments:
            one.add_argument(
                "--property",
                action="append",
                default=[],
                dest="properties",
                metavar="FIELD=VALUE",
                help="Messages with this value in a field, such as properties.user_id=alice. Repeatable.",
            )
        one.add_argument("--report", metavar="NAME", help=ABOUT)
        for where in ("table", "bucket", "prefix"):
            variable = f"COLDSTREAM_{where.upper()}"
            about_it = f"The archive's {where}. Else {variable} in the environment."
            one.add_argument(f"--{where}", default=os.environ.get(variable, ""), help=about_it)
    return options
