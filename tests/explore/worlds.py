"""The worlds that are explored: who is at work, and what may befall them.

WHOLE are searched to their ends in CI. NEAREST are larger: CI visits the states that the fewest switches and faults
lead to. `make prove` searches all of them as far as its hours go, and every pair and many triples besides.
"""

from __future__ import annotations

from itertools import combinations

from tests.explore.actors import PLAIN, STAGED

WHOLE = (
    ("upload+delete", "2c1l0r"),
    ("upload+garbage", "0c0l0r"),
    ("slice+other", "1c1l0r"),
    ("late+cut", "2c1l0r"),
    ("late+cut", "1c1l0r2s"),
    ("late+erase", "0c0l0rv"),
    ("hold+cut", "1c0l0r"),
    ("fold+hold", "0c0l0r1d"),
    ("cut+sweep", "1c0l0r2d"),
    ("purge+regret", "0c0l0r"),
    ("delete+undelete", "0c0l1rh"),
    ("garbage+sweep", "1c0l0r"),
    ("bad+lose", "0c0l0r"),
    ("purge+hold+late", "0c0l0r"),
    ("upload+rival", "0c0l0r"),
    ("north+south", "2c1l0rn"),
    ("late+slice", "1c1l0rn"),
    ("rebuild+sweep+cut", "0c0l0r"),
    ("rebuild+upload", "0c0l0rp"),
    ("cut+garbage", "0c0l0rp"),
    ("read+upload", "0c0l0rhi"),
    ("upload+lose", "0c0l2r1s"),
    ("expire+hold", "0c0l0r1dpv"),
    ("slice+twice+lose", "0c0l0r"),
    ("slice+late+cut", "1c0l0r"),
)

NEAREST = (
    ("upload+slice+other", "1c1l0r"),
    ("upload+compact+retain", "1c0l0r"),
    ("upload+delete+garbage", "2c0l0r"),
    ("slice+other+erase", "0c1l0r"),
    ("expire+upload+garbage", "1c0l0r"),
    ("release+fold+upload", "1c0l0r"),
    ("undelete+regret+purge", "1c0l0r"),
    ("outrun+slice+garbage", "1c0l0r"),
    ("erase+compact+sweep", "1c0l0r"),
    ("bad+lose+upload+cut", "0c0l0rh"),
    ("upload+rebuild+fold+garbage", "0c0l1r"),
    ("erase+cut", "0c0l0rv"),
    ("erase+cut+sweep", "1c0l0r1dpv"),
    ("slice+other+cut", "1c0l0rp"),
    ("read+slice+fold", "0c0l0rhi"),
    ("upload+lose+hold+cut", "1c1l1r1s"),
)

DIRECT = (
    ("append", "2c0l0r"),
    ("append+closing", "0c0l0r"),
    ("closing+destroy", "0c0l0r"),
)
"""Appenders of a direct stream, whole in CI."""

DIRECT_FURTHER = (
    ("append+append.2", "2c1l0r"),
    ("appends+closing+append", "0c0l0r"),
    ("closing+trim+append", "1c0l0r"),
    ("append+closing+collect", "1c0l0r"),
    ("append+destroy", "2c1l0r"),
    ("next+append", "1c1l0r"),
    ("append+force+closing", "0c0l0r"),
    ("closing+trim+destroy", "0c1l0r"),
)

PAST = (
    ("append+force", "0c0l0r"),
    ("next+append", "0c0l0r"),
    ("append+blind", "1c0l0r"),
    ("append+destroy", "0c0l0r"),
    ("holed+append", "1c1l0r"),
    ("straddled+append", "1c1l0r"),
    ("rebuilt+append", "1c1l0r"),
    ("held-direct+trim", "1c1l0r"),
)
"""What a direct stream has been through, and appenders that guards are for, whole in CI."""

JOBS = (
    ("work+work.2", "0c0l0r"),
    ("work", "2c1l0r"),
    ("work", "1c1l0r1s"),
    ("work+cancel", "0c0l0r"),
    ("work+pause+resume", "0c0l0r"),
    ("work+edit", "0c0l0r"),
    ("flawed+resume+remove", "0c0l0r"),
    ("again+drop", "1c1l0r"),
    ("create+create.2", "1c2l0r"),
    ("belated+work", "0c0l0r"),
)
"""Workers and people at one job, whole in CI."""

JOBS_FURTHER = (
    ("work+work.2", "1c1l0r1s"),
    ("work+work.2+cancel", "1c0l0r"),
    ("work+edit+pause", "1c1l0r"),
    ("work+cancel", "1c1l0r1s"),
    ("again+again.2+drop+remove", "0c1l0r"),
    ("flawed+resume+remove+edit", "1c1l0r"),
)

FURTHER = (
    ("slices+give-up+lose-4-8", "0c0l0rh"),
    ("slices-hole+give-up+lose-4-12", "0c0l0rh"),
    ("slices+give-up+hold", "0c0l0r"),
    ("sparse+second+fourth+compact", "0c0l0rh"),
    ("tail+lose-8-12", "1c1l0rh"),
    ("rival-middle+tail", "1c0l0r"),
    ("hole+rival-middle+late", "1c0l0r"),
    ("move+hold", "1c0l0r"),
    ("move+garbage", "1c0l0r"),
    ("move+delete+sweep", "1c0l0r"),
    ("emptied+purge+hold", "1c0l0r"),
    ("held+fold+cut", "1c0l0r"),
    ("deleted+undelete+purge", "1c0l0r"),
    ("lacking+purge+hold", "1c0l0r"),
)
"""Worlds of guards: other bases, and actors that no pair above has."""

ACTORS = (*PLAIN, *STAGED, "rival")


EXTRAS = ("1c1l1r", "0c0l2r", "1c0l0r1dv", "0c0l0rp", "1c0l0r1s", "0c1l0rhi", "1c1l0rn")
"""What befalls each pair besides two crashes, and halves."""

TWO_SEGMENTS = {"upload", "twice", "slice", "other", "outrun", "rival", "bad", "lose"}
"""Actors to whom the second segment matters."""


def all_worlds() -> list[tuple[str, str]]:
    """Return every world of `make prove`: those above, each pair of actors with two crashes, by halves and otherwise,
    each three without faults, and those about both segments with a crash and pages, and by halves while the index lags.
    """
    pairs = [(f"{one}+{two}", "2c1l0r") for one, two in combinations(ACTORS, 2)]
    twins = [(f"{one}+{one}.2", faults) for one in PLAIN for faults in ("1c0l0r", "0c0l0rh", "0c0l0r1dpv")]
    halves = [(f"{one}+{two}", "0c0l0rh") for one, two in combinations(ACTORS, 2)]
    extras = [(f"{one}+{two}", faults) for one, two in combinations(ACTORS, 2) for faults in EXTRAS]
    threes = ["+".join(three) for three in combinations(ACTORS, 3)]
    both = ["+".join(three) for three in combinations(ACTORS, 3) if TWO_SEGMENTS & {*three}]
    found = [
        *(*WHOLE, *NEAREST, *pairs, *twins, *halves, *extras),
        *((three, "0c0l0r") for three in threes),
        *((three, faults) for three in both for faults in ("1c0l0rp", "0c0l0rhi")),
    ]
    return list(dict.fromkeys(found))
