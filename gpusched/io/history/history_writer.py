"""Writes runs into the file, in a thread of its own: a decision never waits for it.

Rows wait in a table by the names of their runs, so that a run that changes twice is written once.
The table is bounded: what finds no place is lost, counted and said. A file that cannot be used is
tried again, and said once for each trouble.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final

from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.io.history.gang_run import GangRun, run_as_row
from gpusched.io.history.history_store import HistoryStore, HistoryUnavailable
from gpusched.io.observe.logs import Logger

_GATHER_S: Final = 0.5
"""So long rows gather before they are written together."""
_BUSY_S: Final = 2.0
"""So long another process that writes is waited for."""
_log = Logger(__name__)

_Name = tuple[str, str, float]


@frozen(kw_only=True)
class HistoryOptions:
    """Where runs are kept.

    Attributes:
        file: the path.
        keep_s: runs that ended longer ago are deleted.
        rows_max: runs that are kept at most.
    """

    file: Path
    keep_s: float
    rows_max: int


class HistoryWriter:
    """See the module.

    Args:
        options: where and how much.
        clock: time.
        inline: the file is written in the event loop, when ``flush`` is called (virtual time).
        rows_waiting_max: rows that may wait to be written.
    """

    def __init__(
        self,
        options: HistoryOptions,
        clock: Clock,
        *,
        inline: bool = False,
        rows_waiting_max: int = limits.HISTORY_ROWS_WAITING_MAX,
    ) -> None:
        self._options = options
        self._clock = clock
        self._most = rows_waiting_max
        self._lock = threading.Lock()
        self._rows: dict[_Name, tuple[Any, ...]] = {}
        self._wake = threading.Event()
        self._stopping = False
        self._store: HistoryStore | None = None
        self._found: list[GangRun] | None = None
        self._asked = False
        self._trouble = ""
        self._next_try = 0.0
        self._next_sweep = 0.0
        self._left_out = 0
        self.written = 0
        """Rows that were written."""
        self.lost = 0
        """Rows that found no place while the file could not be written, or was too slow."""
        self._busy_s = 0.0 if inline else _BUSY_S
        self._thread: threading.Thread | None = None
        if not inline:
            self._thread = threading.Thread(target=self._work, name="history", daemon=True)
            self._thread.start()

    @property
    def is_well(self) -> bool:
        """Whether the file could be used when it was last."""
        return not self._trouble

    # -- in the event loop -------------------------------------------------------------------
    def put(self, run: GangRun) -> None:
        """Have a run written as it is now."""
        row = run_as_row(run)
        with self._lock:
            if run.name in self._rows or len(self._rows) < self._most:
                self._rows[run.name] = row
            else:
                self.lost += 1
                self._left_out += 1
                return
        self._wake.set()

    def ask_open_runs(self) -> None:
        """A new term begins: it is to know which runs have not ended. Rows wait until then."""
        with self._lock:
            self._asked, self._found = True, None
        self._wake.set()

    def take_open_runs(self) -> list[GangRun] | None:
        """What the file had as not ended when it was opened; None while that is not known, or was taken."""
        with self._lock:
            found, self._found = self._found, None
        return found

    def flush(self) -> None:
        """Write here and now, where there is no thread."""
        if self._thread is None:
            self._step()

    def stop(self, timeout_s: float) -> None:
        """Write what waits, for so long at most, and close the file."""
        self._stopping = True
        self._wake.set()
        if self._thread is None:
            self._finish()
        else:
            self._thread.join(timeout_s)

    # -- in the thread -----------------------------------------------------------------------
    def _work(self) -> None:
        pause = threading.Event()
        while not self._stopping:
            self._wake.wait(limits.HISTORY_RETRY_S)
            if not self._stopping:
                pause.wait(_GATHER_S)
            self._wake.clear()
            self._step()
        self._finish()

    def _finish(self) -> None:
        self._next_try = 0.0
        self._step()
        self._found = None  # nobody looks any more
        self._step()
        if self._store is not None:
            self._store.close()
            self._store = None
        if self._rows:
            _log.warning("the last records of the history were not written", lost=len(self._rows))

    def _step(self) -> None:
        """Open the file where it is not, write what waits, and delete what is old."""
        now = self._clock.monotonic()
        if self._trouble and now < self._next_try:
            return
        if self._store is None and not (self._asked or self._rows):
            return
        try:
            if self._store is not None:
                self._store.check_place()
            else:
                self._store = HistoryStore(self._options.file, busy_s=self._busy_s)
                self._asked = True
            if self._asked:
                runs = self._store.open_runs()
                with self._lock:
                    self._asked, self._found = False, runs
            else:
                self._write(self._store)
            if now >= self._next_sweep:
                self._sweep(self._store, now)
        except HistoryUnavailable as error:
            self._failed(str(error), now)
        except Exception as error:  # noqa: BLE001 - history stops, and nothing else
            self._drop_all()  # one of them may be why
            self._failed(f"{self._options.file}: {type(error).__name__}: {error}", now)

    def _write(self, store: HistoryStore) -> None:
        with self._lock:
            if self._found is not None:
                return  # nobody has looked at them yet: rows may still get other names
            rows = list(self._rows.items())
        if rows:
            store.put([row for _, row in rows])
        self.written += len(rows)
        self._recovered()
        with self._lock:
            for name, row in rows:
                if self._rows.get(name) is row:
                    del self._rows[name]
        if self._left_out:
            lost, self._left_out = self._left_out, 0
            _log.warning(
                "records of the history were lost: they came faster than they are written",
                lost=lost,
            )

    def _drop_all(self) -> None:
        with self._lock:
            self.lost += len(self._rows)
            self._left_out += len(self._rows)
            self._rows.clear()

    def _sweep(self, store: HistoryStore, now: float) -> None:
        before = self._clock.now() - self._options.keep_s
        more = store.forget_old(before, self._options.rows_max)
        self._next_sweep = now + (0.0 if more else limits.HISTORY_SWEEP_S)
        if more:
            self._wake.set()

    def _recovered(self) -> None:
        if self._trouble:
            self._trouble = ""
            lost, self._left_out = self._left_out, 0
            _log.info("the history is written again", file=self._options.file, lost=lost)

    def _failed(self, why: str, now: float) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None
        self._next_try = now + limits.HISTORY_RETRY_S
        if why != self._trouble:
            self._trouble = why
            _log.warning(
                "the history stops until its file can be written; scheduling goes on", why=why
            )
