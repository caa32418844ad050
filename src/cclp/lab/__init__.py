"""A page to touch the method: free points in the plane, and training runs as they evolve."""
