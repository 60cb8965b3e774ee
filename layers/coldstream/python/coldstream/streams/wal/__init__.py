"""The write-ahead log (WAL) of a writer: objects of one sequence, into which all of its streams' batches go first."""
