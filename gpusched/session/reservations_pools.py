"""How many gangs may hold room on the same nodes, and which nodes those are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from gpusched.arrays.columns import Bools
from gpusched.cache.gangs import Gang
from gpusched.limits import RESERVATIONS_MAX
from gpusched.session.kinds import Kind, Kinds
from gpusched.session.reservations_holders import Holder


class HolderPools:
    """Nodes that gangs could use, and whether there is room for one more holder among them.

    Args:
        kinds: of gangs.
        per_pool: most holders whose usable nodes overlap.
    """

    def __init__(self, kinds: Kinds, per_pool: int) -> None:
        self._kinds = kinds
        self._per_pool = per_pool
        self._usable: dict[Hashable, Bools] = {}
        """Rows by kind, or by queue and classes of members: most gangs are of few kinds."""
        self._crowded: dict[int, bool] = {}
        """By identity of the rows, while holders are the same."""
        self._closed: set[Kind] = set()
        """Kinds, without regard to lengths, of which nobody may hold room, while holders are the same."""

    def usable(self, gang: Gang) -> Bools | None:
        """Rows on which any of its members could ever sit; None when nobody has told yet."""
        return self._usable.get(self._who(gang))

    def learn(self, gang: Gang, usable: Callable[[], Bools]) -> Bools:
        """The same, asked once for gangs whose members are of the same classes."""
        who = self._who(gang)
        known = self._usable.get(who)
        if known is None:
            known = self._usable[who] = usable()
        return known

    def changed(self) -> None:
        """There are other holders than before."""
        self._crowded.clear()
        self._closed.clear()

    def close(self, gang: Gang) -> None:
        """Gangs of its kind hold no room as long as holders are the same."""
        kind = self._kinds.of(gang)
        if kind is not None:
            self._closed.add(kind.timeless)

    def closed(self, gang: Gang) -> bool:
        """Whether that was said of its kind."""
        kind = self._kinds.of(gang)
        return kind is not None and kind.timeless in self._closed

    def room(self, usable: Bools, holders: Sequence[Holder]) -> bool:
        """Whether one more may hold room on some of these rows, which ``learn`` returned."""
        if len(holders) >= RESERVATIONS_MAX:
            return False
        crowded = self._crowded.get(id(usable))
        if crowded is None:
            same_pool = sum(bool((usable & holder.usable).any()) for holder in holders)
            crowded = self._crowded[id(usable)] = same_pool >= self._per_pool
        return not crowded

    def _who(self, gang: Gang) -> Hashable:
        kind = self._kinds.of(gang)
        if kind is not None:
            return kind.timeless
        return (gang.queue, tuple(task.pod_class.digest for task in gang.tasks))
