"""Requests by chance, right and wrong, to a table of few keys: what one DynamoDB answers, another has to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

TABLE = "by-chance"
INDEX = "by-time"
HASHES, RANGES = ("a", "b", "ä"), ("", "0", "00", "1", "1\x00", "2", "é", "z\U0001f600")
NAMES = ("one", "two", "three", "time")
TABLE_DEFINITION: Mapping[str, Any] = {
    "TableName": TABLE,
    "BillingMode": "PAY_PER_REQUEST",
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("hash", "range", "time")],
    "KeySchema": [{"AttributeName": "hash", "KeyType": "HASH"}, {"AttributeName": "range", "KeyType": "RANGE"}],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": INDEX,
            "KeySchema": [{"AttributeName": "hash", "KeyType": "HASH"}, {"AttributeName": "time", "KeyType": "RANGE"}],
            "Projection": {"ProjectionType": "ALL"},
        }
    ],
}


@dataclass
class Expressed:
    """An expression under construction, with the names and values that it uses."""

    dice: Random
    names: dict[str, str]
    values: dict[str, Any]

    def name(self, name: str) -> str:
        """Return a name, or what stands for it."""
        if name not in {"hash", "range", "time"} and self.dice.random() < 0.5:
            return name
        self.names[f"#{name}"] = name
        return f"#{name}"

    def value(self, value: Mapping[str, Any]) -> str:
        """Return what stands for a value."""
        token = f":v{len(self.values)}"
        self.values[token] = value
        return token

    def fields(self) -> dict[str, Any]:
        """Return the request's fields of names and values."""
        return {
            **({"ExpressionAttributeNames": self.names} if self.names else {}),
            **({"ExpressionAttributeValues": self.values} if self.values else {}),
        }


class RequestMaker:
    """A source of requests, by seed: the same ones each time."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)

    def request(self) -> tuple[str, dict[str, Any]]:
        """Return the client's method and its arguments."""
        usual = ("put_item", "update_item", "delete_item", "get_item", "query")
        kind = self.dice.choice(
            (*usual, *usual, "scan", "transact_write_items", "transact_write_items", "batch_get_item")
        )
        made: dict[str, Any] = getattr(self, f"_{kind}")()
        return kind, made

    def _expressed(self) -> Expressed:
        return Expressed(self.dice, {}, {})

    def _key(self) -> dict[str, Any]:
        return {"hash": {"S": self.dice.choice(HASHES)}, "range": {"S": self.dice.choice(RANGES)}}

    def _item(self) -> dict[str, Any]:
        names = self.dice.sample(NAMES, self.dice.randrange(len(NAMES) + 1))
        return {**self._key(), **{name: self._attribute(name) for name in names}}

    def _attribute(self, name: str) -> dict[str, Any]:
        return {"S": self.dice.choice(("1", "2", "3"))} if name == "time" else self._value()

    def _value(self, depth: int = 0) -> dict[str, Any]:
        kinds = ("S", "N", "B", "BOOL", "NULL", "SS", "NS") + (("L", "M") if depth < 2 else ())
        kind = self.dice.choice(kinds)
        return {kind: self._content(kind, depth)}

    def _content(self, kind: str, depth: int) -> Any:
        dice = self.dice
        makers: Mapping[str, Callable[[], Any]] = {
            "S": lambda: dice.choice(("", "x", "xy", "y", "ü")),
            "N": lambda: dice.choice(("0", "1", "-1", "10", "2.5", "1e2", "0.10")),
            "B": lambda: dice.choice((b"x", b"xy", b"\xff")),
            "SS": lambda: dice.sample(("x", "y", "z"), dice.randrange(1, 4)),
            "NS": lambda: dice.sample(("1", "2.5", "-1"), dice.randrange(1, 4)),
            "L": lambda: [self._value(depth + 1) for _ in range(dice.randrange(3))],
            "M": lambda: {name: self._value(depth + 1) for name in dice.sample(("p", "q"), dice.randrange(3))},
        }
        return makers.get(kind, lambda: True)()

    def _condition(self, made: Expressed, depth: int = 0) -> str:
        name = made.name(self.dice.choice(("one", "two", "three")))
        kind = self.dice.choice(("S", "N"))
        low, high = sorted((self._content(kind, 0) for _ in range(2)), key=str if kind == "S" else float)
        compare = self.dice.choice(("=", "<>", "<", "<=", ">", ">="))
        ways: Sequence[Callable[[], str]] = (
            lambda: f"attribute_exists({name})",
            lambda: f"attribute_not_exists ( {name} )",
            lambda: f"{name} {compare} {made.value({kind: low})}",
            lambda: f"{name} {compare} {made.value({kind: high})}",
            lambda: f"{name} between {made.value({kind: low})} AND {made.value({kind: high})}",
            lambda: f"begins_with({name}, {made.value({'S': 'x'})})",
            lambda: f"contains({name}, {made.value({'S': 'x'})})",
            lambda: f"NOT {self._condition(made, depth + 1)}",
            lambda: f"{self._condition(made, depth + 1)} AND {self._condition(made, depth + 1)}",
            lambda: f"{self._condition(made, depth + 1)} OR {self._condition(made, depth + 1)}",
            lambda: f"({self._condition(made, depth + 1)})",
        )
        way = self.dice.randrange(len(ways) if depth < 2 else len(ways) - 4)
        if way >= len(ways) - 4:
            made.names.pop(name, None)  # It stands for nothing in this one.
        return ways[way]()

    def _conditional(self, made: Expressed) -> dict[str, Any]:
        return {"ConditionExpression": self._condition(made)} if self.dice.random() < 0.5 else {}

    def _put_item(self) -> dict[str, Any]:
        made = self._expressed()
        return {
            "TableName": TABLE,
            "Item": self._item(),
            **self._conditional(made),
            "ReturnValues": self.dice.choice(("NONE", "ALL_OLD")),
            **made.fields(),
        }

    def _delete_item(self) -> dict[str, Any]:
        made = self._expressed()
        return {
            "TableName": TABLE,
            "Key": self._key(),
            **self._conditional(made),
            "ReturnValues": self.dice.choice(("NONE", "ALL_OLD")),
            **made.fields(),
        }

    def _changes(self, made: Expressed) -> str:
        one, two, three = (made.name(name) for name in self.dice.sample(("one", "two", "three"), 3))
        ways = (
            lambda: f"SET {one} = {made.value(self._value())}",
            lambda: f"SET {one} = {two} + {made.value({'N': '1'})}",
            lambda: f"SET {one} = if_not_exists({one}, {made.value({'N': '5'})}) - {made.value({'N': '2'})}",
            lambda: f"SET {one} = list_append({one}, {made.value({'L': [{'S': 'n'}]})}), {two} = {three}",
            lambda: f"SET {one} = {made.value(self._value())} REMOVE {two}, {three}",
            lambda: f"ADD {one} {made.value({'N': '3'})}",
            lambda: f"ADD {one} {made.value({'SS': ['x', 'w']})} SET {two} = {made.value(self._value())}",
            lambda: f"DELETE {one} {made.value({'SS': ['x', 'y']})}",
            lambda: f"REMOVE {one}",
            lambda: f"SET {one}.p = {made.value({'S': 'inside'})}",
        )
        return self.dice.choice(ways)()

    def _update_item(self) -> dict[str, Any]:
        made = self._expressed()
        return {
            "TableName": TABLE,
            "Key": self._key(),
            "UpdateExpression": self._changes(made),
            **self._conditional(made),
            "ReturnValues": self.dice.choice(("NONE", "ALL_OLD", "ALL_NEW", "UPDATED_NEW", "UPDATED_OLD")),
            **made.fields(),
        }

    def _get_item(self) -> dict[str, Any]:
        made = self._expressed()
        asked: dict[str, Any] = {"TableName": TABLE, "Key": self._key()}
        if self.dice.random() < 0.3:
            asked["ProjectionExpression"] = f"{made.name('one')}, {made.name('hash')}"
        return {**asked, **made.fields()}

    def _batch_get_item(self) -> dict[str, Any]:
        keys = {tuple(key[name]["S"] for name in ("hash", "range")): key for key in (self._key() for _ in range(4))}
        return {"RequestItems": {TABLE: {"Keys": list(keys.values())}}}

    def _query(self) -> dict[str, Any]:
        made = self._expressed()
        index = self.dice.choice((None, None, INDEX))
        order = made.name("range" if index is None else "time")
        among: Sequence[str] = RANGES[1:] if index is None else ("1", "2", "3")
        low, high = sorted(self.dice.choice(among) for _ in range(2))
        condition = f"{made.name('hash')} = {made.value({'S': self.dice.choice(HASHES)})}"
        ways = (
            lambda: "",
            lambda: f" AND {order} {self.dice.choice(('=', '<', '<=', '>', '>='))} {made.value({'S': low})}",
            lambda: f" AND {order} BETWEEN {made.value({'S': low})} AND {made.value({'S': high})}",
            lambda: f" AND begins_with({order}, {made.value({'S': low})})",
        )
        way = self.dice.choice(ways)()
        if not way:
            made.names.pop(order, None)
        return {
            "TableName": TABLE,
            **({} if index is None else {"IndexName": index}),
            "KeyConditionExpression": condition + way,
            "ScanIndexForward": self.dice.random() < 0.6,
            **(self._paged(made) if index is None else self._unlimited(made)),
            **made.fields(),
        }

    def _scan(self) -> dict[str, Any]:
        made = self._expressed()
        return {"TableName": TABLE, **self._unlimited(made), **made.fields()}

    def _unlimited(self, made: Expressed) -> dict[str, Any]:
        # Partitions, and items of one time, come in an order of nobody's choice.
        return {name: value for name, value in self._paged(made).items() if name != "Limit"}

    def _paged(self, made: Expressed) -> dict[str, Any]:
        return {
            **({"Limit": self.dice.randrange(1, 4)} if self.dice.random() < 0.5 else {}),
            **({"FilterExpression": self._condition(made)} if self.dice.random() < 0.3 else {}),
            **({"Select": "COUNT"} if self.dice.random() < 0.2 else {}),
        }

    def _transact_write_items(self) -> dict[str, Any]:
        actions: list[dict[str, Any]] = []
        keys = set()
        for _ in range(self.dice.randrange(1, 5)):
            kind = self.dice.choice(("Put", "Update", "Delete", "ConditionCheck"))
            method = {"Put": self._put_item, "Update": self._update_item}.get(kind, self._delete_item)
            made = method()
            made.pop("ReturnValues")
            named = made.get("Item") or made["Key"]
            key = named["hash"]["S"], named["range"]["S"]
            if key in keys:
                continue  # DynamoDB refuses two actions on an item; DynamoDB Local finds another reason first
            keys.add(key)
            if kind == "ConditionCheck" and "ConditionExpression" not in made:
                made["ConditionExpression"] = "attribute_exists(one)"
            if self.dice.random() < 0.5:
                made["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
            actions.append({kind: made})
        return {"TransactItems": actions}
