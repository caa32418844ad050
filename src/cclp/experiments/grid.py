"""A table of text, for a page or a Markdown file."""

from typing import NamedTuple


class Grid(NamedTuple):
    """A table.

    Attributes:
        title: what it shows.
        header: of its columns, the first empty.
        rows: as long as the header.
        ours: number of first rows that stand out.
    """

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    ours: int = 0

    def markdown(self) -> str:
        """With its title above."""
        lines = [f"**{self.title}**", ""]
        lines += [f"| {' | '.join(self.header)} |", f"|{'---|' * len(self.header)}"]
        for number, row in enumerate(self.rows):
            name = f"**{row[0]}**" if number < self.ours else row[0]
            lines.append(f"| {' | '.join((name, *row[1:]))} |")
        return "\n".join(lines) + "\n"
