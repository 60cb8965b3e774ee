"""Replay: put what is archived back, into a broker or into tables."""
