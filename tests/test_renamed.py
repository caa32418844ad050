"""Options that were renamed are refused with the new name."""

from typing import Any

import pytest
import torch

import cclp
from cclp.cli import RENAMED, main
from cclp.sklearn import CCLPClassifier


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of a command with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    return output.err


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--bandwidth", "--setting cclp.bandwidth="),
        ("--label", "--target"),
        ("--labels", "--num-labels"),
        ("--normalization", "z-scored"),
        ("--prior", "--setting graph_pseudo_label.decay="),
        ("--prior-features", "--pseudo-label-features"),
        ("--similarity", "--setting cclp.similarity="),
        ("--steps", "--max-steps"),
        ("--strategy", "--devices"),
    ],
)
def test_train_names_what_came_instead(
    capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    assert old in RENAMED
    for value in ([old, "1"], [f"{old}=1"]):
        line = refusal(capsys, "train", "no such data", *value)
        assert line.startswith(f"cclp: {old} is ")
        assert new in line


def test_a_command_without_the_new_option_does_not_name_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "--max-steps" not in refusal(capsys, "report", "run", "--steps", "1")
    assert "--max-steps" in refusal(capsys, "compare", "no such data", "--steps", "1")


def test_an_option_that_never_was(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--nonsense" in refusal(capsys, "train", "no such data", "--nonsense")


def test_reproduce_keeps_its_own_labels(capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(capsys, "reproduce", "table1", "--labels", "nonsense")
    assert "--num-labels" not in line
    assert "few" in line


def test_a_renamed_recipe_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "recipe digits is now short" in refusal(capsys, "train", "digits", "--recipe", "digits")


def test_arguments_of_an_earlier_version_work_with_a_warning() -> None:
    z, y = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)), torch.arange(4) % 2
    old: dict[str, Any] = {"steps": 2}
    expected = cclp.cclp_loss(z[:4], y, z[4:], num_classes=2, chain_steps=2)
    with pytest.warns(FutureWarning, match="cclp_loss: steps is called chain_steps"):
        assert cclp.cclp_loss(z[:4], y, z[4:], num_classes=2, **old) == expected
    with pytest.warns(FutureWarning, match="CCLPLoss: steps is called"):
        assert cclp.CCLPLoss(2, **old)(z[:4], y, z[4:]) == expected
    with pytest.warns(FutureWarning, match="graph_health: steps is called"):
        cclp.graph_health(z[:4], y, z[4:], num_classes=2, **old)
    with pytest.warns(FutureWarning, match="CCLPClassifier: steps is called"):
        assert CCLPClassifier(**old).get_params()["chain_steps"] == 2
    with pytest.raises(TypeError, match="give one of them"):
        cclp.CCLPLoss(2, chain_steps=3, **old)
