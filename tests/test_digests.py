"""Training computes, to the last bit, what it computed when the digests were recorded."""

import json
import platform

import pytest

from tests.digests import RECORDED, in_common_mode


@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"),
    reason="digests are recorded for x86-64",
)
def test_every_recipe_and_method_trains_the_same_weights() -> None:
    assert in_common_mode() == json.loads(RECORDED.read_text())
