"""Pseudo-labels by label propagation on a k-nearest-neighbour graph of all training inputs."""
