"""Replay into a table: files of rows, in a directory or a bucket, each message once.

    run.py              which spans of offsets are missing: begin reading here
    marks.py            which spans the table has, and which were begun
    write.py            one span into files, whose borders depend on the rows alone
    files.py, lines.py  Parquet, and lines of JSON
    layout.py           names of directories and files
    directory.py        a directory of this machine, or a bucket: files appear whole, or not at all

Spark's job has another way into tables (spark/coldstream_spark/tables.py) and shares layout.py alone.
"""
