"""What mkdocs does not do by itself: files outside docs/, and formulas without a script.

Pages are written so that they read well where the repository is looked at: they lead to
``../results`` and ``../examples``. On the site those files lie beside the pages; a folder leads to
the page that describes how it was made. Formulas between dollars become MathML.
"""

import re
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
FOLDERS = ("results", "examples")
ENDINGS = (".png", ".svg", ".gif", ".json", ".csv", ".py", ".md")


def on_files(files: Files, config: Any) -> Files:
    """Add the files that pages link to."""
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*")):
        if path.suffix in ENDINGS and "runs" not in path.parts:
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links and turn formulas into MathML."""
    if "/" not in page.file.src_uri:
        markdown = re.sub(r"\]\(\.\./((?:results|examples)[^)#]*)", _inside, markdown)
    markdown = markdown.replace("```console", "```bash")  # coloured although there is no prompt
    parts = re.split(r"(```.*?```|`[^`\n]+`)", markdown, flags=re.DOTALL)  # code stays as it is
    parts[::2] = [_formulas(part) for part in parts[::2]]
    return "".join(parts)


def on_page_content(html: str, **_: Any) -> str:
    """Docstrings have roles, as Sphinx knows them: formulas are drawn, all else is a name."""
    html = re.sub(r":math:<code>(.*?)</code>", lambda m: convert(unescape(m[1])), html)
    return re.sub(r":(?:attr|class|data|func|meth|mod):<code>~?", "<code>", html)


def _inside(match: re.Match[str]) -> str:
    """A file where the site has it; for a folder, the page about all of them."""
    target = match[1].rstrip("/")
    if (ROOT / target).is_dir():
        target = f"{target.split('/')[0]}/README.md"
    return f"]({target}"


def _formulas(text: str) -> str:
    text = re.sub(r"\$\$(.+?)\$\$", _block, text, flags=re.DOTALL)
    return re.sub(r"(?<!\\)\$([^$\n]+)\$", lambda m: convert(m[1]), text)


def _block(match: re.Match[str]) -> str:
    """A formula on lines of its own; on a narrow screen it is moved sideways, not the page."""
    formula = convert(match[1].strip(), display="block")
    return f'<div style="overflow-x: auto">{formula}</div>'
