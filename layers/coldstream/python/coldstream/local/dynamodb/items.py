"""The items of all tables, in SQLite, in the order of their keys.

A key is the bytes of its strings: DynamoDB orders them so, and so does SQLite. Keys of other types are not emulated.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coldstream.local.dynamodb.answers import invalid
from coldstream.local.dynamodb.values import Item, kind_of, stored

_SCHEMA = """
CREATE TABLE items (place TEXT, hash BLOB, range BLOB, item TEXT, PRIMARY KEY (place, hash, range)) WITHOUT ROWID;
CREATE TABLE indexed (
    place TEXT, name TEXT, hash BLOB, range BLOB, own_hash BLOB, own_range BLOB,
    PRIMARY KEY (place, name, hash, range, own_hash, own_range)
) WITHOUT ROWID;
"""
_MAX_HASH_BYTES, _MAX_RANGE_BYTES = 2048, 1024


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The attributes of a key: of the partition, and of the order in it, if there is one."""

    hash: str
    range: str | None

    def of(self, item: Item) -> dict[str, Any]:
        """Return an item's attributes of this key."""
        return {name: item[name] for name in (self.hash, self.range) if name is not None}


@dataclass(frozen=True, slots=True)
class TableKeys:
    """A table's own key, and those of its indexes, by name. `place` is the table's, of all regions."""

    place: str
    own: KeyNames
    indexes: Mapping[str, KeyNames]


Key = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class PartitionPart:
    """A partition, or all of them, and a part of it: from `first` to `last`, both included, or `below` a key.

    The keys begin with `prefix`. `after` is where a page before ended.
    """

    hash: bytes | None = None
    first: bytes = b""
    last: bytes | None = None
    below: bytes | None = None
    prefix: bytes = b""
    after: tuple[bytes, ...] | None = None
    is_forward: bool = True


class StoredItems:
    """Items by table and key. Calls are to be made one at a time."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Forget everything."""
        self._database.close()

    def get(self, table: TableKeys, key: Key) -> dict[str, Any] | None:
        """Return an item."""
        rows = self._database.execute(
            "SELECT item FROM items WHERE place = ? AND hash = ? AND range = ?", (table.place, *key)
        ).fetchall()
        return json.loads(rows[0][0]) if rows else None

    def put(self, table: TableKeys, key: Key, item: Item) -> None:
        """Write an item, and its places in the indexes."""
        self.delete(table, key)
        text = json.dumps({name: stored(value) for name, value in item.items()}, separators=(",", ":"))
        self._database.execute("INSERT INTO items VALUES (?, ?, ?, ?)", (table.place, *key, text))
        for name, names in table.indexes.items():
            if names.hash in item and (names.range is None or names.range in item):
                row = (table.place, name, *key_of(names, item), *key)
                self._database.execute("INSERT INTO indexed VALUES (?, ?, ?, ?, ?, ?)", row)

    def delete(self, table: TableKeys, key: Key) -> None:
        """Delete an item, if it is there."""
        found = self.get(table, key)
        if found is None:
            return
        self._database.execute("DELETE FROM items WHERE place = ? AND hash = ? AND range = ?", (table.place, *key))
        for name, names in table.indexes.items():
            if names.hash in found and (names.range is None or names.range in found):
                row = (table.place, name, *key_of(names, found), *key)
                self._database.execute(
                    "DELETE FROM indexed WHERE place = ? AND name = ? AND hash = ? AND range = ? AND own_hash = ?"
                    " AND own_range = ?",
                    row,
                )

    def drop(self, place: str) -> None:
        """Delete all of a table."""
        self._database.execute("DELETE FROM items WHERE place = ?", (place,))
        self._database.execute("DELETE FROM indexed WHERE place = ?", (place,))

    def within(self, table: TableKeys, part: PartitionPart, index: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield the items of a part of a table or index, in its order. Read as it is asked for."""
        columns = "hash, range" if index is None else "hash, range, own_hash, own_range"
        source = "items" if index is None else "indexed JOIN items USING (place)"
        prefix = "" if index is None else "indexed."
        where, values = ["place = ?"], [table.place]
        if index is not None:
            where += ["name = ?", "items.hash = own_hash", "items.range = own_range"]
            values.append(index)
        bounds: list[bytes] = []
        for condition, bound in (
            (f"{prefix}hash = ?", part.hash),
            (f"{prefix}range >= ?", max(part.first, part.prefix) or None),
            (f"{prefix}range <= ?", part.last),
            (f"{prefix}range < ?", part.below),
            (f"{prefix}range < ?", part.prefix[:-1] + bytes((part.prefix[-1] + 1,)) if part.prefix else None),
        ):
            if bound is not None:
                where.append(condition)
                bounds.append(bound)
        names = ", ".join(prefix + name if name in {"hash", "range"} else name for name in columns.split(", "))
        if part.after is not None:
            where.append(f"({names}) {'>' if part.is_forward else '<'} ({', '.join('?' * len(part.after))})")
            bounds += part.after
        direction = "" if part.is_forward else " DESC"
        order = ", ".join(name + direction for name in names.split(", "))
        query = f"SELECT items.item FROM {source} WHERE {' AND '.join(where)} ORDER BY {order}"  # noqa: S608  no text of a request
        for (text,) in self._database.execute(query, (*values, *bounds)):
            yield json.loads(text)


def key_of(names: KeyNames, item: Item) -> Key:
    """Return an item's key. Raises DynamoError if it lacks a part of it, or has one that cannot be a key."""
    first = _part(names.hash, item, _MAX_HASH_BYTES)
    return first, b"" if names.range is None else _part(names.range, item, _MAX_RANGE_BYTES)


def _part(name: str, item: Item, most: int) -> bytes:
    if name not in item:
        raise invalid(f"One or more parameter values were invalid: Missing the key {name} in the item")
    kind, content = kind_of(item[name])
    if kind != "S" or not isinstance(content, str):
        raise invalid(
            f"One or more parameter values were invalid: Type mismatch for key {name} expected: S actual: {kind}"
        )
    found = content.encode()
    if not found:
        raise invalid(
            "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty"
            f" string value. Key: {name}"
        )
    if len(found) > most:
        raise invalid(
            f"One or more parameter values were invalid: Size of {name} has exceeded the limit of {most} bytes"
        )
    return found
