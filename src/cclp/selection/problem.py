"""What is to be learned: samples, labels, and the trainer of a network on some of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cclp.data.normalize import ZScore
from cclp.data.splits import Indices, Split
from cclp.data.weights import LabelWeights
from cclp.methods import make_methods
from cclp.nets.base import Net
from cclp.progress import Reporter
from cclp.pseudo_labels.features import are_images
from cclp.pseudo_labels.graph import NeighbourGraph
from cclp.pseudo_labels.labeler import Labeler
from cclp.pseudo_labels.schedule import PseudoLabelSchedule
from cclp.training.recipe import Recipe, Settings
from cclp.training.trainer import Trainer

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Floats = NDArray[np.float64]


class Candidate(NamedTuple):
    """A network that may be trained.

    Attributes:
        name: of its row in the verdict.
        title: for people.
        method: see :func:`cclp.methods.method_parts`.
        recipe: of the whole training.
        settings: of the methods, by method and name.
    """

    name: str
    title: str
    method: str
    recipe: Recipe
    settings: Settings


@dataclass(frozen=True)
class Problem:
    """Samples, labels, and the trainer of a network on some of them.

    Attributes:
        x: samples, (N, …).
        y: their classes, (N,); −1 is unlabeled.
        split: which are labeled, seen unlabeled, and held out.
        classes: names.
        seed: of trainings and folds.
        make_fabric: on which nets are trained.
        make_net: by its name in a recipe.
        label_weights: of these labeled samples.
        class_prior: shares of the classes, given these labeled samples; None: estimated.
        key: of device and precision, for caches.
        labeled_batch: at most so many labeled samples in a step.
        cache: folder that keeps neighbours for the next time.
        report: what the user sees.
    """

    x: NDArray[Any]
    y: Indices
    split: Split
    classes: tuple[str, ...]
    seed: int
    make_fabric: Callable[[], "Fabric"]
    make_net: Callable[[str], Net]
    label_weights: Callable[[Indices], LabelWeights | None]
    class_prior: Callable[[Indices], Floats | None]
    key: str
    labeled_batch: int | None
    cache: Path | None
    report: Reporter

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @cached_property
    def neighbours(self) -> NeighbourGraph:
        """The graph of the samples, whatever their labels."""
        return NeighbourGraph(self.x, self.split.unlabeled, cache=self.cache, report=self.report)

    @cached_property
    def shares(self) -> Floats:
        """Of the classes among all samples, as they are given or estimated, (C,)."""
        if self.split.all_labeled:
            labels = self.y[self.split.labeled]
            return np.bincount(labels, minlength=self.num_classes) / len(labels)
        return self.labeler(self.split, PseudoLabelSchedule(1)).graph.shares

    @cached_property
    def simple_inputs(self) -> tuple[NDArray[np.float32], Indices]:
        """What simple models learn from: standardised vectors, or HOG features of images; whose."""
        if self.x.ndim == 4:
            points = self.neighbours.points[self.neighbours.place]
            return points / (points.std() or 1.0), self.split.unlabeled
        normalizer, rows = ZScore.fit(self.x, self.split.unlabeled), self.split.labeled
        return normalizer(torch.from_numpy(self.x[rows])).numpy(), rows

    def labeler(
        self, split: Split, schedule: PseudoLabelSchedule, report: Reporter | None = None
    ) -> Labeler:
        """Makes pseudo-labels from the labels of a split: of vectors by a committee.

        The committee assumes nothing about the shares of the classes but what the graph shows.
        """
        prior = self.class_prior(split.labeled)
        return Labeler(
            self.x,
            self.y,
            split,
            self.num_classes,
            schedule,
            class_prior=prior,
            committee=prior is None and not are_images(self.x),
            report=report,
            neighbours=lambda: self.neighbours,
        )

    def trainer(self, candidate: Candidate, split: Split) -> Trainer:
        """Of a network, on the labels of a split."""
        return Trainer(
            self.make_fabric(),
            candidate.recipe,
            self.x,
            self.y,
            split,
            make_net=lambda: self.make_net(candidate.recipe.net),
            make_methods=lambda: make_methods(
                candidate.method, self.num_classes, candidate.settings
            ),
            labeled_batch=self.labeled_batch,
            seed=self.seed,
            label_weights=self.label_weights(split.labeled),
        )
