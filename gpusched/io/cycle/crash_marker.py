"""What a process is doing in a session, in a file that outlives it: what the last start died of.

A mark is bytes in a mapped page, written without a system call: it is there for the next process
even after SIGKILL, an end by the watchdog or a crash of native code. The same container, or the
same command, finds it at its next start. A file that cannot be used costs nothing but this memory.

::

    idle --begin--> session (stage, gang in hand) --end--> idle --close--> stopped
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from pathlib import Path
from typing import Final

import msgspec

from gpusched.api.meta.identity import GangKey
from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.io.observe.logs import Logger

_STATE: Final = 0
_STAGE: Final = 16
_HAND: Final = 128
_MEMORY: Final = 1024
_SIZE: Final = 16 * 1024
_HAND_MAX: Final = _MEMORY - _HAND
_IDLE, _IN_SESSION, _STOPPED, _FAULT = b"idle", b"session", b"stopped", b"fault"
_log = Logger(__name__)


class CrashSuspect(msgspec.Struct):
    """A gang that was in hand when a process died, so many times."""

    kind: str
    namespace: str
    name: str
    stage: str
    times: int = 1

    @property
    def key(self) -> GangKey:
        """The gang that was marked, None for none."""
        return GangKey(self.kind, self.namespace, self.name)


class CrashMemory(msgspec.Struct):
    """What is known of earlier deaths.

    Attributes:
        deaths: in a row, without a while of full sessions between them.
        stage: of the session in which the last one was.
        why: what it died of, where it could say so.
    """

    deaths: int = 0
    stage: str = ""
    why: str = ""
    suspects: list[CrashSuspect] = []


@frozen
class ProcessCrash:
    """How the last process ended.

    Attributes:
        stage: of the session it was in; empty when it was in none.
        hand: the gang that was in hand; None when none was.
        why: what it said itself; empty when it could say nothing.
    """

    stage: str
    hand: GangKey | None
    why: str = ""

    @property
    def message(self) -> str:
        """For log and event."""
        whom = f" with gang {self.hand.kind} {self.hand} in hand" if self.hand is not None else ""
        if self.why:
            return f"the last process ended{whom} because of a fault of its own: {self.why}"
        return f"the last process died in a session, in {self.stage or 'its beginning'}{whom}"


class CrashMarker:
    """See the module. One per process.

    Args:
        memory: of earlier deaths, the last one included.
        death: how the last process ended; None when it ended in order, or not in a session.
        page: the mapped file.
        lock: keeps the file to this process; -1 for none.
    """

    def __init__(
        self, memory: CrashMemory, death: ProcessCrash | None, page: mmap.mmap, lock: int
    ) -> None:
        self.memory = memory
        self.death = death
        self._page = page
        self._lock = lock
        self._good_since: float | None = None

    @classmethod
    def open(cls, path: Path) -> CrashMarker | None:
        """The mark at that place, or beside it where another process has it; None without a file."""
        for number in range(limits.STATE_FILES_MAX):
            try:
                return cls._open(path if not number else path.with_name(f"{path.name}.{number}"))
            except BlockingIOError:
                continue
            except OSError as error:
                why = error.strerror or str(error)
                _log.warning("what a start dies of is not remembered", file=str(path), why=why)
                return None
        return None

    @classmethod
    def _open(cls, path: Path) -> CrashMarker:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.fstat(lock).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "the file is another user's")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, _SIZE)
            page = mmap.mmap(lock, _SIZE)
        except OSError:
            os.close(lock)
            raise
        memory, death = _read(page)
        mark = cls(memory, death, page, lock)
        mark._remember()
        mark._put_text(_STATE, _IDLE, _STAGE)
        return mark

    # -- while it lives ----------------------------------------------------------------------
    def begin(self) -> None:
        """Mark that a session begins."""
        self._put_text(_STAGE, b"", _HAND)
        self._put_text(_HAND, b"", _MEMORY)
        self._put_text(_STATE, _IN_SESSION, _STAGE)

    def end(self) -> None:
        """It came to its end."""
        self._put_text(_STATE, _IDLE, _STAGE)

    def mark_stage(self, name: str) -> None:
        """It is here now."""
        self._put_text(_STAGE, name.encode()[: _HAND - _STAGE - 1], _HAND)
        self._page[_HAND] = 0

    def mark_gang(self, gang: GangKey) -> None:
        """This gang is in hand now."""
        text = f"{gang.kind}\n{gang.namespace}\n{gang.name}\n".encode()[: _HAND_MAX - 1]
        end = _HAND + len(text)
        self._page[_HAND:end] = text
        self._page[end] = 0

    def record_success(self, now: float, *, full: bool) -> None:
        """A session was held; after a while of full ones earlier deaths are forgotten.

        Args:
            now: monotonic seconds.
            full: whether nothing was left out of it.
        """
        if not self.memory.deaths and not self.memory.suspects:
            return
        if not full:
            self._good_since = None
            return
        if self._good_since is None:
            self._good_since = now
        elif now - self._good_since >= limits.CRASHES_FORGOTTEN_S:
            self.memory = CrashMemory()
            self._remember()

    def mark_fault(self, why: str, hand: GangKey | None = None) -> None:
        """The process ends because of this, in a commit of this gang if it was one."""
        self.memory.why = why[: limits.TEXT_MAX]
        self._remember()
        self._put_text(_HAND, b"", _MEMORY)
        if hand is not None:
            self.mark_gang(hand)
        self._put_text(_STATE, _FAULT, _STAGE)

    def close(self) -> None:
        """The process ends, in order unless a fault was told."""
        if self._page[: len(_FAULT)] != _FAULT:
            self._put_text(_STATE, _STOPPED, _STAGE)
        self._page.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # -- bytes -------------------------------------------------------------------------------
    def _remember(self) -> None:
        body = msgspec.json.encode(self.memory)
        while len(body) >= _SIZE - _MEMORY and self.memory.suspects:
            del self.memory.suspects[0]
            body = msgspec.json.encode(self.memory)
        self._put_text(_MEMORY, body, _SIZE)

    def _put_text(self, at: int, text: bytes, end: int) -> None:
        text = text[: end - at - 1]
        self._page[at : at + len(text) + 1] = text + b"\0"


def _read(page: mmap.mmap) -> tuple[CrashMemory, ProcessCrash | None]:
    """What the last process left; what cannot be read was never written."""
    try:
        memory = msgspec.json.decode(_read_text(page, _MEMORY, _SIZE) or b"{}", type=CrashMemory)
    except msgspec.MsgspecError:
        memory = CrashMemory()
    state = _read_text(page, _STATE, _STAGE)
    if state == _FAULT:
        memory.deaths += 1
        memory.stage = "commit"
        return memory, ProcessCrash(stage="", hand=_suspected_gang(page, memory), why=memory.why)
    if state != _IN_SESSION:
        return memory, None
    memory.deaths += 1
    memory.why = ""
    memory.stage = _read_text(page, _STAGE, _HAND).decode(errors="replace")
    return memory, ProcessCrash(stage=memory.stage, hand=_suspected_gang(page, memory))


def _suspected_gang(page: mmap.mmap, memory: CrashMemory) -> GangKey | None:
    """The gang that was in hand, counted once more."""
    parts = _read_text(page, _HAND, _MEMORY).decode(errors="replace").split("\n")
    if len(parts) != 4:
        return None
    hand = GangKey(*parts[:3])
    known = next((each for each in memory.suspects if each.key == hand), None)
    if known is None:
        memory.suspects.append(CrashSuspect(*hand, stage=memory.stage))
    else:
        known.times += 1
        known.stage = memory.stage
    return hand


def _read_text(page: mmap.mmap, at: int, end: int) -> bytes:
    return page[at:end].partition(b"\0")[0]
