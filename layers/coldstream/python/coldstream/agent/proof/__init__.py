"""Proof of what lies on this disk: that it is committed, which stream it is of, and which incarnation of that.

Begin with `broker.py`, which states the rule that everything else here builds on. `names.py` and `search.py` find the
stream of a directory, `incarnations.py` the incarnation of a stream whose directory cannot be seen. Nothing here
changes a file but to remember a proof, and nothing here uploads.
"""
