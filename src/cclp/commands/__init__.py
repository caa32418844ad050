"""What ``cclp …`` can do, a file for each kind of command. Heavy imports wait until one runs."""
