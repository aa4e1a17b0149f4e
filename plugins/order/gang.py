"""Gangs under repair first, then new ones, then those that grow: the smaller ones before."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from gpusched.plugin import DependsOn, Hooks, Key, KeyMeaning, View
from gpusched.plugin import Gang as GangOf

_MEANINGS: Final = (
    KeyMeaning("repair", "it holds GPUs that do no work until it is whole again"),
    KeyMeaning("new", "nothing of it runs yet"),
    KeyMeaning("grows", "it runs with no more members than it needs"),
    KeyMeaning("grown", "it runs with more members than it needs"),
)


@attrs.frozen
class Gang:
    """Orders gangs by how close they are to running as a whole.

    A gang under repair holds GPUs that do no work until it is whole again: every second it
    waits costs more than a second of a gang that holds nothing.
    """

    name: ClassVar[str] = "gang"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW

    def open(self, hooks: Hooks, _view: View) -> None:
        """Register the key of gangs by what they lack."""
        hooks.gang_order(_progress, alike=True, rests_on=tuple, of_members=False)

    def tell_gang_order(self, _gang: GangOf, key: Key) -> tuple[KeyMeaning, ...]:
        """How close it is to running as a whole."""
        return (_MEANINGS[int(key[0])],)


def _progress(gang: GangOf) -> tuple[int]:
    if gang.placed and gang.missing_members:
        return (0,)
    if gang.missing_members or not gang.placed:
        return (1,)
    return (2,) if gang.ready_members <= gang.min_member else (3,)
