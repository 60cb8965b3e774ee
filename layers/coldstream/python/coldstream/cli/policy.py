"""`coldstream policy`: how long which streams are kept, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from coldstream.cli.options import Output
from coldstream.cli.quantities import duration_ms_of, parse_option
from coldstream.cli.stores import open_stores
from coldstream.terminal.output import (
    Format,
    count_text,
    duration_text,
    printable,
    size_text,
    write,
    write_json,
    write_table,
)

if TYPE_CHECKING:
    from coldstream.errors import NotFoundError
    from coldstream.manifest.policy import Policy

PolicyName = Annotated[str, typer.Argument(help="Name of the policy.", metavar="NAME", show_default=False)]


def set_policy(
    name: PolicyName,
    *,
    streams: Annotated[
        str,
        typer.Option(
            help="VHOST/STREAM, percent-encoded; `*` stands for any characters: '%2F/orders*', 'tenant-7/*'.",
            metavar="PATTERN",
        ),
    ],
    priority: Annotated[int, typer.Option(help="Of the policies that name a stream, the greatest applies alone.")] = 0,
    max_age: Annotated[str | None, typer.Option(help="Remove what is older, such as 90d.", metavar="TIME")] = None,
    max_size: Annotated[
        str | None, typer.Option(help="Remove the oldest above this size of a stream, such as 2TiB.", metavar="SIZE")
    ] = None,
    keep_age: Annotated[
        str | None, typer.Option(help="Keep at least what is younger, whatever its size.", metavar="TIME")
    ] = None,
    keep_size: Annotated[
        str | None, typer.Option(help="Keep at least so much, whatever its age.", metavar="SIZE")
    ] = None,
    keep_messages: Annotated[
        int | None, typer.Option(help="Keep at least so many messages, whatever their age.", min=0, metavar="NUMBER")
    ] = None,
    storage_class: Annotated[
        Literal["STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"] | None,
        typer.Option(help="Move what is old to this class. GLACIER and DEEP_ARCHIVE must be restored to be read."),
    ] = None,
    storage_class_after: Annotated[
        str | None, typer.Option(help="Move what is older, such as 30d.", metavar="TIME")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Write a policy, over the one of that name.

    Whole fragments are removed, the oldest first, and only by `coldstream retention run`, or by the retention function
    if its stack's parameter Retention says so. Without any policy, a stream is kept for ever. Examples: `coldstream
    policy set default --streams '*/*' --max-age 365d`, `coldstream policy set audit --streams '%2F/audit*' --priority
    10`, which keeps those for ever.
    """
    from coldstream.errors import InvalidSettingError
    from coldstream.lifecycle.policies import set_policy as write_policy
    from coldstream.manifest.entry import StorageClass
    from coldstream.manifest.policy import Policy
    from coldstream.units import parse_size

    if (storage_class is None) != (storage_class_after is None):
        raise InvalidSettingError("--storage-class", "goes with --storage-class-after: say both")
    new = Policy(
        name=name,
        pattern=streams,
        priority=priority,
        max_age_ms=duration_ms_of("--max-age", max_age),
        max_bytes=parse_option("--max-size", max_size, parse_size),
        least_messages=keep_messages,
        least_bytes=parse_option("--keep-size", keep_size, parse_size),
        least_age_ms=duration_ms_of("--keep-age", keep_age),
        storage_class=None if storage_class is None else StorageClass(storage_class),
        storage_class_age_ms=duration_ms_of("--storage-class-after", storage_class_after),
    )
    write_policy(open_stores(), new)
    if output is Format.JSON:
        write_json(_to_json(new))
        return
    write(printable(f"policy {new.name}: {_sentence(new)}"))


def policies(*, output: Output = Format.TEXT) -> None:
    """List the policies, those that come first at the top. Example: `coldstream policy list`."""
    found = sorted(open_stores().table.policies(), key=lambda one: (-one.priority, one.name))
    if output is Format.JSON:
        for one in found:
            write_json(_to_json(one))
        return
    write_table(
        ("policy", "streams", "priority", "what it does"),
        [(one.name, one.pattern, one.priority, _sentence(one)) for one in found],
    )
    if not found:
        typer.echo("no policy: everything is kept for ever", err=True)


def show(name: PolicyName, *, output: Output = Format.TEXT) -> None:
    """Show a policy, and the streams to which it applies. Example: `coldstream policy show default`."""
    from coldstream.manifest.policy import match
    from coldstream.store.streams import iter_streams

    table = open_stores().table
    every = table.policies()
    found = next((one for one in every if one.name == name), None)
    if found is None:
        raise _not_found(name)
    streams = [stream for stream in iter_streams(table) if match(every, stream) == found]
    if output is Format.JSON:
        applied = [{"vhost": one.vhost, "name": one.name, "incarnation": one.incarnation} for one in streams]
        write_json({**_to_json(found), "applies_to": applied})
        return
    write(printable(f"policy {found.name}, streams {found.pattern}, priority {found.priority}: {_sentence(found)}"))
    write(f"it applies to {count_text(len(streams), 'stream')}")
    for stream in streams:
        write(printable(f"  {stream} ({stream.incarnation})"))


def rm(name: PolicyName, *, output: Output = Format.TEXT) -> None:
    """Remove a policy. Its streams get the next policy that names them; without one they are kept for ever.

    Example: `coldstream policy rm default`. Before it, `coldstream policy list` shows which policies are left.
    """
    from coldstream.lifecycle.policies import remove_policy

    if not remove_policy(open_stores(), name):
        raise _not_found(name)
    if output is Format.JSON:
        write_json({"name": name, "removed": True})
        return
    write(printable(f"removed policy {name}"))


def _not_found(name: str) -> NotFoundError:
    from coldstream.errors import NotFoundError

    err = NotFoundError(f"no policy {name!r}")
    err.add_note("`coldstream policy list` lists them")
    return err


def _sentence(policy: Policy) -> str:
    """Say what a policy does, as one line."""
    limits = []
    if policy.max_age_ms is not None:
        limits.append(f"what is older than {duration_text(policy.max_age_ms / 1000)}")
    if policy.max_bytes is not None:
        limits.append(f"the oldest above {size_text(policy.max_bytes)}")
    parts = [f"removes {' and '.join(limits)}" if limits else "keeps for ever"]
    least = []
    if policy.least_age_ms is not None:
        least.append(f"what is younger than {duration_text(policy.least_age_ms / 1000)}")
    if policy.least_bytes is not None:
        least.append(size_text(policy.least_bytes))
    if policy.least_messages is not None:
        least.append(count_text(policy.least_messages, "message"))
    if limits and least:
        parts.append(f"keeps at least {', '.join(least)}")
    if policy.storage_class is not None and policy.storage_class_age_ms is not None:
        parts.append(f"moves to {policy.storage_class} after {duration_text(policy.storage_class_age_ms / 1000)}")
    return "; ".join(parts)


def _to_json(policy: Policy) -> dict[str, object]:
    return {
        "name": policy.name,
        "streams": policy.pattern,
        "priority": policy.priority,
        "max_age_ms": policy.max_age_ms,
        "max_bytes": policy.max_bytes,
        "keep_messages": policy.least_messages,
        "keep_bytes": policy.least_bytes,
        "keep_age_ms": policy.least_age_ms,
        "storage_class": policy.storage_class,
        "storage_class_age_ms": policy.storage_class_age_ms,
    }
