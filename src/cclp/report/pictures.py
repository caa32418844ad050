"""Pictures: the embedding as points, and images as data addresses."""

import base64
import io
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from cclp.report.charts import shorten
from cclp.report.projection import fit_square, project
from cclp.runs.arrays import Embedding

PICTURE, MARGIN = 1000, 25
NAMED = 25  # classes at most that are named in the picture
LARGEST_IMAGE = 96  # pixels a side: a hundred images of it are about two megabytes


def point_shapes(half: int) -> list[str]:
    """Paths after "M x y": a dot, a cross, a diamond for a labeled point, a crossed one."""
    r, q = half, half - 2
    diamond = f"m-{r} 0l{r}-{r} {r} {r}-{r} {r}z"
    crossed = f"{diamond}m{r - q}-{q}l{2 * q} {2 * q}m0-{2 * q}l-{2 * q} {2 * q}"
    return ["h0", "m-7-7l14 14m0-14l-14 14", diamond, crossed]


def embedding_picture(embedding: Embedding, classes: list[str]) -> dict[str, Any]:
    """The picture of the last step, the data that move it, and how it was made.

    Returns:
        ``svg``, ``data`` (for the script), whether classes are ``named``, and in
        words ``how`` it was made and a ``tally``.
    """
    plane, how = project(embedding.z, embedding.predicted[-1])
    order = np.argsort(embedding.labeled, kind="stable")  # labeled points on top
    places = fit_square(plane, PICTURE, MARGIN)[:, order]
    predicted, y = embedding.predicted[:, order], embedding.y[order]
    labeled = embedding.labeled[order]
    shapes = point_shapes(13 if labeled.sum() <= 100 else 9)
    kind = 2 * labeled + ((predicted[-1] != y) & (y >= 0))
    points = [
        f'<path class="p{k} k{c if c >= 0 else "-none"}" d="M{x} {up}{shapes[k]}"/>'
        for (x, up), k, c in zip(places[-1].tolist(), kind.tolist(), y.tolist(), strict=True)
    ]
    font = 34 if len(classes) <= 12 else 22
    names = []
    for c in np.unique(predicted[-1]) if len(classes) <= NAMED else ():
        x, up = np.median(places[-1][predicted[-1] == c], axis=0)
        name = shorten(classes[c])
        room = 0.32 * font * len(name) + 8  # half its width: it must not leave the picture
        x = min(max(x, room), PICTURE - room)
        names.append(
            Markup('<text x="{:.0f}" y="{:.0f}" font-size="{}">{}</text>').format(
                x, up + font / 3, font, name
            )
        )
    known = (y >= 0) & ~labeled
    tally = f"Step {embedding.steps[-1]:,}"
    if known.any():
        wrong = int((known & (predicted[-1] != y)).sum())
        tally += f": {wrong} of {known.sum()} unlabeled points shown are predicted wrong."
    label = f"Picture of the embedding of {len(y)} training points. {tally}"
    svg = Markup(
        '<svg class="embedding" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        '<g class="points">{}</g><g class="names">{}</g></svg>'
    ).format(PICTURE, PICTURE, label, Markup("".join(points)), Markup("").join(names))
    data = {
        "steps": embedding.steps,
        "places": [frame.ravel().tolist() for frame in places],
        "predicted": predicted.tolist(),
        "y": y.tolist(),
        "labeled": labeled.astype(int).tolist(),
        "index": embedding.index[order].tolist(),
        "shapes": shapes,
        "classes": classes,
    }
    return {"svg": svg, "data": data, "how": how, "tally": tally, "named": bool(names)}


def png(image: NDArray[np.uint8], white: float) -> str:
    """An image, (1 or 3, H, W), as a data address; large ones are made smaller."""
    levels = np.clip(np.arange(256) * (255 / white), 0, 255).round().astype(np.uint8)
    pixels = np.ascontiguousarray(np.moveaxis(levels[image], 0, 2))
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    if max(picture.size) > LARGEST_IMAGE:
        picture.thumbnail((LARGEST_IMAGE, LARGEST_IMAGE))
    content = io.BytesIO()
    picture.save(content, "png", optimize=True)
    return data_uri("image/png", content.getvalue())


def data_uri(kind: str, content: bytes) -> str:
    """A file inside the page, of a MIME type."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
