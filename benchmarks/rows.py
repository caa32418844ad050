"""Rows of a benchmark that takes long, in a JSON file."""

import sys
from pathlib import Path
from typing import Any

import torch

from cclp.files import write_json
from cclp.runs.record import read_json
from cclp.training.machine import environment

Row = dict[str, Any]


class Rows:
    """What was measured: it is written row by row, so that after a stop the same command resumes.

    Args:
        out: the file; what is in it already is kept.
        command: that measures, to be recorded.

    Attributes:
        content: of the file.
        rows: of the content.
    """

    def __init__(self, out: Path, command: str) -> None:
        self.out = out
        self.content: Row = {"command": command, "rows": []}
        if out.exists():
            self.content = read_json(out.parent, out.name)
        self.rows: list[Row] = self.content["rows"]

    def __contains__(self, key: Row) -> bool:
        return any(key.items() <= row.items() for row in self.rows)

    def add(self, row: Row) -> None:
        """Print a row, and write it to the file."""
        self.rows.append(row)
        print(row, file=sys.stderr, flush=True)
        content = {**self.content, "environment": environment(torch.device("cpu"))}
        write_json(self.out, content)
