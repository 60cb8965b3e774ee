"""The small worlds in which TLC looks at all behaviours of the model, and what has to hold there.

CI's are finished within seconds each. `make prove` looks at LARGER ones, too, as far as its hours go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

INVARIANTS = (
    "Inv1_QuarantineHasCopies", "Inv2_EntriesHaveObjects", "Inv3_OneHistory", "Inv4_NoSilentGap", "Inv5_NoOverlap",
    "Inv5_UrlsWork", "Inv10_NothingBelowFloor", "Inv10_BuriedStayBuried",
)  # fmt: skip
STEPS = ("Inv1_ArchivedStays", "Inv1_CopiesStay", "Inv8_DeletedIsDeleted", "Inv10_NeverFalls", "Inv10_HeldStays")
LIVENESS = "AnnouncedEnds"
EDGE = "Edge_KeysAreLeft"
"""Of worlds with liveness: none is so small that a copy waits because there is no next key."""

AGAIN = ("Stage", "Unstage", "Keep", "Record", "Put", "Commit")
"""What the model takes to be done again and again until a copy has ended: fairness, which `again: Stage` takes away."""

UPLOADS = ("Stage", "Unstage", "Put", "Commit")
QUARANTINE = ("Keep", "Record", "Unkeep")
SWEEP = ("Pass", "Claim", "Sweep", "EndClaim", "Bury")
GARBAGE = ("Fence", "Collect")
HOLDS = ("Hold", "Tell", "Release")
DELETION = ("Delete", "Undelete", "BeginPurge", "Forget", "EndPurge")


@dataclass(frozen=True, slots=True)
class ModelWorld:
    """One world: the constants of the model. `copies` are (f, n, h), `cuts` (f, n), and `archived` (f, n, g, h)."""

    does: tuple[str, ...]
    chunks: int = 1
    split: int = 0
    archived: tuple[tuple[int, int, int, int], ...] = ()
    copies: tuple[tuple[int, int, int], ...] = ()
    cuts: tuple[tuple[int, int], ...] = ((0, 1),)
    fences: int = 1
    spare: int = 0
    overwrites: int = 0
    ids: tuple[int, ...] = ()
    stale: int = 1
    is_live: bool = False

    def module(self, name: str) -> str:
        """Return a module with the constants that a configuration cannot have."""
        archived = ", ".join(f"[f |-> {f}, n |-> {n}, g |-> {g}, h |-> {h}]" for f, n, g, h in self.archived)
        copies = ", ".join(f"[f |-> {f}, n |-> {n}, h |-> {h}]" for f, n, h in self.copies)
        cuts = ", ".join(f"<<{f}, {n}>>" for f, n in self.cuts)
        return (
            f"---- MODULE {name} ----\nEXTENDS Coldstream\nTheArchived == {{{archived}}}\nTheCopies == {{{copies}}}\n"
            f"TheCuts == {{{cuts}}}\n====\n"
        )

    def config(self, without: str = "") -> str:
        """Return TLC's configuration, with one guard switched off, or one part of fairness."""
        does = ", ".join(f'"{action}"' for action in self.does)
        properties = [*STEPS, *([LIVENESS] if self.is_live else [])]
        return "\n".join(
            [
                f"SPECIFICATION {'LiveSpec' if self.is_live else 'Spec'}",
                "CONSTANTS",
                f"Chunks = {self.chunks}",
                f"Split = {self.split}",
                "Archived <- TheArchived",
                "Copies <- TheCopies",
                "Cuts <- TheCuts",
                f"Does = {{{does}}}",
                f"Fences = {self.fences}",
                f"Spare = {self.spare}",
                f"Overwrites = {self.overwrites}",
                f"Ids = {{{', '.join(map(str, self.ids))}}}",
                f"Stale = {self.stale}",
                f'Without = "{without}"',
                *(f"INVARIANT {name}" for name in (*INVARIANTS, *([EDGE] if self.is_live else []))),
                *(f"PROPERTY {name}" for name in properties),
            ]
        )


WORLDS = {
    "histories": ModelWorld(
        (*UPLOADS, *QUARANTINE), chunks=2, copies=((0, 2, 1), (0, 2, 2)), cuts=((0, 1), (1, 2)), fences=0, overwrites=1
    ),
    "announced": ModelWorld(
        (*UPLOADS, *QUARANTINE), copies=((0, 1, 1), (0, 1, 2)), fences=0, spare=2, overwrites=2, is_live=True
    ),
    "losses": ModelWorld(
        (*UPLOADS, *QUARANTINE, "Lose", "Remove", "Delete"),
        copies=((0, 1, 0), (0, 1, 1)),
        spare=1,
        overwrites=1,
        is_live=True,
    ),
    "garbage": ModelWorld(
        (*UPLOADS, *GARBAGE, *SWEEP, "Discard", "Remove"), copies=((0, 1, 1),), fences=2, spare=0, ids=(1,), stale=2
    ),
    "compaction": ModelWorld(
        ("Put", "Commit", "Replace", "Remove", *SWEEP, *GARBAGE),
        chunks=2,
        archived=((0, 1, 0, 1), (1, 2, 0, 1)),
        cuts=((0, 1), (0, 2)),
        fences=1,
        spare=0,
        ids=(1,),
    ),
    "holds": ModelWorld(
        ("Put", "Replace", "Remove", *HOLDS, *SWEEP),
        archived=((0, 1, 0, 1),),
        fences=1,
        ids=(1, 2, 3),
    ),
    "deletion": ModelWorld(
        (*UPLOADS, "Discard", "Remove", *DELETION, *SWEEP, *GARBAGE, "Hold", "Tell"),
        archived=((0, 1, 0, 1),),
        copies=((0, 1, 1),),
        fences=2,
        ids=(1,),
    ),
}
"""CI's: each TLC looks through to its end."""

LARGER = {
    "histories": replace(WORLDS["histories"], copies=((0, 2, 1), (0, 2, 2), (0, 1, 1)), overwrites=2, spare=1),
    "losses": replace(WORLDS["losses"], fences=3),
    "announced": replace(WORLDS["announced"], does=(*UPLOADS, *QUARANTINE, *GARBAGE, "Discard"), fences=2),
    "garbage": replace(WORLDS["garbage"], chunks=2, copies=((0, 2, 1), (0, 1, 1)), cuts=((0, 1), (1, 2))),
    "compaction": replace(WORLDS["compaction"], fences=2, ids=(1, 2)),
    "holds": replace(
        WORLDS["holds"], chunks=2, archived=((0, 1, 0, 1), (1, 2, 0, 1)), cuts=((0, 1), (1, 2), (0, 2)), fences=2
    ),
    "deletion": replace(WORLDS["deletion"], fences=3, ids=(1, 2, 3)),
}
