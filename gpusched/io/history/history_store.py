"""The file of runs: SQLite with a version of its own, written by one process at a time.

What is wrong with the file is a ``HistoryUnavailable`` with one sentence; a file that is damaged is set
aside first, so that the next attempt begins a new one.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from gpusched.api.meta.identity import format_time
from gpusched.base import limits
from gpusched.base.errors import GpuschedError
from gpusched.io.history.gang_run import RUN_COLUMNS, STILL_OPEN, GangRun, run_from_row

T = TypeVar("T")

VERSION: Final = 4
"""Of the columns; files of later versions are neither read nor written, earlier ones get what they lack."""
ADDED_COLUMNS: Final[Mapping[int, Mapping[str, str]]] = MappingProxyType(
    {
        2: {"owner": "TEXT NOT NULL DEFAULT ''"},
        3: {
            "told_at": "REAL NOT NULL DEFAULT 0",
            "first_start": "REAL NOT NULL DEFAULT 0",
            "half_start": "REAL NOT NULL DEFAULT 0",
            "earliest_start": "REAL NOT NULL DEFAULT 0",
            "latest_start": "REAL NOT NULL DEFAULT 0",
            "known_by": "TEXT NOT NULL DEFAULT ''",
            "estimate_moves": "INTEGER NOT NULL DEFAULT 0",
            "estimate_change": "TEXT NOT NULL DEFAULT ''",
        },
        4: {"repeated_evictions": "INTEGER NOT NULL DEFAULT 0"},
    }
)
"""Columns of runs by the version that brought them, with their types and defaults."""
APPLICATION: Final = 0x67707368
"""Marks the file as ours among all SQLite files: ``gpsh``."""
SET_ASIDE: Final = ".damaged"
"""Suffix of a file that could not be read any more."""
_DELETED_AT_ONCE: Final = 5_000
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_TABLE: Final = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, uid TEXT NOT NULL, name TEXT NOT NULL, seen REAL NOT NULL,
    namespace TEXT NOT NULL, kind TEXT NOT NULL, queue TEXT NOT NULL, user TEXT NOT NULL,
    priority INTEGER NOT NULL, members INTEGER NOT NULL, min_member INTEGER NOT NULL,
    gpus INTEGER NOT NULL, gpu_type TEXT NOT NULL, gpu_types TEXT NOT NULL, created REAL NOT NULL,
    since REAL NOT NULL, admitted REAL NOT NULL, started REAL NOT NULL, ended REAL NOT NULL,
    outcome TEXT NOT NULL, reason TEXT NOT NULL, ended_by TEXT NOT NULL, evictions INTEGER NOT NULL,
    gpu_seconds REAL NOT NULL, lost_gpu_seconds REAL NOT NULL, counted_until REAL NOT NULL
);
CREATE UNIQUE INDEX runs_name ON runs (uid, name, seen);
CREATE INDEX runs_ended ON runs (ended, since);
CREATE INDEX runs_queue ON runs (queue, ended, since);
CREATE INDEX runs_namespace ON runs (namespace, ended, since);
CREATE TABLE days (
    day TEXT NOT NULL, by_type INTEGER NOT NULL, queue TEXT NOT NULL, namespace TEXT NOT NULL,
    user TEXT NOT NULL, outcome TEXT NOT NULL, gpu_type TEXT NOT NULL, runs INTEGER NOT NULL,
    started INTEGER NOT NULL, waited_s REAL NOT NULL, longest_wait_s REAL NOT NULL,
    ran_s REAL NOT NULL, evictions INTEGER NOT NULL, gpu_seconds REAL NOT NULL,
    lost_gpu_seconds REAL NOT NULL,
    PRIMARY KEY (day, by_type, queue, namespace, user, outcome, gpu_type)
) WITHOUT ROWID;
"""
_ADD_TO_DAY: Final = """
INSERT INTO days
SELECT date(new.ended, 'unixepoch'), each.by_type, new.queue, new.namespace, new.user, new.outcome,
    each.gpu_type, 1, new.started > 0,
    CASE WHEN new.started > 0 THEN new.started ELSE new.ended END - new.since,
    CASE WHEN new.started > 0 THEN new.started ELSE new.ended END - new.since,
    CASE WHEN new.started > 0 THEN new.ended - new.started ELSE 0 END,
    new.evictions, each.gpu_seconds, new.lost_gpu_seconds
FROM (
    SELECT 0 AS by_type, '' AS gpu_type, new.gpu_seconds AS gpu_seconds
    UNION ALL SELECT 1, new.gpu_type, new.gpu_seconds WHERE new.gpu_types = ''
    UNION ALL SELECT 1, several.key, several.value
        FROM json_each(CASE new.gpu_types WHEN '' THEN '{}' ELSE new.gpu_types END) several
) each WHERE true
ON CONFLICT DO UPDATE SET
    runs = runs + 1, started = started + excluded.started,
    waited_s = waited_s + excluded.waited_s,
    longest_wait_s = max(longest_wait_s, excluded.longest_wait_s),
    ran_s = ran_s + excluded.ran_s, evictions = evictions + excluded.evictions,
    gpu_seconds = gpu_seconds + excluded.gpu_seconds,
    lost_gpu_seconds = lost_gpu_seconds + excluded.lost_gpu_seconds;
"""
"""A run that has ended counts for its day: once as a whole, and once for each GPU type."""
_TRIGGERS: Final = f"""
CREATE TRIGGER runs_new AFTER INSERT ON runs WHEN new.ended < {STILL_OPEN} BEGIN {_ADD_TO_DAY} END;
CREATE TRIGGER runs_end AFTER UPDATE ON runs
WHEN new.ended < {STILL_OPEN} AND old.ended >= {STILL_OPEN} BEGIN {_ADD_TO_DAY} END;
"""
_COLUMNS: Final = ", ".join(RUN_COLUMNS)
_PUT: Final = (
    f"INSERT INTO runs ({_COLUMNS}) VALUES ({', '.join('?' * len(RUN_COLUMNS))}) "  # noqa: S608
    "ON CONFLICT (uid, name, seen) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in RUN_COLUMNS[3:])
    + f" WHERE runs.ended >= {STILL_OPEN}"
)
"""A run that has ended stays as it is: who led before may tell late that it goes on."""


class HistoryUnavailable(GpuschedError):
    """The file cannot be used."""

    exit_status = 78


class HistoryStore:
    """One open file.

    Args:
        path: made when it is not there, as its folder is.
        busy_s: how long another process that writes is waited for.

    Raises:
        HistoryUnavailable: it cannot be opened, or is no history that this version writes.
    """

    def __init__(self, path: Path, *, busy_s: float = 0.0) -> None:
        self._path = path
        self._file = self._guarded(lambda: _opened(path, busy_s))

    def check_place(self) -> None:
        """Nothing, while the file stands where it was opened: one that was removed takes rows to nowhere.

        Raises:
            HistoryUnavailable: it is not there.
        """
        if not self._path.exists():
            raise HistoryUnavailable(f"{self._path}: was removed; a new one begins")

    def open_runs(self) -> list[GangRun]:
        """Runs that have not ended, as the file has them.

        Raises:
            HistoryUnavailable: the file cannot be read.
        """
        query = f"SELECT {_COLUMNS} FROM runs WHERE ended >= ? ORDER BY id"  # noqa: S608
        rows = self._guarded(lambda: self._file.execute(query, (STILL_OPEN,)).fetchall())
        return [run_from_row(row) for row in rows]

    def put(self, rows: Iterable[Sequence[Any]]) -> None:
        """Write runs, all or none; one that is there already is replaced.

        Raises:
            HistoryUnavailable: nothing was written.
        """

        def write() -> None:
            with self._file:
                self._file.executemany(_PUT, rows)

        self._guarded(write)

    def forget_old(self, before: float, rows_max: int) -> int:
        """Delete runs that ended before a moment, then the oldest that are too many.

        Returns:
            How many were deleted; there may be more, as a call deletes some thousands at most.

        Raises:
            HistoryUnavailable: the file cannot be written.
        """

        def delete() -> int:
            with self._file:
                gone = self._file.execute(
                    "DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE ended < ? "
                    "ORDER BY ended LIMIT ?)",
                    (before, _DELETED_AT_ONCE),
                ).rowcount
                day = format_time(before)[:10] if before > 0 else ""
                self._file.execute("DELETE FROM days WHERE day < ?", (day,))
                (count,) = self._file.execute("SELECT count(*) FROM runs").fetchone()
                return (
                    gone
                    + self._file.execute(
                        "DELETE FROM runs WHERE id IN (SELECT id FROM runs ORDER BY ended LIMIT ?)",
                        (min(_DELETED_AT_ONCE, max(0, count - rows_max)),),
                    ).rowcount
                )

        return self._guarded(delete)

    def close(self) -> None:
        """Close the file; what was written is in it."""
        with contextlib.suppress(sqlite3.Error):
            self._file.close()

    def _guarded(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) in _DAMAGED:
                raise HistoryUnavailable(self._set_aside(error)) from error
            raise HistoryUnavailable(f"{self._path}: {_said(error)}") from error
        except OSError as error:
            raise HistoryUnavailable(f"{self._path}: {error.strerror or error}") from error

    def _set_aside(self, error: sqlite3.Error) -> str:
        """Rename a damaged file, so that a new one can begin; what happened."""
        if hasattr(self, "_file"):
            self.close()
        aside = self._path.with_name(self._path.name + SET_ASIDE)
        try:
            self._path.replace(aside)
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        except OSError as left:
            return f"{self._path}: is damaged ({error}) and cannot be renamed: {left.strerror}"
        return f"{self._path}: was damaged ({error}); it is {aside.name} now, and a new one begins"


def _opened(path: Path, busy_s: float) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = sqlite3.connect(path, timeout=busy_s, check_same_thread=False)
    try:
        check_version(file, path)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute(f"PRAGMA journal_size_limit = {limits.HISTORY_JOURNAL_BYTES_MAX}")
        (version,) = file.execute("PRAGMA user_version").fetchone()
        if version < VERSION:
            made = "" if version else f"{_TABLE} {_TRIGGERS} PRAGMA application_id = {APPLICATION};"
            file.executescript(
                f"BEGIN IMMEDIATE; {made} {_columns_since(version)} "
                f"PRAGMA user_version = {VERSION}; COMMIT;"
            )
    except BaseException:
        file.close()
        raise
    return file


def _columns_since(version: int) -> str:
    """Statements that add what a file of a version lacks."""
    return " ".join(
        f"ALTER TABLE runs ADD COLUMN {name} {kind};"
        for added, columns in ADDED_COLUMNS.items()
        if added > version
        for name, kind in columns.items()
    )


def columns_of_version(version: int) -> tuple[str, ...]:
    """What is selected of a file of a version, in the order of ``RUN_COLUMNS``: defaults for what it lacks."""
    lacking = {
        name: kind.rpartition(" DEFAULT ")[2]
        for added, columns in ADDED_COLUMNS.items()
        if added > version
        for name, kind in columns.items()
    }
    return tuple(lacking.get(name, name) for name in RUN_COLUMNS)


def check_version(file: sqlite3.Connection, path: Path) -> None:
    """Nothing, where this version can use the file.

    Raises:
        HistoryUnavailable: it was written by a later version, or by another program.
        sqlite3.Error: it cannot be read.
    """
    (mark,) = file.execute("PRAGMA application_id").fetchone()
    (version,) = file.execute("PRAGMA user_version").fetchone()
    (tables,) = file.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if mark != APPLICATION and (mark or version or tables):
        raise HistoryUnavailable(f"{path}: is a database of another program; name another file")
    if version > VERSION:
        raise HistoryUnavailable(
            f"{path}: was written by a later version of gpusched (its format is {version}, this "
            f"version writes {VERSION}); name another file, or remove this one"
        )


def _said(error: sqlite3.Error) -> str:
    """What SQLite says, in words of whoever has to act on it."""
    text = str(error)
    known = {
        "database or disk is full": "there is no room left for it",
        "database is locked": "another process is writing to it",
        "attempt to write a readonly database": "it may not be written",
        "unable to open database file": "it cannot be opened",
    }
    return next((sentence for words, sentence in known.items() if words in text), text)
