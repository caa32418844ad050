"""What is believed, kept up with the decisions: all of it happens in the background."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cclp.labelling.atlas import Atlas
from cclp.labelling.decisions import Decisions
from cclp.labelling.engine import Engine, Network
from cclp.labelling.follower import Follower
from cclp.labelling.labels import Change
from cclp.labelling.refinement import Correction, Refiner, Task
from cclp.labelling.source import Source
from cclp.labelling.training import Training
from cclp.labelling.watch import Watched


class Loop:
    """The graph is built, answers are propagated and refined, a network's predictions taken in.

    Args:
        source: the samples.
        decisions: about them.
        lock: of the decisions.
        training: of a network, in a process of its own.
        distortion: whether images are compared by the image distortion model.
        cache: folder that keeps neighbours for the next time.
        background: whether answers are propagated after :meth:`wake` has returned.
        report: shows progress.

    Attributes:
        engine: None as long as the graph is not built.
        problem: why it cannot be, or why labels cannot be propagated.
        refined: how often beliefs have become others without an answer.
    """

    def __init__(
        self,
        source: Source,
        decisions: Decisions,
        lock: "threading.RLock",
        training: Training,
        *,
        distortion: bool,
        cache: Path,
        background: bool,
        report: Watched,
    ) -> None:
        self._source, self._decisions, self._training = source, decisions, training
        self._lock = lock
        self._engine_lock = threading.RLock()  # of changes of the engine; taken before the other
        self._distortion, self._cache, self._report = distortion, cache, report
        self.engine: Engine | None = None
        self.problem: str | None = None
        self.refined = 0
        self._latest: list[float | None] = []
        self._follower = Follower(self._follow, background)
        self._refiner = Refiner(self._next_task, self._take_correction)
        self._thread = threading.Thread(target=self._build, daemon=True)
        self._thread.start()

    @property
    def is_fresh(self) -> bool:
        """Whether all answers are propagated."""
        return self._follower.is_fresh

    def line(self) -> list[float | None]:
        """Labels that are propagated, and what :class:`Expected` says of them."""
        if self.engine is None:
            return [int((self._decisions.values >= 0).sum()), None, None, None]
        return self._latest

    def wake(self) -> None:
        """Samples have other labels."""
        self._follower.wake()
        self._refiner.ask()

    def catch_up(self, seconds: float | None = None) -> None:
        """Wait until all answers are propagated."""
        self._follower.wait(seconds)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the graph is built, answers are propagated, and nothing is refined any more.

        Raises:
            ValueError: if it cannot be.
        """
        self._thread.join(seconds)
        if self.problem is not None:
            raise ValueError(self.problem)
        self._follower.wait(seconds)
        self._refiner.wait(seconds)

    def take_predictions(self) -> None:
        """Once a network is trained, its predictions replace the graph's."""
        if self.engine is not None and self._training.is_done and not self._training.is_taken:
            self._training.is_taken = True
            threading.Thread(target=self._predict, daemon=True).start()

    def check_network(self) -> None:
        """Believe the graph again if a class that the network knows is gone."""
        engine = self.engine
        network = None if engine is None else engine.network
        if engine is None or network is None or self._are_there(network.classes):
            return  # nearly always: the lock may be held as long as an answer is propagated
        with self._engine_lock:
            if engine.network is network:
                engine.take(None)
                self._took(engine)

    def _are_there(self, classes: Sequence[int]) -> bool:
        with self._lock:
            return self._decisions.names.keys() >= set(classes)

    def close(self) -> None:
        """End the threads."""
        self._refiner.close()
        self._thread.join(5)
        self._follower.end()

    def _build(self) -> None:
        try:
            atlas = Atlas.build(
                self._source, distortion=self._distortion, cache=self._cache, report=self._report
            )
            with self._lock:
                values, news = self._decisions.values.copy(), self._decisions.news
                drawn = self._decisions.labels.drawn.copy()
            with self._report.work("Passing labels on to similar samples", None):
                engine = Engine(atlas, values, news, drawn)
            with self._lock:  # answers that came meanwhile
                self._update(engine)
                self.engine = engine
            self._refiner.ask()
        except Exception as error:  # the page says it
            self.problem = f"The graph cannot be built: {error}"

    def _follow(self) -> None:
        """Propagate what has changed since the last time."""
        with self._engine_lock:
            assert self.engine is not None
            try:
                self._update(self.engine)
            except Exception as error:  # the page says it
                self.problem = f"The labels cannot be propagated: {error}"

    def _update(self, engine: Engine) -> None:
        with self._lock:
            before, after = engine.values, self._decisions.values.copy()
            news, drawn = self._decisions.news, self._decisions.labels.drawn.copy()
        other = np.flatnonzero(before != after)
        engine.update(Change(other, before[other], after[other]), after, news, drawn)
        self._latest = [int((after >= 0).sum()), *engine.expected]

    def _next_task(self) -> Task | None:
        with self._engine_lock:
            return None if self.engine is None else self.engine.task()

    def _take_correction(self, correction: Correction) -> None:
        with self._engine_lock:
            if self.engine is not None:
                self.engine.correct(correction)
                self._took(self.engine)

    def _predict(self) -> None:
        training, engine = self._training, self.engine
        run, ids, seen = training.run, training.ids, training.seen
        assert engine is not None
        assert run is not None
        network, problem = None, ""
        try:
            names, probabilities = training.predict(run)
            classes = np.array([ids[name] for name in names])
            order = np.argsort(classes)
            by_node = probabilities[engine.atlas.first][:, order]
            network = Network(tuple(classes[order].tolist()), by_node, seen)
        except Exception as error:  # the page says it
            problem = f"its predictions cannot be read: {error}"
        with self._engine_lock:
            if training.run is not run:  # another one was begun
                return
            if network is not None:
                engine.take(network)
                if not self._are_there(network.classes):  # now: check_network sees it from here on
                    engine.take(None)
                    network, problem = None, "its predictions are not used: a class of it is gone"
                self._took(engine)
            training.problem, training.is_believed = problem, network is not None

    def _took(self, engine: Engine) -> None:
        """Beliefs have become others without an answer."""
        with self._lock:
            self.refined += 1
            self._latest = [int((engine.values >= 0).sum()), *engine.expected]
