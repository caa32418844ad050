"""``Workbench``: all that a page needs to label data, in plain values, from any thread."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from cclp.checks import check_choice, check_integer
from cclp.files import cache_root
from cclp.labelling.advice import advise
from cclp.labelling.decisions import Decisions
from cclp.labelling.engine import Engine
from cclp.labelling.expected import Expected
from cclp.labelling.journal import Journal
from cclp.labelling.labels import NONE, NOT_SURE, UNLABELED, Change, Value
from cclp.labelling.loop import Loop
from cclp.labelling.outcomes import export_labels
from cclp.labelling.source import Source
from cclp.labelling.training import Training
from cclp.labelling.views import (
    Json,
    Why,
    belief_bytes,
    believed_rows,
    class_rows,
    contradicted_rows,
    find_words,
    given_bytes,
    given_value,
    probabilities_of,
    question_row,
)
from cclp.labelling.watch import Watched
from cclp.progress import Reporter

IMAGE_DISTANCES = ("hog", "idm")
MOST_QUESTIONS, MOST_LISTED = 100, 1000
_PATIENCE = 1.0  # seconds that questions wait for answers to be propagated


class Workbench:
    """Data that are being labeled.

    Args:
        source: the samples.
        folder: that holds the decisions; it is made if it is not there. What is in it is continued.
        image_distance: by which images are compared, see ``GraphLabelPropagation``.
        cache: folder that keeps neighbours for the next time; None: the user's.
        background: whether answers are propagated after they are taken; else before
            :meth:`decide` returns.
        report: shows progress.

    Raises:
        ValueError: if another process labels in the folder, or it is about other data.
    """

    def __init__(
        self,
        source: Source,
        folder: Path,
        *,
        image_distance: Literal["hog", "idm"] = "hog",
        cache: Path | None = None,
        background: bool = False,
        report: Reporter | None = None,
    ) -> None:
        check_choice("image_distance", image_distance, IMAGE_DISTANCES)
        self.source, self.folder = source, folder
        self._lock = threading.RLock()
        self._report = Watched(report)
        self._journal = Journal(folder)
        try:
            self._decisions = Decisions(self._journal, source.keys, source.fingerprint)
            if self._decisions.is_new or source.chosen:
                self._decisions.bring_in(source.given)
        except BaseException:
            self._journal.close()
            raise
        self._history: list[list[float | None]] = [
            list(entry["expected"]) for entry in self._journal.entries if "expected" in entry
        ]
        self._drawn: set[int] = set()  # samples that the page asks about because they were drawn
        self._training = Training(source, folder)
        self._loop = Loop(
            source,
            self._decisions,
            self._lock,
            self._training,
            distortion=image_distance == "idm",
            cache=cache_root() / "neighbours" if cache is None else cache,
            background=background,
            report=self._report,
        )

    # -- the state ---------------------------------------------------------------------------------

    def state(self) -> Json:
        """Everything that the page shows all the time."""
        with self._lock:
            self._loop.take_predictions()
            engine, values = self._engine, self._decisions.values
            expected = Expected() if engine is None else engine.expected
            classes = class_rows(self._decisions, engine)
            advice = advise(
                expected,
                self._history,
                None if engine is None else engine.beliefs,
                labeled=int((values >= 0).sum()),
                classes=len(classes),
            )
            return {
                "version": self._decisions.version,
                "beliefs_version": self._decisions.version + self._loop.refined,
                "name": self.source.name,
                "total": len(self.source),
                "kind": self.source.kind,
                "folder": str(self.folder),
                "classes": classes,
                "labeled": int((values >= 0).sum()),
                "not_sure": int((values == NOT_SURE).sum()),
                "none": int((values == NONE).sum()),
                "can_undo": self._decisions.can_undo,
                "can_redo": self._decisions.can_redo,
                "phase": "graph" if engine is None else "ready",
                "progress": {
                    "what": self._loop.problem or self._report.what,
                    "done": self._report.done,
                },
                "problem": self._loop.problem,
                "expected": expected._asdict(),
                "history": [*self._history, *([self._loop.line()] if engine else [])],
                "fresh": self._loop.is_fresh,
                "advice": advice,
                "source_of_predictions": "network" if engine and engine.network else "graph",
                "training": self._training.state(),
            }

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the graph is built, answers are propagated, and nothing is refined any more.

        Raises:
            ValueError: if it cannot be.
        """
        self._loop.wait(seconds)

    # -- questions ---------------------------------------------------------------------------------

    def questions(self, count: int = 1, exclude: Sequence[int] = ()) -> list[Json]:
        """What to ask next, best first; none as long as there is no graph.

        Args:
            count: of questions; no two of them are near-duplicates.
            exclude: samples that are on the page already.
        """
        check_integer("count", count, least=0)
        for sample in exclude:
            self._check_sample(sample)
        self._loop.catch_up(_PATIENCE)
        with self._lock:
            engine = self._engine
            if engine is None:
                return []
            answered = self._decisions.values != UNLABELED
            late = np.flatnonzero(self._decisions.values != engine.values)  # not propagated
            beside = [*exclude, *late[:MOST_QUESTIONS].tolist()]
        best: Why = "influential" if len(engine.beliefs.classes) > 1 else "typical"
        asked = engine.ask(min(count, MOST_QUESTIONS), beside, answered)
        with self._lock:
            self._drawn |= {question.sample for question in asked if question.drawn}
        return [self._row(sample, "drawn" if drawn else best) for sample, drawn in asked]

    def question(self, sample: int) -> Json:
        """What is known of a sample that the user picked."""
        self._check_sample(sample)
        with self._lock:
            return self._row(sample, "chosen")

    def sample(self, sample: int) -> Json:
        """What a person sees of a sample, and what is believed of it."""
        self._check_sample(sample)
        fields, text = self.source.fields(sample), self.source.text(sample)
        with self._lock:
            return {
                "sample": sample,
                "file": self.source.file(sample),
                "row": self.source.row(sample),
                "fields": [list(pair) for pair in fields],
                "text": text,
                "given": given_value(self._decisions, sample),
                "probabilities": probabilities_of(self._decisions, self._engine, sample),
            }

    def picture(self, sample: int, size: int) -> bytes:
        """PNG of an image, of at most so many pixels a side."""
        self._check_sample(sample)
        return self.source.picture(sample, size)

    def believed(self, class_id: int, count: int, skip: int = 0) -> list[Json]:
        """Unlabeled samples that are held for a class, surest first."""
        check_integer("count", count, least=0)
        check_integer("skip", skip, least=0)
        with self._lock:
            if self._engine is None:
                return []
            most = min(count, MOST_LISTED)
            return believed_rows(self._decisions, self._engine, class_id, skip, most)

    def disagreements(self, count: int) -> list[Json]:
        """Labeled samples that their neighbours contradict, the surest contradiction first."""
        check_integer("count", count, least=0)
        with self._lock:
            if self._engine is None:
                return []
            return contradicted_rows(self._decisions, self._engine, min(count, MOST_LISTED))

    def search(self, words: str, count: int) -> list[int]:
        """Samples whose file name, cells, text or class hold all words."""
        with self._lock:  # not while it searches: that may take seconds
            values, names = self._decisions.values.copy(), dict(self._decisions.names)
        return find_words(self.source, values, names, words, min(count, MOST_LISTED))

    # -- everything at once ------------------------------------------------------------------------

    def positions(self) -> bytes:
        """A 2-D map of all samples: x and y of each, float32 from 0 to 1."""
        with self._lock:
            if self._engine is None:
                return b""
            atlas = self._engine.atlas
            return atlas.flat[atlas.place].astype("<f4").tobytes()

    def beliefs(self) -> bytes:
        """Two bytes of each sample: class id (255: none yet), certainty from 0 to 255."""
        with self._lock:
            return belief_bytes(self._engine, len(self.source))

    def given(self) -> bytes:
        """A byte of each sample: class id, 255 unlabeled, 254 not sure, 253 none of these."""
        with self._lock:
            return given_bytes(self._decisions.values)

    # -- changes -----------------------------------------------------------------------------------

    def decide(self, version: int, decisions: Sequence[Json]) -> Json:
        """Label samples: one step for undo, on the disk before this returns.

        Args:
            version: of the state that the page has.
            decisions: each with "sample", and "class": an id, "not_sure", "none", or None.

        Raises:
            Stale: if the state has changed since.
            OSError: if the disk is full; nothing has happened then.
        """
        labels: list[tuple[int, Value]] = []
        for each in decisions:
            if not isinstance(each, dict) or not {"sample", "class"} <= each.keys():
                raise ValueError(f"a decision must have sample and class, got {each!r}")
            labels.append((each["sample"], each["class"]))

        def decide() -> Change:
            sample = labels[0][0] if len(labels) == 1 else None
            drawn = isinstance(sample, int) and sample in self._drawn
            drawn = drawn and bool(self._decisions.values[sample] == UNLABELED)
            return self._decisions.decide(version, labels, None, self._loop.line(), drawn)

        return self._change(decide)

    def undo(self, version: int) -> Json:
        """Take the last change back."""
        return self._change(lambda: self._decisions.undo(version))

    def redo(self, version: int) -> Json:
        """Make the change again that was undone last."""
        return self._change(lambda: self._decisions.redo(version))

    def add_class(self, version: int, name: str) -> Json:
        """Add a class."""
        return self._change(lambda: self._decisions.add_class(version, name))

    def rename_class(self, version: int, id: int, name: str) -> Json:  # noqa: A002
        """Give a class another name."""
        return self._change(lambda: self._decisions.rename_class(version, id, name))

    def merge_classes(self, version: int, source: int, into: int) -> Json:
        """Make all samples of a class ones of another."""
        return self._change(lambda: self._decisions.merge_classes(version, source, into))

    def _change(self, make: Callable[[], Change]) -> Json:
        with self._lock:
            now = self._loop.line()
            change = make()
            has_news = len(change.samples) > 0 and self._engine is not None
            if has_news:
                self._history = [*(line for line in self._history if line[0] != now[0]), now]
        self._loop.check_network()
        if has_news:
            self._loop.wake()
        return self.state()

    # -- results -----------------------------------------------------------------------------------

    def export(self, kind: Literal["csv", "folder", "npz"], place: str | None = None) -> Json:
        """Write the labels; nothing is ever overwritten.

        Args:
            kind: "csv": a labels.csv; "folder": images by class; "npz": X and y.
            place: of the file or folder; None: in the folder of the decisions.
        """
        self._loop.catch_up()
        with self._lock:
            if self._engine is None:
                raise ValueError("the graph is not built yet: wait a little")
            likely, certainty = self._engine.by_sample()
            values, who = self._decisions.values.copy(), self._decisions.who.copy()
            names = dict(self._decisions.names)
        path = export_labels(
            self.source, self.folder, kind, place, values, who, names, likely, certainty
        )
        return {"path": str(path)}

    def train(self, minutes: float | None = None) -> Json:
        """Train a network in the background on the labels so far."""
        with self._lock:
            names = dict(self._decisions.names)
            self._training.start(self._decisions.values, self._decisions.who, names, minutes)
            return self.state()

    def stop_training(self) -> Json:
        """Stop the training; what it has learned so far is lost."""
        with self._lock:
            self._training.stop()
            return self.state()

    def close(self) -> None:
        """Stop what is running, and let another process label."""
        self._training.stop()
        self._loop.close()
        with self._lock:
            self._journal.close()

    @property
    def _engine(self) -> Engine | None:
        return self._loop.engine

    def _row(self, sample: int, why: Why) -> Json:
        return question_row(self._decisions, self._engine, sample, why)

    def _check_sample(self, sample: object) -> None:
        check_integer("sample", sample, least=0)
        if not isinstance(sample, int) or sample >= len(self.source):
            raise ValueError(f"sample must be below {len(self.source)}, got {sample!r}")
