"""The scrub: table against bucket against bytes, on a budget, and the repairs of what it finds.

`damage.py` names every kind of damage, `catalogue.py` says what each means and what mends it. The `*_checks.py` are
pure: values in, damages out; the `*_check.py` read, and take down what they find. `run.py` walks the streams of an
archive within a budget and goes on where the last run ended; `mend.py` plans the repairs. Nothing here deletes an
object. Begin with `damage.py`.

Reads of a live table may show half of a change, so what a walk finds is only a *suspicion*. It counts once the items
that it is about were read again, all at one moment (`ManifestReads.items_at_once`), and still contradict each other.
"""
