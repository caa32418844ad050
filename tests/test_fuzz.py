"""No reader answers damaged bytes with anything but a ValueError in words."""

import pytest

from tests.fuzz import Target, fuzz, make_targets

EXAMPLES = 300  # make fuzz: 10,000
KINDS = (
    "a.idx", "a.idx.gz", "a.bin", "a.mat", "a.npz", "own.npz", "a.csv", "own.csv", "own.csv.gz",
    "own.parquet", "own.xlsx", "own.npy", "a.npy", "a.png",
    "a.tif", "own.zip", "own.tar", "own.tar.gz", "labels.csv",
    "config.json", "metrics.jsonl", "result.json", "predictions.npz", "unlabeled.npz",
    "verdict.json", "embedding",
    "checkpoint's manifest", "checkpoint's tensors", "results.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    return make_targets(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_bytes_give_a_sentence(targets: dict[str, Target], kind: str) -> None:
    assert targets.keys() == set(KINDS)
    counts = fuzz(targets[kind], EXAMPLES)
    assert sum(counts) == EXAMPLES
    assert counts.refused > EXAMPLES / 10
