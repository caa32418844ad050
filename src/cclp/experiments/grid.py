"""A table of text, for a page or a Markdown file."""

from typing import NamedTuple


class Grid(NamedTuple):
    """A table.

    Attributes:
        title: what it shows.
        header: of its columns, the first empty.
        rows: as long as the header.
    """

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        """With its title above."""
        lines = [f"**{self.title}**", ""]
        lines += [f"| {' | '.join(self.header)} |", f"|{'---|' * len(self.header)}"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join(lines) + "\n"
