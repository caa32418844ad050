"""Options that were renamed are refused with the new name."""

import pytest

from cclp.cli import RENAMED, main


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
