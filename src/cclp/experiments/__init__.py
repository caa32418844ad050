"""Experiments: studies of many runs, toy problems, and the cost of the loss."""
