"""Training computes, but for rounding, what it computed when the digests were recorded."""

import json

import pytest

from tests.digests import RECORDED, in_common_mode, tolerance


def test_every_recipe_and_method_trains_the_same_weights() -> None:
    found, recorded = in_common_mode(), json.loads(RECORDED.read_text())
    assert found.keys() == recorded.keys()
    for name, (norm, *projections) in found.items():
        most = tolerance(name)
        expected, *others = recorded[name]
        assert norm == pytest.approx(expected, rel=most), name
        assert projections == pytest.approx(others, abs=most), name
