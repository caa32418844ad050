"""What keeps the repository in step with itself; not part of the package."""
