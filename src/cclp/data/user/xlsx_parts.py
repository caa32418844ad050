"""What reading an Excel file takes, by the elements of XML in it.

openpyxl makes objects of a row, of a shared string, and of all that is in neither, before it gives
them away; five bytes of XML can become a thousand in memory. So elements are counted first.
"""

import zipfile
from typing import IO
from xml.parsers import expat

from cclp.data.budget import Budget
from cclp.data.unpack import open_member

_BYTES_OF_XML = 2  # in memory, of a byte in a sheet: its texts are all kept
_BYTES_OF_ELEMENT = 80  # that has been read: empty, but still in the tree
_BYTES_OF_OBJECT = 1000  # of one that is being read, or that stays
_READ_ONE_BY_ONE = {("worksheet", "sheetData", "row"), ("sst", "si")}
_DEEPEST = 100
_CHUNK = 2**20


def take_parts(archive: zipfile.ZipFile, budget: Budget) -> None:
    """Ask for all that openpyxl takes to read a file, but for the cells that it gives.

    Raises:
        ValueError: if there is no room, or a member is compressed by another program.
    """
    for item in archive.infolist():
        with open_member(archive, item) as part:
            budget.take(_BYTES_OF_XML * item.file_size)
            _Elements(budget).count(part)


class _Elements:
    """Counts the elements of a part of the file.

    Attributes:
        small: elements that are left in the tree.
        large: those that are objects at a time: of the largest row so far, and outside of rows.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.small = self.large = self.most = self.here = 0
        self.path: list[str] = []
        self.inside = 0  # depth of the row that is being read; 0: none

    def count(self, part: IO[bytes]) -> None:
        parser = expat.ParserCreate()
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        small = large = 0
        while True:
            content = part.read(_CHUNK)
            try:
                parser.Parse(content, not content)
            except expat.ExpatError:  # a picture; or damaged, and openpyxl stops here too
                content = b""
            self.budget.take(_BYTES_OF_ELEMENT * (self.small - small))
            self.budget.take(_BYTES_OF_OBJECT * (self.large + self.most - large))
            small, large = self.small, self.large + self.most
            if not content:
                return

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.path.append(name.rpartition(":")[2])
        if len(self.path) > _DEEPEST:
            raise ValueError("its XML is too deep")
        self.small += 1
        if self.inside:
            self.here += 1
            self.most = max(self.most, self.here)
        elif len(self.path) <= 3 and tuple(self.path) in _READ_ONE_BY_ONE:
            self.inside, self.here = len(self.path), 0
        else:
            self.large += 1

    def _end(self, name: str) -> None:
        if self.inside == len(self.path):
            self.inside = 0
        self.path.pop()
