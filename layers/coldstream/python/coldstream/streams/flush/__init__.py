"""From the write-ahead log into the manifest: fragments, committed as uploads are; then the WAL is trimmed."""
