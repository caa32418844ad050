"""A folder of images, from nothing to predictions: circles, squares and triangles.

The folder is drawn here; put your own in its place. Ten images of each class lie in a folder with
its name, 300 in ``unlabeled``; the error is measured on those in ``test``. The recipe "fast" trains
with method "cclp+graph_pseudo_label".

    python examples/image_folder.py --out build/shapes

The same on the command line, once the folder is there:

    cclp train build/shapes/images --image-size 16 --max-steps 250 --precision 32
    cclp predict RUN build/shapes/new
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from cclp.progress import make_reporter
from cclp.runs.inference import predict
from cclp.runs.start import train
from cclp.training.config import Config
from cclp.training.recipe import make_recipe

CORNERS = {"circle": 60, "square": 4, "triangle": 3}


def draw(shape: str, rng: np.random.Generator) -> Image.Image:
    """A shape of random size, position, rotation and colour, on noise."""
    image = Image.fromarray(rng.integers(0, 60, (32, 32, 3), dtype=np.uint8))
    x, y = rng.uniform(12, 20, 2)
    colour = tuple(rng.integers(120, 256, 3).tolist())
    ImageDraw.Draw(image).regular_polygon(
        (x, y, rng.uniform(8, 12)), CORNERS[shape], rng.uniform(0, 360), fill=colour
    )
    return image


def draw_folder(folder: Path) -> None:
    """``images`` as ``cclp train`` reads them, and beside it ``new`` ones to predict."""
    rng = np.random.default_rng(0)
    for shape in CORNERS:
        for place, count in (
            (f"images/{shape}", 10),
            ("images/unlabeled", 100),
            (f"images/test/{shape}", 50),
            ("new", 2),
        ):
            (folder / place).mkdir(parents=True, exist_ok=True)
            for k in range(count):
                draw(shape, rng).save(folder / place / f"{shape}{k:02d}.png")


def main() -> None:
    """Draw the folder, train without the unlabeled images and with them, predict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/shapes"), help="a new folder")
    parser.add_argument("--max-steps", type=int, default=250, help="of each training")
    options = parser.parse_args()
    draw_folder(options.out)
    images = str(options.out / "images")
    recipe = replace(make_recipe(None, images), max_steps=options.max_steps)
    for method in ("supervised", recipe.method):
        config = Config(
            images, recipe, method, num_labels=None, image_size=16, precision="32"
        )  # where "auto" is bfloat16, errors differ a little
        with make_reporter(quiet=False) as report:
            result = train(config, options.out / method, report)
        print(f"{method}: {result['error']:.1%} of 150 test images wrong")
    for found in predict(options.out / recipe.method, [options.out / "new"]):
        print(f"{found.file}: {found.label}, {found.probability:.0%}")


if __name__ == "__main__":
    main()
