"""What gangs that wait have in common, worked out once for each gang and kept between sessions.

Gangs are frozen, and shared by snapshots as long as nothing about them changes. So what is read
of a gang alone is remembered by its identity: a changed gang is another one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal
from weakref import WeakValueDictionary

import attrs

from gpusched.cache.gangs import Gang, Terms
from gpusched.objects.pod import PodClass
from gpusched.session.by_gang import ByGang


class Kind:
    """All that placement reads of gangs of one kind; equal only to itself.

    Args:
        classes: of the members, each once.
        timeless: the kind of gangs that nobody knows the length of and that are like these else;
            None where these are such.
    """

    __slots__ = ("__weakref__", "_timeless", "classes")

    def __init__(self, classes: tuple[PodClass, ...], timeless: Kind | None = None) -> None:
        self.classes = classes
        self._timeless = timeless

    @property
    def timeless(self) -> Kind:
        """The same for all kinds that differ only in how long their gangs say they run."""
        return self._timeless or self


class Kinds:
    """Kinds of gangs, for one session after another."""

    def __init__(self) -> None:
        self._of: ByGang[Kind | Literal[False]] = ByGang()
        self._known: WeakValueDictionary[Hashable, Kind] = WeakValueDictionary()

    def of(self, gang: Gang) -> Kind | None:
        """The gang's kind; None for one that is like no other.

        Those with places have rooms of their own, those that wait for a preferred topology have
        waited for different times, and pods that are on their way have room promised to them.
        """
        known = self._of.known.get(id(gang))  # asked several times of every gang that waits
        if known is not None:
            return known[1] or None
        kind = self._kind(gang)
        self._of.put(gang, kind or False)
        return kind

    def only(self, gangs: Sequence[Gang]) -> None:
        """Of all others nothing need be known any more."""
        self._of.only(gangs, len(gangs))

    def _kind(self, gang: Gang) -> Kind | None:
        if (
            gang.placed
            or gang.credit
            or gang.sub_groups
            or (gang.unborn and not gang.suspended)
            or gang.topology.max_wait_ns
            or any(task.pod_class.unsupported for task in gang.tasks)
        ):
            return None
        terms = gang.terms
        timeless = None
        if terms.expected_duration_ns:
            timeless = self._known_as(gang, attrs.evolve(terms, expected_duration_ns=0), None)
        return self._known_as(gang, terms, timeless)

    def _known_as(self, gang: Gang, terms: Terms, timeless: Kind | None) -> Kind:
        content = (
            gang.queue,
            gang.priority,
            terms,
            gang.min_member,
            gang.min_roles,
            gang.topology,
            gang.suspended,
            gang.trouble,
            gang.asked,
            gang.held,
            gang.pod_group.min_resources if gang.pod_group else None,
            tuple((task.pod_class.digest, len(task.pods), task.role) for task in gang.tasks),
        )
        kind = self._known.get(content)
        if kind is None:
            classes = {task.pod_class.digest: task.pod_class for task in gang.tasks}
            kind = self._known[content] = Kind(tuple(classes.values()), timeless)
        return kind
