"""What people have decided: classes, labels, and the way back to every earlier state."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cclp.checks import check_integer
from cclp.data.user.label_file import DECIDED, Decided
from cclp.data.user.labels import clean_labels, text_name
from cclp.labelling.journal import FORMAT, Journal
from cclp.labelling.labels import NOT_SURE, UNLABELED, Change, Labels, Step, Value

MOST_CLASSES = 250  # a class is a byte for the page, and some bytes have other meanings
LONGEST_NAME = 200

Entry = dict[str, Any]


class Stale(ValueError):  # noqa: N818 - it says what is the matter
    """A change to a version that is not the latest: another tab was faster."""


class Decisions:
    """Classes and labels, each change on the disk before it is made.

    Args:
        journal: that is read and continued.
        keys: what samples are called in it.
        fingerprint: of the data, where rows have no names.

    Raises:
        ValueError: if the journal is of other data.

    Attributes:
        version: counts the changes, and undone ones.
        labels: as they are now.
        lost: decisions about samples that are not there any more; they stay in the journal.
    """

    def __init__(self, journal: Journal, keys: Sequence[str], fingerprint: str) -> None:
        self.journal, self.keys = journal, keys
        self.labels = Labels(len(keys))
        self.version, self.lost, self._next = 0, 0, 0
        self._imported, self._brought = 0, set[int]()  # labels from elsewhere, and their classes
        self._done: list[Step] = []
        self._undone: list[Step] = []
        self._place = {key: place for place, key in enumerate(keys)}
        self.is_new = not journal.entries
        if self.is_new:
            about = {"format": FORMAT, "total": len(keys), "fingerprint": fingerprint}
            journal.append({"do": "begin", **about})
        else:
            self._check(journal.entries[0], fingerprint)
        for number, entry in enumerate(journal.entries[1:]):
            try:
                self._apply(entry)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise ValueError(f"{journal.path}, line {number + 2}: {error!r}") from None
            self.version += 1

    def _check(self, begin: Entry, fingerprint: str) -> None:
        if begin.get("format") != FORMAT:
            raise ValueError(f"{self.journal.path} was made by another version of cclp label")
        if begin.get("fingerprint") != fingerprint:
            raise ValueError(
                f"{self.journal.path} holds decisions about other data: rows were added, removed "
                "or changed. Name another folder for these"
            )

    # -- what may be asked -----------------------------------------------------------------------

    @property
    def names(self) -> dict[int, str]:
        """Of the classes, by id."""
        return self.labels.names

    @property
    def values(self) -> NDArray[np.int16]:
        """Of each sample: id of its class, or one of ``UNLABELED``, ``NOT_SURE``, ``NONE``."""
        return self.labels.values

    @property
    def who(self) -> NDArray[np.uint8]:
        """Who decided about each sample, an index of ``DECIDED``."""
        return self.labels.who

    @property
    def can_undo(self) -> bool:
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        return bool(self._undone)

    @property
    def labeled(self) -> NDArray[np.int64]:
        """Samples that have a class."""
        return np.flatnonzero(self.values >= 0)

    @property
    def news(self) -> list[bool]:
        """Whether each answer, in their order, was of a class that had no label before."""
        found, known = [False] * min(self._imported, MOST_CLASSES), set(self._brought)
        for step in self._done:
            if step.classes:
                found.append(not step.classes <= known)
                known |= step.classes
        return found

    def id_of(self, name: str) -> int | None:
        """The class of this name."""
        return next((number for number, known in self.names.items() if known == name), None)

    # -- changes ---------------------------------------------------------------------------------

    def decide(
        self,
        version: int,
        labels: Sequence[tuple[int, Value]],
        who: str | None = None,
        expected: Sequence[float | None] | None = None,
        drawn: bool = False,
    ) -> Change:
        """Labels of samples; of a sample that is named twice, the last counts.

        Args:
            version: that the page has seen.
            labels: samples, and the id of a class, "not_sure", "none", or None to take it back.
            who: of ``DECIDED``; None: a person for one sample, a page for several.
            expected: number of labels and error before, for the history.
            drawn: whether the samples were drawn at random to be asked about.

        Raises:
            Stale: if another change came first.
            ValueError: for samples and classes that there are not.
        """
        self._check_version(version)
        pairs = {}
        for sample, value in labels:
            check_integer("sample", sample, least=0)
            if sample >= len(self.keys):
                raise ValueError(f"sample must be below {len(self.keys)}, got {sample}")
            self.labels.code(value)
            pairs[self.keys[sample]] = value
        if not pairs:
            raise ValueError("decisions must name a sample or more, got none")
        who = who or ("person" if len(pairs) == 1 else "page")
        entry: Entry = {"do": "label", "labels": list(pairs.items()), "who": who}
        if drawn:
            entry["drawn"] = True
        return self._take(entry if expected is None else {**entry, "expected": list(expected)})

    def add_class(self, version: int, name: str) -> Change:
        """A new class."""
        self._check_version(version)
        return self._take({"do": "add", "class": self._next, "name": self._new_name(name)})

    def rename_class(self, version: int, number: int, name: str) -> Change:
        """Another name for a class."""
        self._check_version(version)
        self.labels.check_class(number)
        if self.names[number] == name.strip():
            raise ValueError(f"class {name.strip()!r} has this name already")
        return self._take({"do": "rename", "class": number, "name": self._new_name(name)})

    def merge_classes(self, version: int, source: int, into: int) -> Change:
        """All samples of one class are of another."""
        self._check_version(version)
        self.labels.check_class(source)
        self.labels.check_class(into)
        if source == into:
            raise ValueError(f"a class must be merged into another one, got {source} twice")
        return self._take({"do": "merge", "class": source, "into": into})

    def undo(self, version: int) -> Change:
        """The state before the last change."""
        self._check_version(version)
        if not self._done:
            raise ValueError("there is nothing to undo")
        return self._take({"do": "undo"})

    def redo(self, version: int) -> Change:
        """The change that was undone last."""
        self._check_version(version)
        if not self._undone:
            raise ValueError("there is nothing to redo")
        return self._take({"do": "redo"})

    def bring_in(self, rows: Sequence[Decided]) -> Change | None:
        """Labels from elsewhere, of samples that nobody has decided about; not to be undone."""
        new = [
            (row.sample, row.name or "", row.who)
            for row in rows
            if row.sample in self._place and self.values[self._place[row.sample]] == UNLABELED
        ]
        new = [row for row in new if row[1] or row[2] == "person"]
        unknown = sorted({name for _, name, _ in new if name and self.id_of(name) is None})
        if len(self.names) + len(unknown) > MOST_CLASSES:
            raise ValueError(f"at most {MOST_CLASSES} classes can be labeled, got {len(unknown)}")
        return self._take({"do": "import", "labels": new}) if new else None

    # -- how they are made -----------------------------------------------------------------------

    def _take(self, entry: Entry) -> Change:
        """Write a change, then make it: a full disk refuses it, and nothing has happened."""
        self.journal.append(entry)
        self.version += 1
        return self._apply(entry)

    def _apply(self, entry: Entry) -> Change:
        do = entry["do"]
        if do == "undo":
            step = self._done.pop()
            self._undone.append(step)
            return step.back()
        if do == "redo":
            step = self._undone.pop()
            self._done.append(step)
            return step.forth()
        if do == "import":
            return self._import(entry["labels"])
        step = self._step(entry)
        self._done.append(step)
        self._undone.clear()
        return step.forth()

    def _step(self, entry: Entry) -> Step:
        do = entry["do"]
        if do == "label":
            pairs = [(self._place.get(key), self.labels.code(value))
                     for key, value in entry["labels"]]  # fmt: skip
            known = [(place, value) for place, value in pairs if place is not None]
            self.lost += len(pairs) - len(known)
            samples, codes = [place for place, _ in known], [code for _, code in known]
            who, drawn = DECIDED.index(entry["who"]), entry.get("drawn") is True
            return self.labels.setting(samples, codes, who, drawn)
        number = int(entry["class"])
        if do == "merge":
            return self.labels.merging(number, int(entry["into"]))
        name = str(entry["name"])
        if do == "rename":
            return self.labels.renaming(number, name)
        if do != "add":
            raise ValueError(f"do must be label, add, rename or merge, got {do!r}")
        self._next = max(self._next, number + 1)
        return self.labels.adding(number, name)

    def _import(self, rows: Sequence[Sequence[str]]) -> Change:
        names = {name for _, name, _ in rows if name}
        numbers = all(name.isdecimal() for name in names)
        for name in sorted(names, key=lambda name: (int(name) if numbers else 0, name)):
            if self.id_of(name) is None:
                self.names[self._next] = name
                self._next += 1
        codes = {name: number for number, name in self.names.items()} | {"": NOT_SURE}
        known = [(self._place[key], codes[name], who) for key, name, who in rows
                 if key in self._place]  # fmt: skip
        self.lost += len(rows) - len(known)
        samples = np.array([place for place, _, _ in known], np.int64)
        after = np.array([code for _, code, _ in known], np.int16)
        before = self.values[samples]
        self.values[samples] = after
        self._imported += len(samples)
        self._brought |= set(after[after >= 0].tolist())
        self.who[samples] = [DECIDED.index(who) for _, _, who in known]
        return Change(samples, before, after)

    # -- what is checked -------------------------------------------------------------------------

    def _check_version(self, version: int) -> None:
        check_integer("version", version, least=0)
        if version != self.version:
            raise Stale(
                f"version {version} is not the latest, {self.version}: another tab has changed it"
            )

    def _new_name(self, name: object) -> str:
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, got {type(name).__name__}")
        name = text_name(" ".join(name.split()))
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise ValueError(
                f"name must be 1 to {LONGEST_NAME} characters that can be seen, got {name[:40]!r}"
            )
        if clean_labels([name])[0] != [name]:
            raise ValueError(
                f"name must be that of a class, but in labels.csv {name!r} is read as another one, "
                "or as no label: choose another name"
            )
        if self.id_of(name) is not None:
            raise ValueError(f"there is a class {name!r} already: merge the two instead")
        if self._next >= MOST_CLASSES:
            raise ValueError(f"there can be at most {MOST_CLASSES} classes")
        return name
