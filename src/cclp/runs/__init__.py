"""Run directories: start and resume, checkpoints, the record of a run, inference, export."""
