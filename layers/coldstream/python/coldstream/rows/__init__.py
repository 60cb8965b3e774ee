"""Archived messages as rows of a table, in Arrow's memory."""
