"""Labels are propagated in the background: nobody who answers waits for it."""

import threading
from collections.abc import Callable


class Follower:
    """Calls a function in a thread of its own whenever it is told to, never twice at a time.

    Args:
        follow: takes in all that has changed; called again if more changes meanwhile.
        background: whether in a thread; else at once, in the thread that says so.
    """

    def __init__(self, follow: Callable[[], None], background: bool) -> None:
        self._follow, self._background = follow, background
        self._changed = threading.Condition()
        self._asked = self._done = 0
        self._ended = False
        self._thread: threading.Thread | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether all that has changed is taken in."""
        return self._done == self._asked

    def wake(self) -> None:
        """Something has changed."""
        with self._changed:
            self._asked += 1
            if self._background and self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if not self._background:
            self._follow()
            self._done = self._asked

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all is taken in; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_fresh or self._ended, seconds)

    def end(self) -> None:
        """Take in no more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or not self.is_fresh)
                if self._ended:
                    return
                asked = self._asked
            self._follow()
            with self._changed:
                self._done = asked
                self._changed.notify_all()
