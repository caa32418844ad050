"""Numbers as inline SVG. Colours are CSS classes, so that light and dark are the page's affair."""

import json
import math
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

POINTS = 400  # of a line at most
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 10, 44  # around the lines of a chart


@dataclass(frozen=True)
class Series:
    """A line: its name, its colour's CSS class, values by step. NaN leaves a gap."""

    name: str
    colour: str
    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Scale:
    """An axis from values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, low))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high)


def linear_ticks(low: float, high: float) -> list[float]:
    """Four to seven round numbers between two."""
    unit = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(f * unit for f in (1, 2, 2.5, 5, 10) if (high - low) / (f * unit) <= 6)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, at most seven of them; of few, their double and fivefold too."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    every = max(1, math.ceil((last - first) / 6))
    found = [f * 10.0**e for e in range(first, last + 1, every) for f in factors]
    return [value for value in found if low * 0.999 <= value <= high * 1.001]


def short(value: float) -> str:
    """A number in few characters.

    >>> short(0.25), short(12345.6), short(3.21e-7)
    ('0.25', '12,346', '3.2e−7')
    """
    if not math.isfinite(value):
        return "not finite"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}".replace("-", "−")


def tick_text(value: float, log: bool) -> str:
    """A number at an axis: far powers of ten as such.

    >>> tick_text(1e-13, log=True), tick_text(0.1, log=True)
    ('10⁻¹³', '0.1')
    """
    text = short(value)
    if not log or not text.startswith("1e"):
        return text
    return "10" + text[2:].translate(str.maketrans("−0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def thin(x: list[float], y: list[float]) -> tuple[list[float], list[float]]:
    """At most :data:`POINTS` means of neighbours; NaN only where none of them is finite."""
    if len(x) <= POINTS:
        return x, y
    groups = np.array_split(np.arange(len(x)), POINTS)
    values = np.array(y)
    means = [values[g][np.isfinite(values[g])] for g in groups]
    return (
        [float(x[g[-1]]) for g in groups],
        [float(m.mean()) if len(m) else math.nan for m in means],
    )


def line_chart(
    series: list[Series],
    *,
    label: str,
    y_label: str,
    unit: str = "",
    decades: int = 0,
    top: float | None = None,
    limit: float | None = None,
    dots: bool = False,
    size: tuple[int, int] = (480, 270),
) -> Markup:
    """Lines over training steps.

    Args:
        series: the lines.
        label: what the chart shows, for those who do not see it; first and last values are added.
        y_label: of the axis, with its unit.
        unit: written after values.
        decades: if any, the axis of values is logarithmic, and spans so many at most.
        top: the axis goes up to this at least; None: as far as the values do.
        limit: a dashed line: beyond it there is a warning.
        dots: whether values are marked.
        size: width and height; the page scales it to the room there is.
    """
    width, height = size
    right = width - RIGHT
    kept = [Series(s.name, s.colour, *thin(s.x, s.y)) for s in series]
    finite = [v for s in kept for v in s.y if math.isfinite(v)]
    if not finite:
        return Markup('<p class="note">No finite value was recorded.</p>')
    last = max(x for s in kept for x in s.x)
    across = Scale(0, last or 1, LEFT, right)
    values = [*finite, *([limit] if limit is not None else []), *([top] if top is not None else [])]
    up = _value_scale(values, decades, height)
    parts = [_axes(across, up, y_label, height)]
    if limit is not None:
        y = f"{up(limit):.1f}"
        parts.append(
            Markup('<line class="limit" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
                LEFT, right, y, y
            )
        )
    for line in kept:
        parts.append(_line(line, across, up, dots))
    data = {
        "x0": 0, "x1": across.high, "left": LEFT, "right": right, "unit": unit,
        "series": [
            {"name": s.name, "colour": s.colour, "x": s.x, "y": [short(v) for v in s.y]}
            for s in kept
        ],
    }  # fmt: skip
    summary = "; ".join(_in_words(s, unit) for s in series)
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" tabindex="0" aria-label="{}" '
        'data-chart="{}">{}<line class="cursor" y1="{}" y2="{}"/></svg>'
    ).format(
        width, height, f"{label}. {summary}.", json.dumps(data, separators=(",", ":")),
        Markup("").join(parts), TOP, height - BOTTOM,
    )  # fmt: skip


def _value_scale(values: list[float], decades: int, height: int) -> Scale:
    low, high = min(values), max(values)
    if decades:
        positive = [v for v in values if v > 0] or [1.0]
        low, high = min(positive), max(positive)
        low, high = max(low, high / 10**decades), high * 1.1
        return Scale(low, high, height - BOTTOM, TOP, log=True)
    low = min(low, 0.0)
    if high == low:
        high = low + 1
    return Scale(low, high + 0.04 * (high - low), height - BOTTOM, TOP)


def _axes(across: Scale, up: Scale, y_label: str, height: int) -> Markup:
    """Grid lines, numbers and the names of both axes."""
    bottom = height - BOTTOM
    parts = []
    for value in up.ticks:
        y = round(up(value), 1)
        parts.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>'
                '<text x="{}" y="{}" text-anchor="end">{}</text>'
            ).format(LEFT, across.end, y, y, LEFT - 7, round(y + 4, 1), tick_text(value, up.log))
        )
    for value in across.ticks:
        x = round(across(value), 1)
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
                x, bottom + 18, short(value)
            )
        )
    middle = (bottom + TOP) / 2
    parts.append(
        Markup(
            '<line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>'
            '<text class="name" x="{}" y="{}" text-anchor="middle">training step</text>'
            '<text class="name" x="12" y="{}" text-anchor="middle" '
            'transform="rotate(-90 12 {})">{}</text>'
        ).format(
            LEFT, across.end, bottom, bottom, (LEFT + across.end) / 2, height - 7,
            middle, middle, y_label,
        )
    )  # fmt: skip
    return Markup("").join(parts)


def _line(series: Series, across: Scale, up: Scale, dots: bool) -> Markup:
    """A path that is broken where values are missing, and its dots."""
    known = [math.isfinite(value) for value in series.y]
    path, marks = [], []
    for i, (step, value) in enumerate(zip(series.x, series.y, strict=True)):
        if not known[i]:
            continue
        place = f"{across(step):.1f} {up(value):.1f}"
        joined = i > 0 and known[i - 1]
        path.append(f"{'L' if joined else 'M'}{place}")
        if dots or not (joined or any(known[i + 1 : i + 2])):  # alone, it would be no line
            marks.append(f"M{place}h0")
    return Markup('<path class="line {}" d="{}"/><path class="dots {}" d="{}"/>').format(
        series.colour, "".join(path), series.colour, "".join(marks)
    )


def _in_words(series: Series, unit: str) -> str:
    known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if math.isfinite(y)]
    if not known:
        return f"{series.name}: no finite value"
    (first, begin), (last, end) = known[0], known[-1]
    return (
        f"{series.name}: {short(begin)}{unit} at step {short(first)}, "
        f"{short(end)}{unit} at step {short(last)}"
    )


def shorten(name: str, length: int = 14) -> str:
    """A name that fits beside others."""
    return name if len(name) <= length else f"{name[: length - 1]}…"
