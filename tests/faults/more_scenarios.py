"""Other forms of commands and functions that are played: they come to requests to which the plain ones do not."""

from __future__ import annotations

from tests.faults.direct_acts import append
from tests.faults.fault_acts import asked, command, function
from tests.faults.fault_scenario import FaultScenario
from tests.faults.faulty_world import REBUILT
from tests.faults.prepared_acts import damage_staged, later, rebuild
from tests.support.segments import START

_BY = ("--by", "alice")
_DELETE = command("delete", "orders", "--yes", *_BY)
_SWEEP = command("sweep", "--yes")
_POLICY = command("policy", "set", "all", "--streams", "*/*", "--max-age", "36500d")
_GRANT = command("access", "grant", "arn:aws:iam::1:role/a", "%2F/orders*")
_SCOPES = "coldstream.jobs:read coldstream.jobs:write coldstream.read:*/*"
_MESSAGES = "/v1/stream/messages?vhost=%2F&name=orders"
_RANGES = "/ranges?vhost=%2F&name=orders&precise=true"

MORE = (
    FaultScenario("resolve precisely", command("resolve", "orders", "150", "--precise"), is_exact=True),
    FaultScenario(
        "resolve a time precisely",
        command("resolve", "orders", f"timestamp:{START + 300}", "--precise"),
        is_exact=True,
    ),
    FaultScenario("resolver, precisely", function("resolver", asked(f"{_RANGES}&offset=150"))),
    FaultScenario("read to an offset", command("read", "orders", "--from", "100", "--to", "200"), is_exact=True),
    FaultScenario("describe quarantine", command("describe", "orders", "-o", "json"), prepared=(damage_staged,)),
    FaultScenario("compact, what it would save", command("compact", "orders", "--older-than", "0s", "--dry-run")),
    FaultScenario(
        "compact into zstd, what it would save",
        command("compact", "orders", "--older-than", "0s", "--encoding", "zstd-seekable", "--dry-run"),
    ),
    FaultScenario("purge begins", _SWEEP, prepared=(_DELETE, later(40))),
    FaultScenario("purge ends", _SWEEP, prepared=(_DELETE, later(40), _SWEEP, later(9))),
    FaultScenario(
        "garbage of write-ahead logs",
        command("garbage", "--delete", "--yes", "--older-than", "1h"),
        prepared=(append, later(90)),
    ),
    FaultScenario(
        "rebuild what is in quarantine",
        rebuild("orders"),
        prepared=(damage_staged,),
        table=REBUILT,
        of=frozenset({"rebuild"}),
    ),
    FaultScenario(
        "rebuild all",
        rebuild(),
        prepared=(_POLICY, _GRANT, append),
        table=REBUILT,
        of=frozenset({"rebuild"}),
    ),
    FaultScenario("scrub of direct streams", command("scrub", "--restart"), prepared=(append,)),
    FaultScenario("API of a stream", function("api", asked("/v1/stream?vhost=%2F&name=orders", _SCOPES))),
    FaultScenario("API of earlier messages", function("api", asked(f"{_MESSAGES}&at=last", _SCOPES))),
)
