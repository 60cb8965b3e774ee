"""Compaction: small fragments become large ones, and compressed ones, while readers and uploads go on.

    plan     plan.py                      the log of a stream, cut into groups (manifest.groups)
    read     blocks.py, verifier.py       the objects of a group, read ahead and verified to the last byte
    write    write.py                     the merged object at a fresh key:
             merge.py, merge_plan.py        identity fragments, whose bytes S3 copies by itself
             rewrite.py, frame_parts.py     any fragments, compressed on the way (flow.frame_sink)
             footer.py, part_upload.py      what both need
    commit   commit.py                    the merged entry takes the place of the group's, whose objects get tombstones
    sweep    lifecycle.sweep              objects whose tombstones are due go

Begin with run.py, which does all of this for some streams; task.py and remote_writer.py are what travels when other
processes write. savings.py foretells what a run would do. Of the package only the command line and Spark's jobs make
use; it knows neither a terminal nor Spark. Transactions are planned in manifest.compaction and only applied here.

A run may be killed anywhere. An object that was written and not committed stays, named by nothing, and costs only its
storage. A commit that was begun is finished by the next run of any process: the head of the stream says that it is not.
"""
