"""Entities of one small kind by key, and those of them that cannot be believed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from gpusched.api.gang.move_record import MoveRecord
from gpusched.api.meta.identity import ObjectKey, Rejected

E = TypeVar("E")


class Movable(Protocol):
    """What may have been moved: a PodGroup or a Job."""

    @property
    def move(self) -> MoveRecord | None:
        """The last move that is recorded on it."""


M = TypeVar("M", bound=Movable)


class ToldOfChange(Protocol):
    """Called after a change."""

    def __call__(self, *, echo: bool = False) -> None:
        """Take note; ``echo`` where no decision depends on what changed."""


class KindStore(Generic[E]):
    """Entities of one small kind by key, and those of them that cannot be believed."""

    def __init__(self) -> None:
        self.items: dict[ObjectKey, E] = {}
        self.rejected: dict[ObjectKey, Rejected] = {}

    def get(self, key: ObjectKey) -> E | Rejected | None:
        """What is there under a key, believed or not."""
        return self.items.get(key) or self.rejected.get(key)

    def put(self, key: ObjectKey, item: E | Rejected) -> None:
        """It is there, in this form."""
        if isinstance(item, Rejected):
            self.items.pop(key, None)
            self.rejected[key] = item
        else:
            self.rejected.pop(key, None)
            self.items[key] = item

    def drop(self, key: ObjectKey) -> None:
        """Drop the object of this key, which is gone."""
        self.items.pop(key, None)
        self.rejected.pop(key, None)

    def keys(self) -> list[ObjectKey]:
        """Of all that is there, believed or not."""
        return [*self.items, *self.rejected]


class MovableStore(KindStore[M]):
    """A store that knows on which of its objects a move is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: dict[ObjectKey, M] = {}

    def put(self, key: ObjectKey, item: M | Rejected) -> None:
        """It is there, in this form."""
        super().put(key, item)
        self.moved.pop(key, None)
        if not isinstance(item, Rejected) and item.move is not None:
            self.moved[key] = item

    def drop(self, key: ObjectKey) -> None:
        """Drop the object of this key, which is gone."""
        super().drop(key)
        self.moved.pop(key, None)


class ObservedStore(KindStore[E]):
    """A store that tells of each change.

    Args:
        changed: told of each; with ``echo`` where it is one that no decision depends on.
        same: whether what is put changes nothing that a decision depends on.
    """

    def __init__(
        self, changed: ToldOfChange, same: Callable[[E | None, E | Rejected], bool]
    ) -> None:
        super().__init__()
        self._told = changed
        self._same = same

    def put(self, key: ObjectKey, item: E | Rejected) -> None:
        """It is there, in this form."""
        echo = self._same(self.items.get(key), item)
        super().put(key, item)
        self._told(echo=echo)

    def drop(self, key: ObjectKey) -> None:
        """Drop the object of this key, which is gone."""
        super().drop(key)
        self._told(echo=False)


class LayeredStore(Generic[E]):
    """See the module.

    Args:
        sources: best first.
        put: told of the object that counts now.
        drop: told of a key of which there is none any more.
    """

    def __init__(
        self,
        sources: Sequence[str],
        *,
        put: Callable[[ObjectKey, E | Rejected], None],
        drop: Callable[[ObjectKey], None],
    ) -> None:
        self._known: dict[str, dict[ObjectKey, E | Rejected]] = {each: {} for each in sources}
        self._put = put
        self._drop = drop

    def layer(self, source: str) -> StoreLayer[E]:
        """What one source has."""
        return StoreLayer(self, source)

    def keys(self, source: str) -> list[ObjectKey]:
        """Of everything that the source has."""
        return list(self._known[source])

    def get(self, source: str, key: ObjectKey) -> E | Rejected | None:
        """What the source has under a key, hidden or not."""
        return self._known[source].get(key)

    def put(self, source: str, key: ObjectKey, item: E | Rejected) -> None:
        """It is there, in this form."""
        self._known[source][key] = item
        if self._first(key) == source:
            self._put(key, item)

    def drop(self, source: str, key: ObjectKey) -> None:
        """It is gone; what it hid, if anything, counts from now on."""
        first = self._first(key)
        self._known[source].pop(key, None)
        if first != source:
            return
        hidden = self._first(key)
        if hidden is None:
            self._drop(key)
        else:
            self._put(key, self._known[hidden][key])

    def _first(self, key: ObjectKey) -> str | None:
        return next((source for source, known in self._known.items() if key in known), None)


class StoreLayer(Generic[E]):
    """What one source has."""

    def __init__(self, layers: LayeredStore[E], source: str) -> None:
        self._layers = layers
        self._source = source

    def get(self, key: ObjectKey) -> E | Rejected | None:
        """What it has under a key, hidden or not."""
        return self._layers.get(self._source, key)

    def put(self, key: ObjectKey, item: E | Rejected) -> None:
        """It is there, in this form."""
        self._layers.put(self._source, key, item)

    def drop(self, key: ObjectKey) -> None:
        """Drop the object of this key, which is gone."""
        self._layers.drop(self._source, key)

    def keys(self) -> list[ObjectKey]:
        """Of everything that the source has."""
        return self._layers.keys(self._source)
