"""What is kept in memory: the newest batches of each stream, and blocks of the archive, within one budget."""
