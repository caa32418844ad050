"""No reader answers damaged bytes with anything but a ValueError in words."""

import pytest

from tests.fuzz import Target, fuzz, fuzz_structure, make_targets

EXAMPLES, STRUCTURED_EXAMPLES = 300, 60  # make fuzz: 10,000 and 2,000
KINDS = (
    "a.idx", "a.idx.gz", "a.bin", "a.mat", "a.npz", "own.npz", "a.csv", "own.csv", "own.csv.gz",
    "own.parquet", "own.xlsx", "own.npy", "a.npy", "a.png",
    "a.tif", "own.zip", "own.tar", "own.tar.gz", "labels.csv",
    "config.json", "metrics.jsonl", "result.json", "predictions.npz", "unlabeled.npz",
    "generated.npz", "verdict.json", "embedding",
    "checkpoint's manifest", "checkpoint's tensors", "results.json",
)  # fmt: skip
STRUCTURED_KINDS = (
    "a.npz", "own.npz", "config.json", "metrics.jsonl", "result.json", "predictions.npz",
    "unlabeled.npz", "generated.npz", "verdict.json", "embedding", "results.json",
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


@pytest.mark.parametrize("kind", STRUCTURED_KINDS)
def test_wrong_values_keys_and_types_give_a_sentence(targets: dict[str, Target], kind: str) -> None:
    counts = fuzz_structure(targets[kind], STRUCTURED_EXAMPLES)
    assert sum(counts) == STRUCTURED_EXAMPLES
    assert counts.refused > STRUCTURED_EXAMPLES / 10
