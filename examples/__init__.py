"""Scripts that use the library as a newcomer would; each runs in the tests."""
