"""The manifest made anew from the bucket alone: what `coldstream rebuild` does.

Begin with `run`, which rebuilds streams; `stream` is one of them. `fragment` makes the entry of an object, `choose` and
`epochs` decide between objects of the same offsets, `facts` reads what objects cannot say from the control objects, and
`compare` holds two tables against each other. Nothing here deletes an object, and nothing writes to the bucket.
"""
