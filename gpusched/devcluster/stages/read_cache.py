"""Answers of pure programs over objects, kept by what the programs read of them.

A jq program reads a handful of fields of an object of thousands: the phase, an annotation, the
status of one condition. Equal readings have equal answers. While a program runs, a view
of the object notes each field it asks for and what it saw; the notes of all runs form a tree:

    phase? --"Running"--> deletionTimestamp? --None--> run-for? --"20m"--> the answer

A later object walks the tree with plain look-ups, and only one that answers as none before runs the
program. What a program reads next depends on nothing but what it has read so far, so the tree is
exact, not a guess. A program that looks at a map as a whole has that map compared as a whole.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from gpusched.devcluster.apimachinery.limits import STAGE_READINGS_MAX
from gpusched.devcluster.stages.typed_objects import Path, omitted_fields

T = TypeVar("T")
Obj = dict[str, Any]

_IMPURE: Final = re.compile(
    r"\b(now|inputs?|input_line_number|input_filename|env|ENV|localtime|strflocaltime|mktime"
    r"|debug|stderr|halt|halt_error)\b"
)
"""Words of jq that read more than their input, or do more than answer."""
_MAP: Final = object()
_EMPTY_MAP: Final = object()
_encode: Final = msgspec.json.Encoder().encode


@functools.cache
def is_pure(program: str) -> bool:
    """Whether a jq program surely depends on its input alone."""
    return _IMPURE.search(program) is None


def jq_value(value: Any, path: Path = (), *, typed: bool) -> Any:
    """A value as KWOK hands it to jq: keys with null dropped, every number a float.

    Args:
        value: all of an object, or the part of it that ``path`` leads to.
        path: see ``omitted_fields``.
        typed: whether KWOK has the object by its Go type.
    """
    kind = type(value)  # exact types: this runs over whole objects
    if kind is dict:
        return {
            key: jq_value(item, (*path, key), typed=typed)
            for key, item in value.items()
            if not (omitted_fields(path, key, item) if typed else item is None)
        }
    if kind is list:
        return [jq_value(item, path, typed=typed) for item in value]
    return float(value) if kind is int else value


class _Whole(BaseException):
    """A program looked at a map as a whole; no program of jq may catch it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path


class TrackedView(dict[str, Any]):
    """A map as jq sees it that notes what is read; anything but one key at a time is ``_Whole``.

    It holds nothing itself, so that what passes it by finds nothing rather than reads unseen.
    """

    __slots__ = ("_notes", "_path", "_raw", "_read", "_slot")

    def __init__(self, raw: Obj, notes: _ReadLog, *, slot: int, path: Path) -> None:
        super().__init__()
        self._raw = raw
        self._notes = notes
        self._slot = slot
        self._path = path
        self._read: Obj = {}

    def get(self, key: str, default: Any = None) -> Any:
        """What stands under a key, the default where nothing does."""
        if key not in self._read:
            self._read[key] = self._notes.take(self._raw, key, slot=self._slot, path=self._path)
        found = self._read[key]
        return default if found is None else found

    def __getitem__(self, key: str) -> Any:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def whole(self, *_: Any, **__: Any) -> Any:
        """End this run: the map has to be compared as a whole."""
        raise _Whole(self._path)

    __iter__ = __len__ = __bool__ = __eq__ = __ne__ = __or__ = __ror__ = __ior__ = whole
    __lt__ = __gt__ = __le__ = __ge__ = __reversed__ = __repr__ = __str__ = whole
    __hash__ = whole  # type: ignore[assignment]
    __setitem__ = __delitem__ = __reduce_ex__ = whole
    keys = values = items = copy = pop = popitem = setdefault = update = clear = whole


class _RecordedRead:
    """One reading: a key of a map seen before, and where each answer leads."""

    __slots__ = ("answers", "key", "slot", "whole")

    def __init__(self, slot: int, key: str, *, whole: bool) -> None:
        self.slot = slot
        self.key = key
        self.whole = whole
        self.answers: dict[Any, Any] = {}


class _CachedResult(Generic[T]):
    """What the program answers with."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


def _token(value: Any, slots: list[Any]) -> Any:
    """What a reading saw, as a key; maps that can be read further get a slot."""
    kind = type(value)
    if kind is str or value is None:
        return value
    if kind is dict:
        slots.append(value)
        return _MAP if value else _EMPTY_MAP  # which a typed object may not have at all
    if kind is list:
        return tuple([_encode(e) if type(e) is list else _token(e, slots) for e in value])
    return (kind, value)  # True, 1 and 1.0 are one key otherwise


class _ReadLog:
    """The readings of one run, in their order."""

    def __init__(self, obj: Obj, wholes: set[Path], *, typed: bool) -> None:
        self.taken: list[tuple[int, str, bool, Any]] = []
        self._slots: list[Any] = [obj]
        self._wholes = wholes
        self._typed = typed

    def take(self, raw: Obj, key: str, *, slot: int, path: Path) -> Any:
        """Read one key of a map and note it."""
        value = raw.get(key)
        below = (*path, key)
        absent = omitted_fields(path, key, value) if self._typed else value is None
        if below in self._wholes:
            self.taken.append((slot, key, True, _encode(value)))
            return None if absent else jq_value(value, below, typed=self._typed)
        first = len(self._slots)
        self.taken.append((slot, key, False, _token(value, self._slots)))
        if absent:
            return None
        if type(value) is dict:
            return TrackedView(value, self, slot=first, path=below)
        if type(value) is not list:
            return jq_value(value, below, typed=self._typed)
        seen: list[Any] = []
        for element in value:
            if type(element) is dict:
                # Elements are compared with their list: the list is what becomes a whole.
                seen.append(TrackedView(element, self, slot=first, path=below))
                first += 1
            else:
                seen.append(jq_value(element, below, typed=self._typed))
        return seen


class ReadCache(Generic[T]):
    """One pure function of objects, run once for all objects that read alike to it.

    Args:
        run: the function; it must read its argument as a jq program does, keep none of it in its
            result (``without_views`` ensures that), and change nothing.
        typed: whether KWOK has these objects by their Go type.
    """

    def __init__(self, run: Callable[[Obj], T], *, typed: bool) -> None:
        self._run = run
        self._typed = typed
        self._top: Any = None
        self._wholes: set[Path] = set()
        self._kept = 0
        self._traced = True

    def answer_for(self, obj: Obj) -> T:
        """Return the answer for an object, which is not changed."""
        node, slots = self._top, [obj]
        while type(node) is _RecordedRead:
            raw = slots[node.slot].get(node.key)
            token = _encode(raw) if node.whole else _token(raw, slots)
            node = node.answers.get(token)
        if node is not None:
            answer: T = node.value
            return answer
        return self._run_once(obj)

    def _run_once(self, obj: Obj) -> T:
        while self._traced:
            notes = _ReadLog(obj, self._wholes, typed=self._typed)
            try:
                answer = self._run(TrackedView(obj, notes, slot=0, path=()))
            except _Whole as looked:
                # From now on that map is one reading, which the tree so far does not know.
                self._forget()
                self._traced = bool(looked.path)
                self._wholes.add(looked.path)
            except KeyError:
                # purejq orders values by their exact type and finds none for a view.
                self._forget()
                self._traced = False
            else:
                self._remember(notes.taken, answer)
                return answer
        return self._run(jq_value(obj, typed=self._typed))

    def _forget(self) -> None:
        self._top = None
        self._kept = 0

    def _remember(self, taken: list[tuple[int, str, bool, Any]], answer: T) -> None:
        if self._kept >= STAGE_READINGS_MAX:
            self._forget()
        self._kept += 1
        node, lead = self._top, None
        for slot, key, whole, token in taken:
            if node is None:
                node = _RecordedRead(slot, key, whole=whole)
                if lead is None:
                    self._top = node
                else:
                    lead[0].answers[lead[1]] = node
            assert (node.slot, node.key) == (slot, key), "pure programs read alike what is alike"
            lead = (node, token)
            node = node.answers.get(token)
        if lead is None:
            self._top = _CachedResult(answer)
        else:
            lead[0].answers[lead[1]] = _CachedResult(answer)


def without_views(value: Any) -> Any:
    """A result that holds no view, so that it can outlive the run."""
    if isinstance(value, TrackedView):
        value.whole()
    if isinstance(value, dict):
        for item in value.values():
            without_views(item)
    elif isinstance(value, list):
        for item in value:
            without_views(item)
    return value
