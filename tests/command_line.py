"""Commands as a user calls them, in the process of the test."""

import pytest


def call(*arguments: str) -> int:
    """Run a command; returns its exit code."""
    from cclp.cli import main

    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code
