"""DynamoDB's tables of a laptop: items in SQLite, by DynamoDB's rules and limits, behind the embedded AWS's port."""
