"""What a session asks of plugins and actions: a name, the interface, and what each one offers.

Both protocols are structural: a plugin inherits from nothing and imports nothing but
``gpusched.plugin``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar, Protocol

from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.sort_keys import Key, KeyMeaning
from gpusched.session.framework.view import View

PLUGIN_API = 1
"""The version of hooks and views that this program offers; a plugin states which it expects."""


class Plugin(Protocol):
    """A policy: frozen, alive as long as the configuration that names it.

    A class may also have a field ``args``; the loader reads its type from the annotation and
    builds it from the configuration's ``arguments``. One that orders may have the methods of
    ``TellsOrder``.
    """

    name: ClassVar[str]
    api: ClassVar[int]

    def open(self, hooks: Hooks, view: View, /) -> None:
        """Register hooks for one session; what belongs to a session is a local here.

        Called through ``Guard.wrap_hook`` like every hook, under the name ``open``.
        """


class TellsOrder(Protocol):
    """A policy that says what its sort keys mean; each method may be missing.

    They are asked after the session, only for what people look at: what they say comes from the key,
    and from what never changes.
    """

    def tell_gang_order(self, gang: Gang, key: Key, /) -> Sequence[KeyMeaning]:
        """Meanings of the parts of a key that ``gang_order`` got, in their order; the rest has none."""

    def tell_queue_order(self, queue: str, key: Key, /) -> Sequence[KeyMeaning]:
        """The same of a key that ``queue_order`` or ``queue_turn`` got, with the queue's name."""


class Capability(StrEnum):
    """What an action does for a session. Others ask for it, never for an action by its name."""

    ADMISSION = "admission"
    """Gangs are admitted before anything is placed."""
    PLACEMENT = "placement"
    """Gangs that wait are given free room."""
    PREEMPTION = "preemption"
    """Gangs of lower priority in the same queue are evicted."""
    RECLAIM = "reclaim"
    """Gangs of other queues are evicted."""
    CONSOLIDATION = "consolidation"
    """Gangs are moved to other nodes."""
    RESERVATIONS = "reservations"
    """Room is reserved for blocked gangs; without it no action keeps any free for a later time."""


EVICTING_CAPABILITIES = frozenset({Capability.PREEMPTION, Capability.RECLAIM})
"""Capabilities for which gangs that find no place are looked at again."""


@frozen(kw_only=True)
class ActionNeeds:
    """What an action expects of the configuration that names it.

    Attributes:
        after: what should have been done earlier in the session.
        otherwise: what happens where it was not, as the end of a warning.
        hooks: names of hooks without which the action does nothing.
    """

    after: tuple[Capability, ...] = ()
    otherwise: str = ""
    hooks: tuple[str, ...] = ()


NO_NEEDS = ActionNeeds()
"""The needs of an action that states none."""
