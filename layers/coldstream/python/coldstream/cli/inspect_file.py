"""`coldstream inspect`: the contents of a segment, an index or a fragment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coldstream.cli.options import Output
from coldstream.terminal.output import Format, printable, write, write_json

_CHUNK = "{position:>11}  {chunk_id:>12}  {type:<17}  {records:>7}  {entries:>7}  {timestamp:<24}  {epoch:>5}  {rest}"
_RECORD = "{chunk_id:>12}  {type:<17}  {timestamp:<24}  {epoch:>5}  {position:>11}"
_HEADS: dict[str, tuple[str, dict[str, str]]] = {
    "chunk": (
        _CHUNK,
        {
            "position": "byte",
            "chunk_id": "chunk",
            "type": "type",
            "records": "records",
            "entries": "entries",
            "timestamp": "timestamp",
            "epoch": "epoch",
            "rest": "bloom + data + trailer",
        },
    ),
    "index record": (
        _RECORD,
        {"chunk_id": "chunk", "type": "type", "timestamp": "timestamp", "epoch": "epoch", "position": "byte"},
    ),
}
_PREVIEW_CHARACTERS = 100


def inspect_file(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE", show_default=False)],
    *,
    messages: Annotated[
        bool, typer.Option("--messages", help="Show each chunk's messages and tracking records, too.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Show what a segment, index or fragment holds.

    A fragment may be compressed. Everything is verified. A damaged file is shown up to the damage, and the error names
    the byte. Example: `coldstream inspect 00000000000000000000.segment`.
    """
    from coldstream.cli.file_items import file_items

    is_first = True
    for item in file_items(file, with_messages=messages):
        if output is Format.JSON:
            write_json(item)
            continue
        if is_first and item["what"] in _HEADS:
            row, heads = _HEADS[item["what"]]
            write(row.format(**heads).rstrip())
        is_first = False
        for line in _lines(item):
            write(line)


def _lines(item: dict[str, Any]) -> list[str]:
    match item["what"]:
        case "chunk":
            rest = f"{item['bloom_bytes']} + {item['data_bytes']} + {item['trailer_bytes']}"
            return [_CHUNK.format(**item, rest=rest)]
        case "index record":
            return [_RECORD.format(**item)]
        case "message":
            body = printable(item.get("body", item.get("raw")))
            shown = (
                body if len(body) <= _PREVIEW_CHARACTERS else f"{body[:_PREVIEW_CHARACTERS]}… ({len(body)} characters)"
            )
            return [f"{'':13}{item['offset']:>12}  {shown}"]
        case "tracking":
            return [f"{'':13}{item['type']:>12}  {printable(item['id'])} at {item['value']}"]
        case _:
            return ["", *(f"{name.replace('_', ' '):<16}{printable(value)}" for name, value in item.items())]
