"""Whether the wheel works where nothing else is: alone, and with each of its extras.

For each a new virtual environment gets the wheel and what it declares, within constraints.txt, and
runs some lines. It needs the network, and a minute or two for each:

    make dist && python -m tools.release dist/cclp-0.2.0-py3-none-any.whl lab tables
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLAIN = """
import sys
import numpy as np
from sklearn.datasets import make_moons
from cclp.cli import main
from cclp.sklearn import CCLPClassifier

def cclp(line):
    try:
        main(line.split())
    except SystemExit as end:
        assert not end.code, (line, end.code)

cclp("--version")
x, y = make_moons(300, noise=0.05, random_state=1)
given = np.where(np.arange(300) < 10, y, -1)
assert CCLPClassifier(random_state=0).fit(x, given).score(x, y) > 0.9
cclp("train digits --num-labels 50 --max-steps 20 --quiet --out run")
cclp("report run")
np.savez("new.npz", X=np.zeros((3, 1, 8, 8), "u1"))
cclp("predict run new.npz --out new.csv")
"""
LINES = {
    "": "",
    "lab": "import cclp.lab.server, cclp.labelling.server, uvicorn",
    "large": """
from cclp.pseudo_labels import search
search.MOST_EXACT = 100
assert search.is_approximate(300)
assert search.nearest(x.astype("f"), 5).indices.shape == (300, 5)
""",
    "tables": """
import openpyxl, pyarrow, pyarrow.parquet
book = openpyxl.Workbook()
columns = [x[:, 0].tolist(), x[:, 1].tolist(), ["ab"[c] if c >= 0 else "" for c in given]]
for row in [["one", "two", "kind"], *zip(*columns)]:
    book.active.append(row)
book.save("moons.xlsx")
pyarrow.parquet.write_table(pyarrow.table(columns, ["one", "two", "kind"]), "moons.parquet")
for end in ("xlsx", "parquet"):
    cclp(f"train moons.{end} --target kind --method cclp --max-steps 5 --quiet --out {end}")
""",
    "tensorboard": """
cclp("train digits --num-labels 50 --max-steps 5 --tensorboard --quiet --out board")
from pathlib import Path
assert any(Path("board").rglob("*tfevents*"))
""",
    "tiff": """
import tifffile
from pathlib import Path
for number in range(12):
    folder = Path("cells", "ab"[number % 2])
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(4096, size=(16, 16)).astype("u2")
    tifffile.imwrite(folder / f"{number}.tif", pixels)
cclp("train cells --method cclp --max-steps 3 --quiet --out cells-run")
""",
    "onnx": 'cclp("export run --out exported")',
    "text": "from sentence_transformers import SentenceTransformer",
    "vision": "import timm, torchvision",
}


def check(wheel: Path, extra: str) -> str:
    """What is wrong with the wheel and this extra; "" if nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", f"{folder}/env"], check=True)
        python = f"{folder}/env/bin/python"
        what = f"{wheel.absolute()}[{extra}]" if extra else str(wheel.absolute())
        install = [python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
        for command in ([*install, what], [python, "-I", "-c", PLAIN + LINES[extra]]):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                return (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
    return ""


def main() -> None:
    """Check, print, and end with code 1 if something is wrong."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("extras", nargs="*", help="only these; none: the wheel alone, and all")
    options = parser.parse_args()
    failed = False
    for extra in options.extras or LINES:
        wrong = check(options.wheel, extra)
        failed |= bool(wrong)
        print(f"{extra or 'alone'}: {wrong or 'works'}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
