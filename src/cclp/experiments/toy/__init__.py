"""Section 4 of the paper: points that move freely in two dimensions, without a network."""
