"""Answers needed to label data, by the strategy that asks: a simulated person answers the truth.

Data: digits (1,797 samples), clouds (3,000 vectors of 20 classes, generated), mnist and
fashion_mnist (training and test set together, 70,000); embeddings of 5,797 mails (spam) and 20,000
images (cifar10_features), which ``python -m benchmarks.embeddings features`` makes. Graphs: by HOG,
as ``cclp label`` makes them unless asked otherwise; of what are no images by their values; of mnist
also by the image distortion model (mnist_idm). The person names a class when they meet it; nobody
knows beforehand how many there are. Each seed draws a tenth of the samples that may not be asked
about. After each answer labels are propagated by the code of ``cclp label``, and the propagated
labels of all unlabeled samples are compared with the truth.

Strategies:

- random: any sample.
- uncertainty: the smallest margin between the two likeliest classes; random until there are two.
- typiclust: Hacohen et al. 2022: k-means of the features into as many clusters as there will be
  labels, ten more in each round; of the largest clusters without labels the sample with the
  smallest mean distance to its 20 nearest neighbours.
- probcover: Yehuda et al. 2022: greedy covering by balls, whose radius is the largest of which
  95 % are pure by k-means with as many clusters as there are classes; on 10,000 samples, drawn by
  seed.
- ours: what ``cclp label`` asks (``Engine.ask``).

"expected" of a row: the expected error, low and high end of its interval, and what the graph alone
says. Samples that ours draws at random are drawn in another order with each seed.

"mbo" of a row is the accuracy once MBO threshold dynamics have corrected the labels of ``ours``, as
``cclp label`` does when nobody answers for a second. "cpu_seconds" are those of one thread, for the
question and for the answer: the wall clock of a machine with other work would say little.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.embeddings import read_features
from benchmarks.rows import Row, Rows
from cclp.data.load import load
from cclp.files import cache_root, marked_page, write_between, write_bytes
from cclp.labelling.atlas import Atlas, rank_density
from cclp.labelling.engine import Engine
from cclp.labelling.labels import UNLABELED, Change
from cclp.labelling.queries import uncertainty
from cclp.labelling.refinement import corrected
from cclp.labelling.spectrum import leading_vectors
from cclp.progress import Reporter, make_reporter
from cclp.pseudo_labels.components import join_components
from cclp.pseudo_labels.graph import NeighbourGraph
from cclp.pseudo_labels.neighbours import find_neighbours
from cclp.report.figures import house_style, plain, png

Array = NDArray[Any]
EMBEDDINGS = {"spam": "spam", "cifar10_features": "cifar10"}  # their names in their own benchmark
DATA = ("digits", "clouds", "mnist", "fashion_mnist", "mnist_idm", *EMBEDDINGS)
STRATEGIES = ("ours", "random", "uncertainty", "typiclust", "probcover")
NEAR, ROUND, COVERED, PURE = 20, 10, 10_000, 0.95
RADII = 20  # that are tried
MBO_AFTER = (12,)  # answers
LEVELS = (0.95, 0.98)
JUDGED_FROM = 10  # answers, from which the interval of the expected error is judged
ACROSS = 4  # data sets beside each other in the figure
MARKS = "<!-- benchmarks/labelling.py writes from here -->", "<!-- to here: labelling -->"


class Data:
    """A data set with its graph."""

    def __init__(self, x: Array, y: Array, report: Reporter, distortion: bool = False) -> None:
        self.y = y
        cache = cache_root() / "neighbours"
        graph = NeighbourGraph(x, distortion=distortion, cache=cache, report=report)
        assert graph.W is not None
        W = join_components(graph.W, graph.points, np.array([0]))
        values, vectors = leading_vectors(W, report=report)
        flat = np.zeros((len(graph.points), 2), np.float32)  # nobody looks at a map
        typicality = rank_density(graph.scales)
        self.atlas = Atlas(W, graph.points, graph.place, typicality, values, vectors, flat)
        self.graph, self.cache, self.report = graph, cache, report
        self._typicality: Array | None = None

    @property
    def typicality(self) -> Array:
        """Inverse mean distance to the 20 nearest neighbours, by node."""
        if self._typicality is None:
            (near,) = find_neighbours(self.graph.points, None, NEAR, self.cache, self.report)
            self._typicality = 1 / near.distances.mean(1).clip(1e-12)
        return self._typicality


def arrays(
    name: str, options: argparse.Namespace, found: Rows, report: Reporter
) -> tuple[Array, Array]:
    """Samples and classes of a data set."""
    if name == "clouds":
        return clouds()
    if name in EMBEDDINGS:
        return read_features(EMBEDDINGS[name], options.features, found)
    data = load(name.removesuffix("_idm"), options.data_dir, report=report)
    x, y = (data.train_x, data.test_x), (data.train_y, data.test_y)
    return np.concatenate(x), np.concatenate(y)


def clouds() -> tuple[Array, Array]:
    """3,000 vectors of length 1 with 384 features, of 20 classes that are stretched clouds."""
    rng = np.random.default_rng(0)
    y = rng.integers(20, size=3000)
    centres, axes = 0.3 * rng.normal(size=(20, 384)), 0.25 * rng.normal(size=(20, 8, 384))
    x = centres[y] + np.einsum("nk,nkd->nd", rng.normal(size=(3000, 8)), axes[y])
    x += 0.5 * rng.normal(size=x.shape)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y


def clusters(points: Array, count: int, seed: int) -> Array:
    """k-means."""
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(count, random_state=seed, n_init=3, batch_size=4096)
    return np.asarray(model.fit_predict(points))


def typiclust(data: Data, engine: Engine, hidden: Array, seed: int) -> list[int]:
    """The samples of the next round."""
    place, points = data.atlas.place, data.graph.points
    given = np.flatnonzero(engine.values != UNLABELED)
    cluster = clusters(points, len(given) + ROUND, seed + len(given))[place]
    taken = set(cluster[given].tolist())
    sizes = np.bincount(cluster)
    typical = np.where(hidden | (engine.values != UNLABELED), -np.inf, data.typicality[place])
    found: list[int] = []
    for c in np.argsort(-sizes, kind="stable"):
        if c not in taken and len(found) < ROUND:
            found.append(int(np.where(cluster == c, typical, -np.inf).argmax()))
    return found


def probcover(data: Data, hidden: Array, count: int, seed: int) -> list[int]:
    """All samples at once: the covering does not depend on the answers."""
    rng = np.random.default_rng(seed)
    allowed = np.flatnonzero(~hidden)
    some = rng.permutation(allowed)[:COVERED]
    points = torch.from_numpy(data.graph.points[data.atlas.place[some]])
    cluster = torch.from_numpy(clusters(points.numpy(), int(data.y.max()) + 1, seed))
    near = torch.cat([torch.cdist(block, points) for block in torch.split(points, 1000)])
    least = near.topk(2, largest=False).values[:, 1].median()
    radius = float(least)
    for factor in np.linspace(1, 4, RADII):
        inside = near <= least * factor
        same = (inside & (cluster[:, None] == cluster[None])).sum(1) == inside.sum(1)
        if same.float().mean() < PURE:
            break
        radius = float(least * factor)
    inside, covered = near <= radius, torch.zeros(len(some), dtype=torch.bool)
    gains = inside.sum(1)
    found = []
    for _ in range(count):
        best = int(gains.argmax())
        found.append(int(some[best]))
        new = inside[best] & ~covered
        gains -= inside[:, new].sum(1)
        gains[best] = -1
        covered |= inside[best]
    return found


def uncertain(engine: Engine, hidden: Array, rng: np.random.Generator) -> int:
    """The sample with the smallest margin."""
    open_ = ~hidden & (engine.values == UNLABELED)
    if len(engine.beliefs.classes) < 2:
        return int(rng.choice(np.flatnonzero(open_)))
    doubt = uncertainty(engine.beliefs.probabilities)[engine.atlas.place]
    return int(np.where(open_, doubt, -np.inf).argmax())


def session(data: Data, strategy: str, seed: int, answers: int) -> Row:
    """Accuracy, classes and expected error after each answer."""
    rng, y = np.random.default_rng(seed), data.y
    hidden = np.zeros(len(y), bool)
    hidden[rng.permutation(len(y))[: len(y) // 10]] = True
    values = np.full(len(y), UNLABELED, np.int16)
    drawn = np.zeros(len(y), bool)
    order = np.random.default_rng([seed, 1]).permutation(np.flatnonzero(~hidden))
    engine = Engine(data.atlas, values, order=order)
    news: list[bool] = []
    waiting: list[int] = []
    if strategy == "random":
        waiting = rng.permutation(np.flatnonzero(~hidden))[:answers].tolist()
    if strategy == "probcover":
        waiting = probcover(data, hidden, answers, seed)
    row: Row = {"accuracy": [], "classes": [], "expected": [], "cpu_seconds": [], "mbo": {}}
    for number in range(1, answers + 1):
        begun = time.process_time()
        if strategy == "ours":
            ((sample, drawn[sample]),) = engine.ask(1, forbidden=hidden)
        elif strategy == "uncertainty":
            sample = uncertain(engine, hidden, rng)
        else:
            waiting = waiting or typiclust(data, engine, hidden, seed)
            sample = waiting.pop(0)
        asked = time.process_time()
        news.append(not (values == y[sample]).any())
        before = values[[sample]]
        values[sample] = y[sample]
        engine.update(Change(np.array([sample]), before, values[[sample]]), values, news, drawn)
        row["cpu_seconds"].append([round(asked - begun, 3), round(time.process_time() - asked, 3)])
        open_ = values == UNLABELED
        best, _ = engine.by_sample()
        row["accuracy"].append(round(float((best == y)[open_].mean()), 5))
        row["classes"].append(len(engine.beliefs.classes))
        row["expected"].append([None if v is None else round(v, 5) for v in engine.expected])
        if strategy == "ours" and number in MBO_AFTER:
            begun = time.process_time()
            task = engine.task()
            found = corrected(engine.beliefs, task.run()) if task else engine.beliefs
            likely = np.array(found.classes)[found.best][data.atlas.place]
            accuracy = round(float((likely == y)[open_].mean()), 5)
            seconds = round(time.process_time() - begun, 1)
            row["mbo"][str(number)] = {"accuracy": accuracy, "cpu_seconds": seconds}
    return row


def measure(name: str, options: argparse.Namespace, found: Rows, report: Reporter) -> Iterator[Row]:
    """What is missing of one data set."""
    missing = [
        key
        for seed in range(options.seeds)
        for strategy in options.strategy or STRATEGIES
        if (key := {"data": name, "strategy": strategy, "seed": seed, "answers": options.answers})
        not in found
    ]
    if missing:
        x, y = arrays(name, options, found, report)
        data = Data(x, y, report, distortion=name.endswith("_idm"))
        for key in missing:
            yield {**key, **session(data, key["strategy"], key["seed"], key["answers"])}


def answers_for(row: Row, level: float) -> int | None:
    """After how many answers the accuracy has reached a level; None: it has not."""
    return next((n for n, a in enumerate(row["accuracy"], 1) if a >= level), None)


def table(rows: list[Row]) -> str:
    """Answers needed, accuracy, expected error, and how often the true one is in its interval."""
    lines = [
        "| data | strategy | seeds | answers for 95 % | for 98 % | accuracy after 12 | with MBO "
        "| after 40 | expected error then | true error in the interval |",
        "|---" * 10 + "|",
    ]
    for name in DATA:
        for strategy in STRATEGIES:
            mine = [r for r in rows if (r["data"], r["strategy"]) == (name, strategy)]
            if not mine:
                continue
            inside, total = coverage(mine)
            mbo = [row["mbo"]["12"]["accuracy"] for row in mine if row["mbo"]]
            cells = [
                *(_needed(mine, level) for level in LEVELS),
                f"{np.mean([row['accuracy'][11] for row in mine]):.1%}",
                f"{np.mean(mbo):.1%}" if mbo else "",
                f"{np.mean([row['accuracy'][-1] for row in mine]):.1%}",
                *(["", ""] if strategy != "ours" else [_expected(mine), f"{inside / total:.0%}"]),
            ]
            lines.append(f"| {name} | {strategy} | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _expected(rows: list[Row]) -> str:
    """Least and largest of the seeds, after the last answer."""
    found = [row["expected"][-1][0] for row in rows]
    return f"{min(found):.1%} to {max(found):.1%}"


def _needed(rows: list[Row], level: float) -> str:
    """Fewest and most answers for a level, and how many seeds have reached it if not all."""
    needed = [answers_for(row, level) for row in rows]
    reached = [number for number in needed if number is not None]
    if not reached:
        return "more"
    low, high = min(reached), max(reached)
    text = str(low) if low == high else f"{low} to {high}"
    return text if len(reached) == len(needed) else f"{text} ({len(reached)} of {len(needed)})"


def coverage(rows: list[Row]) -> tuple[int, int]:
    """How often the true error was in the interval from the tenth answer on, and of how many."""
    inside = total = 0
    for row in rows:
        pairs = list(zip(row["accuracy"], row["expected"], strict=True))
        for accuracy, expected in pairs[JUDGED_FROM - 1 :]:
            if expected[1] is not None:
                total += 1
                inside += expected[1] <= 1 - accuracy <= expected[2]
    return inside, total


def figure(rows: list[Row], path: Path) -> None:
    """Accuracy against answers, and expected against true error."""
    from matplotlib.figure import Figure

    names = [name for name in DATA if any(row["data"] == name for row in rows)]
    across = min(len(names), ACROSS)
    bands = -(-len(names) // across)
    drawing = Figure(figsize=(3.4 * across, 6 * bands), layout="constrained")
    axes = drawing.subplots(2 * bands, across, squeeze=False)
    for unused in axes[-2:, len(names) - across * (bands - 1) :].flat:
        unused.set_axis_off()
    colours = dict(zip(STRATEGIES, ("C0", "0.6", "C1", "C2", "C3"), strict=True))
    for number, name in enumerate(names):
        band, column = divmod(number, across)
        top, bottom = axes[2 * band : 2 * band + 2, column]
        for strategy in STRATEGIES:
            mine = [r for r in rows if (r["data"], r["strategy"]) == (name, strategy)]
            if not mine:
                continue
            accuracy = 100 * np.array([row["accuracy"] for row in mine])
            steps = np.arange(1, accuracy.shape[1] + 1)
            width = 2.2 if strategy == "ours" else 1.2
            top.plot(steps, accuracy.mean(0), color=colours[strategy], lw=width, label=strategy)
            top.fill_between(
                steps, accuracy.min(0), accuracy.max(0), color=colours[strategy], alpha=0.12, lw=0
            )
            if strategy == "ours":
                expected = 100 * np.array([row["expected"] for row in mine], float)
                bottom.plot(steps, (100 - accuracy).mean(0), color="k", label="true error")
                bottom.plot(steps, expected[:, :, 0].mean(0), color="C0", label="expected error")
                own = expected[:, :, 3].mean(0)
                bottom.plot(steps, own, color="C0", ls=":", label="by the graph alone")
                bottom.fill_between(
                    steps, expected[:, :, 1].mean(0), expected[:, :, 2].mean(0), color="C0",
                    alpha=0.15, lw=0, label="its interval",
                )  # fmt: skip
        plain(top, bottom)
        top.set(title=name, xlabel="answers", ylabel="accuracy, %", ylim=(0, 100))
        bottom.set(xlabel="answers", ylabel="error, %", yscale="log", ylim=(0.3, 100))
    axes[0, 0].legend(fontsize=8)
    axes[1, 0].legend(fontsize=8)
    write_bytes(path, png(drawing))


def main() -> None:
    """Measure what is missing, print, write."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--data", choices=DATA, action="append", help="only these")
    parser.add_argument("--strategy", choices=STRATEGIES, action="append", help="only these")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--answers", type=int, default=40)
    parser.add_argument("--data-dir", type=Path, help="folder of MNIST and Fashion-MNIST")
    made = Path("build/embeddings")
    parser.add_argument("--features", type=Path, default=made, help="folder of the embeddings")
    parser.add_argument("--out", type=Path, default=Path("results/labelling.json"))
    parser.add_argument("--figure", type=Path, default=Path("results/labelling.png"))
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the table into this page")
    parser.add_argument("--measured", action="store_true", help="only show what was measured")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = Rows(options.out, "benchmarks/labelling.py")
    with make_reporter(quiet=True) as report:
        for name in () if options.measured else options.data or DATA:
            for row in measure(name, options, found, report):
                found.add(row)
    print(table(found.rows))
    if options.docs:
        write_between(options.docs, MARKS, table(found.rows))
    if found.rows:
        with house_style():
            figure(found.rows, options.figure)


if __name__ == "__main__":
    main()
