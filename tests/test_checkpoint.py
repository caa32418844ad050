"""Checkpoints: whole or not there, the last two kept, damage noticed."""

import json
from pathlib import Path

import pytest
import torch

from cclp.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint


def make(step: int) -> Checkpoint:
    tensors = {"w": torch.full((3, 2), float(step)), "n": torch.tensor(step)}
    return Checkpoint(step, tensors, {"seconds": 1.5})


def save(folder: Path, *steps: int) -> None:
    for step in steps:
        save_checkpoint(folder, make(step))


def no_warning(text: str) -> None:
    raise AssertionError(text)


def test_newest_comes_back_as_it_was(tmp_path: Path) -> None:
    save(tmp_path, 9, 10, 100)
    loaded = load_checkpoint(tmp_path, no_warning)
    assert loaded is not None
    assert (loaded.step, loaded.info) == (100, {"seconds": 1.5})
    torch.testing.assert_close(loaded.tensors, make(100).tensors)


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    save(tmp_path, 5, 10, 15, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000015.json",
        "00000015.safetensors",
        "00000020.json",
        "00000020.safetensors",
    ]


def test_memory_format_does_not_change_values(tmp_path: Path) -> None:
    weight = torch.randn(4, 3, 2, 2)
    stored = weight.to(memory_format=torch.channels_last)
    save_checkpoint(tmp_path, Checkpoint(1, {"w": stored}, {}))
    loaded = load_checkpoint(tmp_path, no_warning)
    assert loaded is not None
    assert torch.equal(loaded.tensors["w"], weight)


def test_nothing_there(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "checkpoint", no_warning) is None


def test_an_unfinished_one_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    (tmp_path / "00000003.safetensors").write_bytes(b"half")
    (tmp_path / ".00000003.json.77.partial").write_bytes(b"{")
    loaded = load_checkpoint(tmp_path, no_warning)
    assert loaded is not None
    assert loaded.step == 2
    save(tmp_path, 4)
    assert not (tmp_path / "00000003.safetensors").exists()


def test_what_comes_after_a_fallback_is_kept(tmp_path: Path) -> None:
    save(tmp_path, 100, 200)
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    save(tmp_path, 300)
    for path, content in kept.items():  # killed before pruning
        path.write_bytes(content)
    for step in (200, 300):
        (tmp_path / f"{step:08d}.safetensors").write_bytes(b"damaged")
    fallen = load_checkpoint(tmp_path, lambda text: None)
    assert fallen is not None
    assert fallen.step == 100
    save(tmp_path, 150)
    assert sorted({path.stem for path in tmp_path.iterdir()}) == ["00000100", "00000150"]


@pytest.mark.parametrize("how", ["flip", "cut", "empty", "gone", "json", "no hash", "pickle"])
def test_damage_falls_back_to_the_one_before(tmp_path: Path, how: str) -> None:
    save(tmp_path, 1, 2)
    tensors, about = tmp_path / "00000002.safetensors", tmp_path / "00000002.json"
    content = bytearray(tensors.read_bytes())
    if how == "flip":
        content[-3] ^= 4
        tensors.write_bytes(content)
    elif how == "cut":
        tensors.write_bytes(content[:-5])
    elif how == "empty":
        tensors.write_bytes(b"")
    elif how == "gone":
        tensors.unlink()
    elif how == "json":
        about.write_text(about.read_text()[:20])
    elif how == "no hash":
        about.write_text(json.dumps({"step": 2}))
    else:
        tensors.write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    said: list[str] = []
    loaded = load_checkpoint(tmp_path, said.append)
    assert loaded is not None
    assert loaded.step == 1
    assert len(said) == 1
    assert said[0].startswith("Checkpoint 00000002 is damaged (")


def test_all_damaged_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"no checkpoint in .* remove that folder to begin again"):
        load_checkpoint(tmp_path, lambda text: None)


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    save(tmp_path, 1)
    bad = Checkpoint(2, {"ok": torch.ones(2), "bad": torch.tensor([1.0, float("nan")])}, {})
    with pytest.raises(FloatingPointError, match="bad is not finite after step 2"):
        save_checkpoint(tmp_path, bad)
    loaded = load_checkpoint(tmp_path, no_warning)
    assert loaded is not None
    assert loaded.step == 1
