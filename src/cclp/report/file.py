"""The page as a file: one that somebody has changed is never overwritten."""

import hashlib
import re
from pathlib import Path

from cclp.files import Directory

GENERATOR = '<meta name="generator" content="cclp report">'
_SEAL = re.compile(rb"<!-- sha256:([0-9a-f]{64}) of all above -->\n")


def write_page(path: Path, page: str) -> None:
    """Write a page with its SHA-256 at the end, by which :func:`check_page` knows it again.

    Raises:
        ValueError: if there is something else at ``path``.
    """
    check_page(path)
    content = page.encode(errors="replace")
    content += b"" if content.endswith(b"\n") else b"\n"
    seal = f"<!-- sha256:{hashlib.sha256(content).hexdigest()} of all above -->\n"
    Directory(path.parent).write_bytes(path.name, content + seal.encode())


def check_page(path: Path) -> None:
    """Make sure that a page can be written: nothing is there, or a page as it was written.

    Raises:
        ValueError: if another file is there, or a page that was changed.
    """
    folder = Directory(path.parent)
    if not folder.has(path.name):
        return
    content = folder.read_bytes(path.name)
    begin = content[:2000].lstrip()
    if not (begin.startswith(b"<!doctype html>") and GENERATOR.encode() in begin):
        raise ValueError(f"{path} exists and is not a report: choose another --out")
    *_, last = content.splitlines(keepends=True)
    seal = _SEAL.fullmatch(last)
    above = content.removesuffix(last)
    if seal is None or hashlib.sha256(above).hexdigest() != seal[1].decode():
        raise ValueError(
            f"{path} is not as cclp report wrote it and is never overwritten: move it away, or "
            "choose another --out"
        )
