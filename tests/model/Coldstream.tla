----------------------------- MODULE Coldstream -----------------------------
(* One stream's life: upload, quarantine, losses, compaction, removal, deletion, holds, sweep and garbage.

Each action is one transaction of the table, or one request to the bucket. The table's transactions are serial, and
each is planned on exactly the state that it changes (the head's revision is its condition), so an action here looks at
the state as it is. What a process remembers between two requests is not modelled: whoever might remember something is
taken to do so. An object that was ever put may be committed at any time, by an upload that slept; a transaction that
was planned may never come. So a crash, a lost answer and a second process of a kind are no actions of their own.

Offsets are chunk numbers, spans half-open: f up to n. An object, an entry and a copy have a history h: 1 is the
stream's own, 2 another one's, and 0 a damaged copy's. Of an object that spans two segments, h is that of the later
part. g is a generation. A key is <<f, g>>.

Each guard has a name. Without is the name of the one that is switched off, "" for none: tests/model shows that a
behaviour then breaks an invariant. The names of the invariants have the numbers of docs/design.md. *)
EXTENDS Integers, FiniteSets

CONSTANTS
    Chunks,     \* The stream's chunks are 0 to Chunks - 1
    Split,      \* Where the second segment begins, of which there may be two histories
    Archived,   \* The entries at first
    Copies,     \* What agents hold and announce: [f, n, h]
    Cuts,       \* The spans that an upload or a compaction makes: <<f, n>>
    Does,       \* Which actions there are: names in Doing
    Fences,     \* The greatest generation that the head reaches: what would raise it further is not looked at
    Spare,      \* How many more an object may have: enough that a copy whose keys are taken still finds a free one
    Overwrites, \* How often a copy may be staged over another, or once more after its end, or dropped too late
    Ids,        \* Of claims and holds
    Stale,      \* By how many generations the plan of who puts an object may be behind
    Without     \* The guard that is switched off

VARIABLES
    entries,    \* The log: [f, n, g, h]
    floor, gen, \* The head's floor and generation
    life,       \* "there", "deleted", or "purging" once that cannot be undone
    gaps,       \* The items of gaps: [f, n]
    records,    \* Of quarantined segments: [f, n]
    losses,     \* Announced ones: [f, n]
    tombs,      \* [f, n, g, due]
    claims,     \* Deletions that may be under way, and whose time is not over: [id, f, n, doomed]
    holds,      \* [id, f, n, waits]: the claims that were there before it, and are
    told,       \* The ids of holds of which somebody was told that they are placed
    objects,    \* Fragments in the bucket: [f, n, g, h]
    staged,     \* Copies in the bucket, one of a span: [f, n, h]
    kept,       \* Copies in quarantine: [f, n, h]
    dead,       \* Objects that were deleted, and that a writer who slept may still commit
    urls,       \* Keys of which a valid URL may be out: of all entries, and for a while after
    asleep,     \* What a sweep may delete after its claim is over: nothing, as S3 refuses its signature by then
    left,       \* Overwrites that are left
    regretted   \* Whether a deletion was ever undone

log == <<entries, floor, gen, life>>
missing == <<records, losses>>
graves == <<tombs, claims, asleep>>
held == <<holds, told>>
copies == <<staged, kept, left>>
vars == <<log, gaps, missing, graves, held, objects, copies, dead, urls, regretted>>

On(guard, condition) == guard = Without \/ condition

Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Key(o) == <<o.f, o.g>>
Keys(S) == {Key(o) : o \in S}
Span(o) == [f |-> o.f, n |-> o.n]
Meet(a, b) == a.f < b.n /\ b.f < a.n
Within(a, b) == b.f <= a.f /\ a.n <= b.n
Covered(S) == UNION {e.f .. (e.n - 1) : e \in S}
Holes(S) == {hole \in {[f |-> a.n, n |-> b.f] : a \in S, b \in S} :
                hole.f < hole.n /\ ~\E e \in S : Meet(e, hole)}
HeldBy(S, o) == \E h \in S : Meet(h, o)
Tombs(S, due) == {[f |-> e.f, n |-> e.n, g |-> e.g, due |-> due] : e \in S}
Bare(t) == [f |-> t.f, n |-> t.n, g |-> t.g]

\* A copy has ended: its offsets are archived or removed, or quarantine has it, or it is known to be lost.
Settled(s) ==
    \/ (s.f .. (s.n - 1)) \ (0 .. (floor - 1)) \subseteq Covered(entries)
    \/ s \in kept /\ Span(s) \in records
    \/ \E loss \in losses : Within(s, loss)
    \/ life /= "there"

(***************************************************** Upload *****************************************************)

\* The agent stages a copy, and announces it (agent/staging); again as long as it is pinned. At one key the later stays.
Stage(s) ==
    LET there == {c \in staged : Span(c) = Span(s)}
        is_needless == there /= {} \/ Settled(s)
    IN
    /\ s \notin staged
    /\ ~is_needless \/ left > 0
    /\ staged' = (staged \ there) \union {s}
    /\ left' = IF is_needless THEN left - 1 ELSE left
    /\ UNCHANGED <<log, missing, graves, held, objects, kept>>

\* FragmentWriter.put, compact.write, erase: If-None-Match, or the next key if other bytes are there. What an upload
\* puts it read earlier, so the copy may be gone; it takes an object that has the very bytes already, which those
\* of another slice differ from. What is merged or erased was read earlier, too: its entries may be removed by now.
Put(o) ==
    LET highest == Max({gen} \union {e.g : e \in objects}) IN
    /\ objects' = {p \in objects : Key(p) /= Key(o)} \union {o}
    /\ o.h \in {1, 2} /\ (o.h = 2 => o.n > Split)
    /\ \/ /\ \E s \in Copies : Within(o, s) /\ o.h = (IF s.h = 0 THEN 1 ELSE s.h)
          /\ Cardinality({s \in Copies : Within(o, s) /\ s.h \in {0, o.h}}) > 1
             \/ ~\E p \in objects : p.f = o.f /\ p.n = o.n /\ p.h = o.h /\ p.g \in gen .. (o.g - 1)
       \/ /\ "Replace" \in Does /\ o.f .. (o.n - 1) \subseteq Covered(objects \union dead)
          /\ \E p \in objects \union dead : Meet(p, o) /\ p.h = o.h
    /\ o.g >= gen - Stale /\ o.g <= highest + 1
    /\ On("If-None-Match", Key(o) \notin Keys(objects))
    /\ UNCHANGED <<log, missing, graves, held, copies>>

\* manifest.commit.plan_commit: the checks of manifest.floors, and of neighbours; archive.contradiction.
Commit(o) ==
    /\ o \in objects \union dead
    /\ On("not deleted", life = "there")
    /\ On("floor", o.f >= floor)
    /\ On("generation", o.g >= gen)
    /\ On("overlap", ~\E e \in entries : Meet(e, o))
    /\ On("history", \A e \in entries : o.n > Split /\ e.n > Split => e.h = o.h)
    /\ entries' = entries \union {o}
    /\ UNCHANGED <<floor, gen, life, missing, graves, held, objects, copies>>

\* store.discard: tombstones of what was put in vain, or is garbage no more.
Discard(S) ==
    LET fresh == Tombs(S, FALSE) IN
    /\ S /= {} /\ Keys(S) \intersect Keys(entries) = {}
    /\ tombs' = tombs \union fresh
    /\ gen' = IF Without = "discard raises" THEN gen ELSE Max({gen} \union {o.g + 1 : o \in S})
    /\ UNCHANGED <<entries, floor, life, missing, claims, asleep, held, objects, copies>>

\* Uploader._delete and _drop, garbage.staged, and the purge's leftovers. An upload that slept while a deletion was
\* undone drops the copy: its agent has it still, as nothing says that it is archived, and stages it again.
Unstage(s) ==
    /\ s \in staged
    /\ \/ On("settled", Settled(s)) /\ UNCHANGED left
       \/ ~Settled(s) /\ regretted /\ left > 0 /\ left' = left - 1
    /\ staged' = staged \ {s}
    /\ UNCHANGED <<log, missing, graves, held, objects, kept>>

\* archive.quarantine: first the copy, then the record.
Keep(s) ==
    /\ s \in staged /\ s \notin kept
    /\ s.h = 0 \/ \E e \in entries : e.n > Split /\ e.h /= s.h
    /\ kept' = kept \union {s}
    /\ UNCHANGED <<log, missing, graves, held, objects, staged, left>>

Record(s) ==
    /\ On("kept first", s \in kept)
    /\ life = "there" /\ s.n > floor
    /\ records' = records \union {Span(s)}
    /\ UNCHANGED <<log, losses, graves, held, objects, copies>>

\* It goes again if the record was refused, also when the deletion is undone by then; and with a purge.
Unkeep(s) ==
    /\ s \in kept
    /\ IF Span(s) \in records THEN life = "purging" ELSE life /= "there" \/ s.n <= floor \/ regretted
    /\ kept' = kept \ {s}
    /\ UNCHANGED <<log, missing, graves, held, objects, staged, left>>

\* archive.missing.record_loss
Lose(span) ==
    /\ life /= "purging" /\ span.n > floor  \* while a deletion can be undone, too: it is a gap with a reason then
    /\ losses' = losses \union {span}
    /\ UNCHANGED <<log, records, graves, held, objects, copies>>

(********************************************* Compaction and erasure *********************************************)

\* manifest.compaction.plan_replacement, manifest.erasing: one entry in the place of those that it covers.
Replace(o, raises) ==
    LET group == {e \in entries : Within(e, o)} IN
    /\ o \in objects \union dead
    /\ group /= {} /\ Covered(group) = o.f .. (o.n - 1)
    /\ On("new generation", \A e \in group : o.g > e.g)
    /\ On("not deleted", life = "there")
    /\ On("generation", o.g >= gen)
    /\ entries' = (entries \ group) \union {o}
    /\ tombs' = tombs \union Tombs(group, FALSE)
    /\ gen' = IF raises THEN Max({gen} \union {e.g + 1 : e \in group}) ELSE gen  \* An erasure raises it
    /\ UNCHANGED <<floor, life, missing, claims, asleep, held, objects, copies>>

(************************************************ Removal and deletion ************************************************)

\* manifest.removal.plan_prefix_removal: retention, truncation, purge. Only what a purge removes may be due at once.
Remove(P, due) ==
    /\ P /= {} /\ \A e \in P, o \in entries : o.f < e.f => o \in P
    /\ life /= "purging" \/ holds = {}
    /\ On("holds", IF life = "there" THEN \A e \in P : ~HeldBy(holds, e) ELSE holds = {})
    /\ due => life /= "there" /\ Keys(P) \intersect urls = {}
    /\ entries' = entries \ P
    /\ floor' = IF Without = "floor rises" THEN floor ELSE Max({e.n : e \in P})
    /\ gen' = Max({gen} \union {e.g + 1 : e \in P})  \* the floor stands before it
    /\ life' = IF life = "deleted" THEN "purging" ELSE life
    /\ tombs' = tombs \union Tombs(P, due)
    /\ UNCHANGED <<missing, claims, asleep, held, objects, copies>>

\* manifest.deletion
Delete ==
    /\ life = "there" /\ On("holds", holds = {})
    /\ life' = "deleted" /\ gen' = gen + 1
    /\ UNCHANGED <<entries, floor, missing, graves, held, objects, copies>>

Undelete ==
    /\ life = "deleted" \/ (Without = "purge is final" /\ life = "purging")
    /\ life' = "there" /\ gen' = gen + 1
    /\ UNCHANGED <<entries, floor, missing, graves, held, objects, copies>>

\* manifest.purging: of a log without entries; and what is known to be missing goes. plan_purged raises the generation.
BeginPurge ==
    /\ life = "deleted" /\ entries = {} /\ holds = {}
    /\ life' = "purging"
    /\ UNCHANGED <<entries, floor, gen, missing, graves, held, objects, copies>>

Forget(R, L) ==
    /\ life = "purging" /\ entries = {} /\ R \union L /= {}
    /\ records' = records \ R /\ losses' = losses \ L
    /\ UNCHANGED <<log, graves, held, objects, copies>>

EndPurge ==
    /\ life = "purging" /\ entries = {} /\ records = {} /\ losses = {}
    /\ gen' = gen + 1
    /\ UNCHANGED <<entries, floor, life, missing, graves, held, objects, copies>>

(******************************************************* Holds *******************************************************)

\* lifecycle.holds.put_hold: the transaction; and the answer, when what was claimed before is over.
Hold(h) ==
    /\ life /= "purging"
    /\ \A x \in holds : x.id /= h.id
    /\ h.waits = {c.id : c \in {x \in claims : Meet(x, h)}}
    /\ holds' = holds \union {h}
    /\ UNCHANGED <<log, missing, graves, told, objects, copies>>

Tell(h) ==
    /\ h \in holds /\ h.id \notin told
    /\ On("hold waits", h.waits = {})
    /\ told' = told \union {h.id}
    /\ UNCHANGED <<log, missing, graves, holds, objects, copies>>

Release(h) ==
    /\ h \in holds
    /\ holds' = holds \ {h} /\ told' = told \ {h.id}
    /\ UNCHANGED <<log, missing, graves, objects, copies>>

(*************************************************** Sweep and garbage ***************************************************)

End(C) ==
    /\ claims' = claims \ C
    /\ holds' = {[h EXCEPT !.waits = @ \ {c.id : c \in C}] : h \in holds}

\* Time passes: tombstones become due, when each URL has expired; claims are over, and S3 refuses what is signed by them.
Pass(T, C) ==
    /\ T \union C /= {}
    /\ \A t \in T : ~t.due /\ On("grace", Key(t) \notin urls)
    /\ tombs' = (tombs \ T) \union {[t EXCEPT !.due = TRUE] : t \in T}
    /\ End(C)
    /\ asleep' = IF Without = "signature" THEN asleep \union UNION {c.doomed : c \in C} ELSE asleep
    /\ UNCHANGED <<log, missing, told, objects, copies>>

\* store.holding.claim_deletion: of a sweep, whose `doomed` are those that are due and not held, or of garbage.
Claim(c) ==
    /\ claims' = claims \union {c}
    /\ \A x \in claims : x.id /= c.id
    /\ \A d \in c.doomed : /\ Within(d, c)
                           /\ \E t \in tombs : Bare(t) = d /\ t.due
                           /\ On("claim looks at holds", ~HeldBy(holds, d))
    /\ UNCHANGED <<log, missing, tombs, asleep, held, objects, copies>>

\* lifecycle.sweep: DeleteObjects, signed at the time of the claim.
Sweep(K) ==
    LET doomed == IF Without = "claim" THEN {Bare(t) : t \in {x \in tombs : x.due}}
                  ELSE asleep \union UNION {c.doomed : c \in claims} IN
    /\ K /= {} /\ Keys(K) \subseteq Keys(doomed)
    /\ Keys(K) \intersect Keys(entries) = {}  \* what has a tombstone is never named, so this stands behind all else
    /\ objects' = objects \ K
    /\ UNCHANGED <<log, missing, graves, held, copies>>

EndClaim(c) ==
    /\ c \in claims /\ End({c})
    /\ UNCHANGED <<log, missing, tombs, asleep, told, objects, copies>>

\* manifest.compaction.plan_sweep
Bury(T) ==
    /\ T /= {} /\ \A t \in T : t.due
    /\ Keys(T) \intersect (Keys(objects) \ Keys(entries)) = {}  \* else an object is left to garbage, which is no harm
    /\ tombs' = tombs \ T
    /\ UNCHANGED <<log, missing, claims, asleep, held, objects, copies>>

\* garbage.fragments: a fence, and then what nothing names, and no tombstone. The purge's leftovers need no fence.
Fence(g) ==
    /\ g >= gen /\ gen' = g
    /\ UNCHANGED <<entries, floor, life, missing, graves, held, objects, copies>>

Collect(K) ==
    /\ K /= {} /\ \A o \in K : /\ On("fence", o.g < gen \/ life = "purging")
                               /\ On("garbage looks at the log", Key(o) \notin Keys(entries))
                               /\ On("garbage looks at tombstones", Key(o) \notin urls)
                               /\ ~\E h \in holds : h.id \in told /\ Meet(h, o)
    /\ objects' = objects \ K
    /\ UNCHANGED <<log, missing, graves, held, copies>>

-------------------------------------------------------------------------------------------------------------------

Fragments == {[f |-> c[1], n |-> c[2], g |-> g, h |-> h] : c \in Cuts, g \in 0 .. (Fences + Spare), h \in {1, 2}}
Spans == {span \in {[f |-> f, n |-> n] : f \in 0 .. (Chunks - 1), n \in 1 .. Chunks} : span.f < span.n}
Due == {Bare(t) : t \in {x \in tombs : x.due}}
Hull(D) == [f |-> Min({d.f : d \in D}), n |-> Max({d.n : d \in D})]
NewId == Ids \ ({c.id : c \in claims} \union {h.id : h \in holds})
MayCommit == objects \union dead

\* Some say first what stays as it is, so that a step of the code is soon seen to be none of theirs.
Doing(action) ==
    \/ action = "Stage" /\ \E s \in Copies : Stage(s)
    \/ action = "Unstage" /\ \E s \in Copies : Unstage(s)
    \/ action = "Put" /\ UNCHANGED <<entries, tombs, staged>> /\ \E o \in Fragments : Put(o)
    \/ action = "Commit" /\ \E o \in MayCommit : Commit(o)
    \/ action = "Discard" /\ UNCHANGED <<entries, objects>> /\ \E a, b \in MayCommit : Discard({a, b})
    \/ action = "Keep" /\ \E s \in Copies : Keep(s)
    \/ action = "Record" /\ \E s \in Copies : Record(s)
    \/ action = "Unkeep" /\ \E s \in Copies : Unkeep(s)
    \/ action = "Lose" /\ \E span \in Spans \ losses : Lose(span)
    \/ action = "Replace" /\ \E o \in MayCommit, raises \in BOOLEAN : Replace(o, raises)
    \/ action = "Remove" /\ UNCHANGED <<objects, claims>> /\ \E P \in SUBSET entries, due \in BOOLEAN : Remove(P, due)
    \/ action = "Delete" /\ Delete
    \/ action = "Undelete" /\ Undelete
    \/ action = "BeginPurge" /\ BeginPurge
    \/ action = "Forget" /\ UNCHANGED <<log, objects>> /\ \E R \in SUBSET records, L \in SUBSET losses : Forget(R, L)
    \/ action = "EndPurge" /\ EndPurge
    \/ action = "Hold" /\ UNCHANGED <<log, objects>> /\ \E span \in Spans, id \in NewId :
        Hold([id |-> id, f |-> span.f, n |-> span.n, waits |-> {c.id : c \in {x \in claims : Meet(x, span)}}])
    \/ action = "Tell" /\ \E h \in holds : Tell(h)
    \/ action = "Release" /\ \E h \in holds : Release(h)
    \/ action = "Pass" /\ UNCHANGED <<log, objects>> /\ \E T \in SUBSET {t \in tombs : ~t.due}, C \in SUBSET claims : Pass(T, C)
    \/ action = "Claim" /\ UNCHANGED <<log, objects>> /\ \E D \in (SUBSET Due) \ {{}}, id \in NewId :
        Claim([id |-> id, f |-> Hull(D).f, n |-> Hull(D).n, doomed |-> D])
    \* Garbage's, or a sweep's that read its tombstones before others came.
    \/ action = "Claim more" /\ UNCHANGED <<log, objects>> /\ \E D \in SUBSET Due, id \in NewId, span \in Spans :
        Claim([id |-> id, f |-> span.f, n |-> span.n, doomed |-> D])
    \/ action = "Sweep" /\ UNCHANGED <<log, graves>> /\ \E K \in SUBSET objects : Sweep(K)
    \/ action = "EndClaim" /\ \E c \in claims : EndClaim(c)
    \/ action = "Bury" /\ UNCHANGED <<log, objects>> /\ \E T \in SUBSET tombs : Bury(T)
    \/ action = "Fence" /\ \E g \in (gen + 1) .. Fences : Fence(g)
    \/ action = "Collect" /\ UNCHANGED <<log, graves>> /\ \E K \in SUBSET objects : Collect(K)

\* What follows from the rest: the items of gaps, who may still commit what is gone, which URLs may be out. The world
\* ends at the last fence. A head that went past the last key would leave copies waiting that in truth have a next one.
Follows ==
    /\ gen' <= Fences
    /\ gaps' = Holes(entries')
    /\ regretted' = (regretted \/ (life = "deleted" /\ life' = "there"))
    /\ dead' = {o \in dead \union (objects \ objects') : Without \in {"generation", "fence"} \/ o.g >= gen'}
    /\ urls' = urls \union (IF life' = "there" THEN Keys(entries') ELSE {})

\* A URL expires: one that was signed as long as its entry was there.
Expire(key) ==
    /\ key \in urls /\ (life /= "there" \/ key \notin Keys(entries))
    /\ urls' = urls \ {key}
    /\ UNCHANGED <<log, gaps, missing, graves, held, objects, copies, dead, regretted>>

Next == (\E action \in Does : Doing(action) /\ Follows) \/ \E key \in urls : Expire(key)

Init ==
    /\ entries = Archived /\ objects = Archived /\ gaps = Holes(Archived)
    /\ floor = 0 /\ gen = 0 /\ life = "there"
    /\ records = {} /\ losses = {} /\ tombs = {} /\ claims = {} /\ holds = {} /\ told = {}
    /\ staged = {} /\ kept = {} /\ dead = {} /\ asleep = {} /\ left = Overwrites
    /\ urls = Keys(Archived) /\ regretted = FALSE

\* Agents stage again what is pinned, and each event comes again until its copy has ended; then it does what is left to
\* do, with the copy's own bytes. Nobody else needs to act. An upload that comes again reads the head anew
\* (Uploader.upload), so it puts at no generation below the head's. Each of the six is needed: see tests/model.
Progress(s) ==
    /\ \/ Settled(s) /\ Without /= "again: Unstage" /\ Unstage(s)
       \/ ~Settled(s) /\ Without /= "again: Stage" /\ Stage(s)
       \/ ~Settled(s) /\ s \in staged /\
            \/ Without /= "again: Keep" /\ Keep(s)
            \/ Without /= "again: Record" /\ Record(s)
            \/ /\ Without /= "again: Put"
               /\ s.h /= 0 /\ \E o \in Fragments : o.h = s.h /\ Within(o, s) /\ o.g >= gen /\ Put(o)
            \/ Without /= "again: Commit" /\ \E o \in objects : o.h = s.h /\ Within(o, s) /\ Commit(o)
    /\ Follows

Spec == Init /\ [][Next]_vars
LiveSpec == Spec /\ \A s \in Copies : WF_vars(Progress(s))

(*************************************************** Invariants ***************************************************)

Inv2_EntriesHaveObjects == entries \subseteq objects
Inv3_OneHistory == \A a, b \in entries : a.n > Split /\ b.n > Split => a.h = b.h
Inv4_NoSilentGap == gaps = Holes(entries)
Inv5_NoOverlap == \A a, b \in entries : a = b \/ ~Meet(a, b)
Inv5_UrlsWork == urls \subseteq Keys(objects)
Inv1_QuarantineHasCopies == life = "there" => \A r \in records : \E s \in kept : Span(s) = r
Inv10_NothingBelowFloor == \A e \in entries : e.f >= floor
Inv10_BuriedStayBuried == Keys(tombs) \intersect Keys(entries) = {}

\* Of a world in which all that is staged has to end. An upload tries the keys from the head's generation on
\* (FragmentWriter.put), and there is always a next one; where a world has none left, a copy would wait for it alone.
Edge_KeysAreLeft == \A s \in staged : s.h = 0 \/ Settled(s) \/
    \E o \in Fragments : Within(o, s) /\ o.h = s.h /\ o.g >= gen /\ (o \in objects \/ Key(o) \notin Keys(objects))

\* Of each step.
Inv1_ArchivedStays == [][Covered(entries) \ Covered(entries') \subseteq 0 .. (floor' - 1)]_vars
Inv1_CopiesStay == [][\A s \in staged \ staged' :
    Settled(s) \/ left' < left \/ \E c \in staged' : Span(c) = Span(s)]_vars
Inv8_DeletedIsDeleted == [][life /= "there" => entries' \subseteq entries]_vars
Inv10_NeverFalls == [][floor' >= floor /\ gen' >= gen /\ (life = "purging" => life' = "purging")]_vars
Inv10_HeldStays == [][\A h \in holds : h.id \in told =>
    /\ \A o \in objects \ objects' : ~Meet(h, o)
    /\ \A e \in entries : Meet(h, e) => e.f .. (e.n - 1) \subseteq Covered(entries')]_vars

\* Liveness: what is announced ends in the manifest or in quarantine, unless it is removed, lost or deleted first.
AnnouncedEnds == \A s \in Copies : (s \in staged) ~> Settled(s)
=============================================================================
