"""The texts that specs of jobs take beyond what JSON Schema can say: durations, sizes, times, schedules, names.

The document gives each such field a `format`; Schemathesis makes its texts by these strategies.
"""

from __future__ import annotations

import schemathesis
from hypothesis import strategies as st

DURATION = st.from_regex(r"[0-9]{1,4}(ms|s|m|h|d)?", fullmatch=True)
PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=60)
NAME = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)
AGO = st.from_regex(r"-[0-9]{1,3}(s|m|h|d)", fullmatch=True)
TIME = st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='milliseconds')}Z")
OFFSET = st.integers(0, 2**64 - 1).map(str)
END = st.one_of(OFFSET, TIME, AGO, st.just("yesterday"))
START = st.one_of(END, st.sampled_from(["first", "last", "next"]))
EVERY = st.integers(1, 999).map(lambda hours: f"every {hours}h")
CRON = st.tuples(st.integers(0, 59), st.integers(0, 23)).map(lambda at: f"{at[0]} {at[1]} * * *")

UNTIL = st.one_of(OFFSET, TIME)
PLACE = st.one_of(UNTIL, st.sampled_from(["first", "last", "next"]))
CONDITION = st.one_of(
    st.integers(0, 10**6).map("size > {}".format),
    st.integers(0, 200).map("offset >= {}".format),
    st.sampled_from(["body", "properties.message_id", "app.region", "json:/user/id"]).map(
        lambda field: f'{field} = "x"' if field != "body" else 'body ~ "error"'
    ),
)

FORMATS = {
    "duration": DURATION,
    "interval": st.integers(1, 999).map(lambda seconds: f"{seconds}s"),
    "target-size": st.integers(4, 1000).map(lambda mib: f"{mib}MiB"),
    "read-size": st.from_regex(r"[1-9][0-9]{0,3}(MiB|GB)", fullmatch=True),
    "offsets": st.integers(0, 2**63).map(lambda first: f"{first}:"),
    "start": START,
    "end": END,
    "store-start": st.one_of(START, st.just("now")),
    "schedule": st.one_of(EVERY, CRON),
    "text": PRINTABLE,
    "name": NAME,
    "value": NAME,
    "until": UNTIL,
    "place": PLACE,
    "page": st.one_of(PLACE, OFFSET.map("before:{}".format)),
    "predicate": st.lists(CONDITION, min_size=1, max_size=3).map(" and ".join),
}
for name, strategy in FORMATS.items():
    schemathesis.openapi.format(f"coldstream-{name}", strategy)
