"""Ratios, not times."""
