"""Experiments: many runs, resumable, and what they say together."""
