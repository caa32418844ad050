"""Published data sets: where they come from, how they are read, that they are the real ones."""
