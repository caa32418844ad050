"""``cclp train`` and ``CCLPClassifier(method="auto")`` on data as users have them.

Each kind of data is generated, or bundled with scikit-learn, and written to files; ``cclp train``
reads them and chooses a model by itself. Beside it stand simple models that everybody would try
first, on the same labels: logistic regression and a random forest on labels alone, scikit-learn's
LabelSpreading, the same net with labels only, and always saying the most frequent class. Errors
are those on test samples that no model and no choice has seen.

- *embeddings*: 384 features of 20 classes, five labels of each, in an ``.npz``;
- *customers*: a ``.csv`` with prices, dates, decimal commas, percentages, choices, missing cells,
  an identifier and free text, 100 labels. Baselines get the columns as ``cclp`` reads them;
- *200 classes*: 64 features, three labels of each;
- *skewed labels*: breast cancer, with 36 labels of one class and 4 of the other;
- *rare class*: breast cancer, of which 5 % are malignant, with 10 labels of each class;
- *images*: digits as PNG files, 4 labels of each class, trained for 1,000 steps. Baselines learn
  from HOG features;
- *wine*: 10 labels of each class.
"""

import argparse
import csv
import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading

import cclp
from benchmarks.rows import Rows
from cclp.data.load import load
from cclp.experiments.aggregate import percent
from cclp.files import marked_page, write_between
from cclp.pseudo_labels.features import hog_features
from cclp.sklearn import CCLPClassifier

Array = NDArray[Any]
MARKS = "<!-- benchmarks/own_data.py writes from here -->", "<!-- to here: own data -->"
IMAGE_STEPS = 1000  # a quarter of the usual, for the benchmark to end
SEEDS = 3  # labeled sets
MORE_SEEDS = {"skewed labels": 10, "rare class": 30, "wine": 10}  # where test sets are small
OURS = ("cclp train", "CCLPClassifier")
BASELINES = (
    "logistic regression",
    "random forest",
    "LabelSpreading",
    "same net, labels only",
    "majority",
)


class Task(NamedTuple):
    """Training samples with few labels, and test samples.

    Attributes:
        data: what ``cclp train`` reads.
        test: what ``cclp predict`` reads.
        truth: names of the test samples' classes.
        target: column of classes.
    """

    data: Path
    test: Path
    truth: Array
    target: str | None = None


def few(y: Array, each: int | tuple[int, ...], rng: np.random.Generator) -> Array:
    """Labels, -1 but for so many of each class."""
    labels = np.full(len(y), -1)
    for c in np.unique(y):
        count = each if isinstance(each, int) else each[c]
        some = rng.permutation(np.flatnonzero(y == c))[:count]
        labels[some] = c
    return labels


def arrays(
    folder: Path, X: Array, y: Array, test: Array, each: int | tuple[int, ...], seed: int
) -> Task:
    """Arrays in files; ``test`` says which samples are kept for testing."""
    rng, kept = np.random.default_rng(seed), np.isin(np.arange(len(y)), test)
    labels = few(y[~kept], each, rng)
    np.savez(folder / "data.npz", X=X[~kept].astype(np.float32), y=labels)
    np.savez(folder / "test.npz", X=X[kept].astype(np.float32))
    return Task(folder / "data.npz", folder / "test.npz", y[kept].astype(str))


def embeddings_of_clouds(seed: int) -> tuple[Array, Array]:
    """384 features of 20 classes that are stretched clouds."""
    rng = np.random.default_rng(seed)
    y = rng.integers(20, size=3000)
    centres, axes = 0.3 * rng.normal(size=(20, 384)), 0.25 * rng.normal(size=(20, 8, 384))
    X = centres[y] + np.einsum("nk,nkd->nd", rng.normal(size=(3000, 8)), axes[y])
    X += 0.5 * rng.normal(size=X.shape)
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def embeddings(folder: Path, seed: int) -> Task:
    """Five labels of each class."""
    return arrays(folder, *embeddings_of_clouds(seed), np.arange(2000, 3000), 5, seed)


def many_classes(folder: Path, seed: int) -> Task:
    """200 round clouds that overlap."""
    rng = np.random.default_rng(seed)
    y = np.arange(6000) % 200
    X = 0.7 * rng.normal(size=(200, 64))[y] + rng.normal(size=(6000, 64))
    return arrays(folder, X, y, np.arange(4000, 6000), 3, seed)


def breast_cancer(folder: Path, seed: int) -> Task:
    """36 benign and 4 malignant labels."""
    X, y = load_breast_cancer(return_X_y=True)
    test = np.random.default_rng(seed + 100).permutation(len(y))[:169]
    return arrays(folder, X, y, test, (4, 36), seed)


def rare_class(folder: Path, seed: int) -> Task:
    """20 of 228 + 20 training and 8 of 149 test samples are malignant."""
    X, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(seed + 100)
    rare, common = (rng.permutation(np.flatnonzero(y == c)) for c in (0, 1))
    rows = np.concatenate([rare[:20], common[:208], rare[20:28], common[208:357]])
    return arrays(folder, X[rows], y[rows], np.arange(228, len(rows)), 10, seed)


def wine(folder: Path, seed: int) -> Task:
    """Ten labels of each class."""
    X, y = load_wine(return_X_y=True)
    test = np.random.default_rng(seed + 100).permutation(len(y))[:60]
    return arrays(folder, X, y, test, 10, seed)


def customers(folder: Path, seed: int) -> Task:
    """A table of everything that tables are full of."""
    rng, count = np.random.default_rng(seed), 3000
    price, age = np.exp(rng.normal(4, 1, count)), rng.integers(18, 80, count)
    region = rng.choice(["north", "south", "east", "west"], count)
    plan = rng.choice(["basic", "plus", "pro"], count, p=[0.5, 0.3, 0.2])
    days, rate, usage = (
        rng.integers(0, 1500, count),
        rng.normal(3.5, 1.2, count),
        rng.gamma(2, 10, count),
    )
    value = 1.2 * (np.log(price) - 4) + 1.5 * (plan == "pro") - (plan == "basic")
    value += 0.0025 * (days - 750) + 0.9 * (rate - 3.5) + 0.03 * (age - 45)
    churned = np.where(value + 0.7 * rng.normal(size=count) > 0, "yes", "no")
    shown = rng.permutation(2000)[:100]
    start, notes = np.datetime64("2020-01-01"), ("called about the bill", "wrote to complain", "")
    rows: list[list[Any]] = []
    for i in range(count):
        rows.append(
            [
                f"C{i:05d}", f"${price[i]:,.2f}", start + np.timedelta64(int(days[i]), "D"),
                region[i], plan[i], f"{rate[i]:.2f}".replace(".", ","),
                age[i] if rng.random() > 0.05 else "", f"{usage[i]:.1f} %", rng.choice(notes),
                churned[i] if i in shown else "",
            ]
        )  # fmt: skip
    header = [
        "customer",
        "signed_price",
        "signed_up",
        "region",
        "plan",
        "rate",
        "age",
        "usage",
        "notes",
        "churned",
    ]
    for name, some in (("train.csv", rows[:2000]), ("test.csv", rows[2000:])):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([header, *some])
    return Task(folder / "train.csv", folder / "test.csv", churned[2000:], "churned")


def images(folder: Path, seed: int) -> Task:
    """Digits as PNG files."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    train, test = order[:1297], order[1297:]
    labels = few(digits.target[train], 4, np.random.default_rng(seed))
    for i, label in zip(train, labels, strict=True):
        _save(digits.images[i], folder / "photos" / ("unlabeled" if label < 0 else str(label)), i)
    for i in test:
        _save(digits.images[i], folder / "test", i)
    return Task(folder / "photos", folder / "test", digits.target[np.sort(test)].astype(str))


def _save(pixels: Array, folder: Path, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray((255 / 16 * pixels).astype(np.uint8)).resize((16, 16))
    picture.save(folder / f"{number:05d}.png")


TASKS: dict[str, Callable[[Path, int], Task]] = {
    "embeddings": embeddings,
    "customers": customers,
    "200 classes": many_classes,
    "skewed labels": breast_cancer,
    "rare class": rare_class,
    "wine": wine,
    "images": images,
}


def measure(task: Task, seed: int, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Errors of all models on one task, and what was chosen."""
    is_folder = task.data.is_dir()
    given = {"max_steps": IMAGE_STEPS, "image_size": 16, **options} if is_folder else options
    model = cclp.fit(
        task.data, target=task.target, out=folder / "run", seed=seed, verbose=False, **given
    )
    predicted = np.array([found.label for found in model.predict(task.test)])
    found: dict[str, Any] = {"cclp train": float((predicted != task.truth).mean())}
    result = json.loads((folder / "run" / "result.json").read_text())
    found["chosen"] = None if model.verdict is None else model.verdict.chosen
    found["cross-validated"] = result["error"]
    found["minutes"] = round(result["seconds"] / 60, 2)

    spec_data = load(str(task.data), target=task.target, image_size=16 if is_folder else None)
    X, y = spec_data.train_x, spec_data.train_y
    test_X = _test_inputs(task, spec_data)
    names, known = np.array(spec_data.spec.classes), y >= 0
    if is_folder:
        X, test_X = hog_features(X), hog_features(test_X)
    scale = StandardScaler().fit(X)
    X, test_X = scale.transform(X), scale.transform(test_X)
    spread = LabelSpreading("knn", n_neighbors=7, max_iter=1000)
    baselines: dict[str, Any] = {
        "logistic regression": LogisticRegression(max_iter=2000),
        "random forest": RandomForestClassifier(300, random_state=seed),
        "majority": DummyClassifier(),
        "LabelSpreading": spread,
    }
    steps = options.get("max_steps")
    if not is_folder:
        for name, method in (("CCLPClassifier", "auto"), ("same net, labels only", "supervised")):
            baselines[name] = CCLPClassifier(method=method, max_iter=steps, random_state=seed)
    for name, baseline in baselines.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = name in ("LabelSpreading", "CCLPClassifier", "same net, labels only")
            raw = name in ("CCLPClassifier", "same net, labels only")
            train, test = (spec_data.train_x, _test_inputs(task, spec_data)) if raw else (X, test_X)
            baseline.fit(*((train, y) if whole else (train[known], y[known])))
            said = names[baseline.predict(test)]
        found[name] = float((said != task.truth).mean())
    if is_folder:
        path = folder / "supervised"
        plain = cclp.fit(
            task.data, method="supervised", held_out=0, out=path, seed=seed, verbose=False, **given
        )
        said = np.array([p.label for p in plain.predict(task.test)])
        found["same net, labels only"] = float((said != task.truth).mean())
    return found


def _test_inputs(task: Task, data: Any) -> Array:
    """As a run reads them."""
    from cclp.data.user.load import read_samples
    from cclp.progress import Reporter

    parts = read_samples([task.test], data.spec, skip_bad=False, report=Reporter())
    return np.concatenate([part.x for part in parts])


def markdown(rows: list[dict[str, Any]]) -> str:
    """Mean errors in per cent, and ours over the best baseline's."""
    columns = (*OURS, *BASELINES)
    lines = [
        f"| data | seeds | {' | '.join(columns)} | `cclp train` / best baseline | chosen |",
        "|---|" + "---|" * (len(columns) + 3),
    ]
    for name in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == name]
        means = {c: [row[c] for row in own if c in row] for c in columns}
        best = min(np.mean(means[c]) for c in BASELINES if means[c])
        cells = [percent(means[c]).text(digits=1) if means[c] else "–" for c in columns]
        mine = float(np.mean(means["cclp train"]))
        ratio = "–" if best == 0 else f"{mine / best:.2f}"
        times = Counter(str(row["chosen"]) for row in own)
        chosen = ", ".join(f"{count} × {what}" for what, count in times.most_common())
        lines.append(f"| {name} | {len(own)} | {' | '.join(cells)} | {ratio} | {chosen} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("tasks", nargs="*", choices=[[], *TASKS], help="default: all")
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="default: 0 to 2; of small data 0 to 9 or 29"
    )
    parser.add_argument("--max-steps", type=int, help="of every training, for a quick look")
    parser.add_argument("--out", type=Path, default=Path("results/own-data.json"))
    parser.add_argument("--docs", type=marked_page(MARKS), help="page to write the table into")
    options = parser.parse_args()
    found = Rows(options.out, "python -m benchmarks.own_data")
    given = {} if options.max_steps is None else {"max_steps": options.max_steps}
    for name in options.tasks or TASKS:
        for seed in options.seeds or range(MORE_SEEDS.get(name, SEEDS)):
            key = {"data": name, "seed": seed, **given}
            if key in found:
                continue
            with tempfile.TemporaryDirectory() as place:
                (Path(place) / "data").mkdir()
                task = TASKS[name](Path(place) / "data", seed)
                found.add({**key, **measure(task, seed, Path(place), given)})
    print(markdown(found.rows))
    if options.docs:
        write_between(options.docs, MARKS, markdown(found.rows))


if __name__ == "__main__":
    main()
