"""Archived messages as rows of a table, in Arrow's memory.

For jobs that write tables and for Spark; needs pyarrow and numpy (extra `replay`). It takes verified chunks and knows
neither stores nor files. Begin with `schema.py`, the columns, and then `batches.py`. Below it, `plain.py` finds the
values of simple messages without a Python object for each, and `cells.py` decodes all other messages.
"""
