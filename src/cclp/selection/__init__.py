"""Which model suits the data: judged by cross-validation over the few labels."""
