"""What the images of a folder have in common: colour, depth, size."""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median_low
from typing import Any, NamedTuple

from cclp.checks import check_integer
from cclp.data.dataset import check_finite_range
from cclp.data.user.deep import Pixels, Range, find_range
from cclp.data.user.images import no_pillow_warnings, read_deep, read_header
from cclp.progress import Reporter

_LARGE = 3  # times the side that images are resized to: much is lost
_MOST_READ = 200  # images of more than eight bits whose pixels are looked at
_AT_ONCE = 4  # of them in memory


class Survey(NamedTuple):
    """What images have in common.

    Attributes:
        grey: whether none has colour.
        width, height: medians; 0 if no image can be read.
        depths: how many images have which depth.
        pages: images that have more than one page.
        unread: files that are no image that can be read.
        pixel_range: if all images are of one depth of more than eight bits, the range they are
            scaled by, as :func:`cclp.data.user.deep.find_range` finds it from at most 200 of them.
    """

    grey: bool
    width: int
    height: int
    depths: dict[str, int]
    pages: int
    unread: int
    pixel_range: Range | None

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Survey":
        """From a record of ``_asdict()``.

        Raises:
            KeyError, TypeError, ValueError: if it is damaged.
        """
        numbers = {
            name: check_integer(name, content[name], least=0)
            for name in ("width", "height", "pages", "unread")
        }
        found = content["pixel_range"]
        return cls(
            grey=bool(content["grey"]),
            depths={str(name): int(count) for name, count in content["depths"].items()},
            pixel_range=None if found is None else check_finite_range(found),
            **numbers,
        )

    def sentences(self, side: tuple[int, int]) -> Iterator[str]:
        """What the user should know.

        Args:
            side: height and width that the images are resized to.
        """
        if self.width:
            larger = min(self.width, self.height) >= _LARGE * max(side)
            more = f": {2 * max(side)} keeps more detail, in four times the time" if larger else ""
            yield (
                f"Images of about {self.width} x {self.height}, resized to {side[1]} x {side[0]}; "
                f"--image-size changes it{more}"
            )
        deep = {name: count for name, count in self.depths.items() if name != "8-bit"}
        if self.pixel_range is not None:
            (name,) = deep
            low, high = self.pixel_range
            kind = "Images of real numbers" if name == "real" else f"{name} images"
            yield f"{kind}: {low:g} … {high:g} becomes 0 … 255"
        elif len(self.depths) > 1:
            mixed = ", ".join(f"{count} {name}" for name, count in sorted(self.depths.items()))
            yield (
                f"Images of different depths ({mixed}): of those with more than 8 bits, "
                "0 … 65535 becomes 0 … 255, and real numbers are refused"
            )
        if self.pages:
            yield f"{self.pages} TIFF files have more than one page: the first is used"


def survey_images(paths: Sequence[Path], report: Reporter) -> Survey:
    """Look at every file's header, and at the pixels of some images of more than eight bits."""
    headers, unread = [], 0
    with report.work(f"looking at {len(paths)} images", len(paths)) as advance:
        for path in paths:
            header = read_header(path)
            if header is None:
                unread += 1
            else:
                headers.append(header)
            advance(1)
    depths = Counter[str](header.depth for header in headers)
    one_deep = len(depths) == 1 and "8-bit" not in depths
    return Survey(
        grey=all(header.grey for header in headers),
        width=median_low([header.width for header in headers] or [0]),
        height=median_low([header.height for header in headers] or [0]),
        depths=dict(depths),
        pages=sum(header.pages > 1 for header in headers),
        unread=unread,
        pixel_range=find_range(_some_pixels(paths)) if one_deep else None,
    )


def _some_pixels(paths: Sequence[Path]) -> Iterator[Pixels]:
    """Pixels of some images, spread evenly over all."""
    some = paths[:: -(-len(paths) // _MOST_READ)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(some), _AT_ONCE):
            with no_pillow_warnings():
                found = list(pool.map(read_deep, some[start : start + _AT_ONCE]))
            yield from (pixels for pixels in found if pixels is not None)
