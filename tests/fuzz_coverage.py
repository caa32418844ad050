"""Damaged bytes that are chosen by the code they reach, with atheris, which is to be installed.

    pip install atheris
    python -m tests.fuzz_coverage own.parquet -max_total_time=60

The first argument is a kind of file of :mod:`tests.fuzz`, others are options of libFuzzer. A file
that a reader answers with anything but a ValueError is kept in build/.
"""

import sys
import tempfile
from pathlib import Path

FOUND = Path("build")


def main(kind: str, *options: str) -> None:
    """Fuzz one kind of file until libFuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=["cclp"]):
        from tests.fuzz import MOST_MEMORY, SECONDS, make_targets

    with tempfile.TemporaryDirectory() as folder:
        target = make_targets(Path(folder))[kind]
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        (corpus / "whole").write_bytes(target.path.read_bytes())

        def attempt(content: bytes) -> None:
            target.path.write_bytes(content)
            try:
                target.read()
            except ValueError as error:
                assert len(str(error).split()) >= 3, repr(error)  # noqa: PT017 - only if raised

        FOUND.mkdir(exist_ok=True)
        limits = [f"-timeout={SECONDS}", f"-rss_limit_mb={2 * MOST_MEMORY // 2**20}"]
        prefix = f"-artifact_prefix={FOUND}/{kind.replace(' ', '-')}-"
        atheris.Setup([sys.argv[0], *limits, prefix, *options, str(corpus)], attempt)
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
