"""Calls of plugins: the object through which a session makes them, and what answers depend on."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from gpusched.base.errors import PluginFault

P = ParamSpec("P")
R = TypeVar("R")


class DependsOn(enum.Flag):
    """What the answer of a hook about a gang may change with; as long as that stays, it is kept.

    An answer for which nothing is declared is asked for anew in every session.
    """

    GANG = enum.auto()
    """The gang itself, which is another object whenever something about it or its pods changes."""
    QUEUE_SPECS = enum.auto()
    """What administrators say of its queue and of those above; not what these hold or their status."""
    GPU_SPEED = enum.auto()
    """``view.gpu_speed`` of the gang."""
    FINISHED_RUNS = enum.auto()
    """``view.finished_runs`` of its queue, for as many pods as its Job runs at a time."""
    VIEW = enum.auto()
    """Whatever a view or a session shows, and its arguments: nothing that it kept from an earlier call."""


FOR_ALL = "for all"
"""Ends the part of a callable that answers for a list what another one answers for each of it."""
RESTS_ON = "rests on"
"""Ends the part of a callable that tells what answers of another one depend on."""

FULLNESS = "fullness"
"""Ends the part of a callable that tells as data how another one rates."""


class HookListener(Protocol):
    """Hears how a callable fares."""

    def failed(self, error: Exception, about: tuple[object, ...]) -> None:
        """It raised, called with these arguments; not told of what no guard contains."""

    def answered(self) -> None:
        """It has given its first answer."""


class Guard(Protocol):
    """Stands between a session and a plugin's callables."""

    @property
    def compares_lists(self) -> bool:
        """Whether what a callable answers for a list is held against what is answered for each."""

    def begin_session(self) -> None:
        """Called once before the plugins of a session are opened."""

    def register_hook(self, plugin: str, hook: str, part: str = "") -> None:
        """Note that the plugin has such a callable, which is perhaps never wrapped: see ``wrap_hook``."""

    def wrap_hook(
        self,
        plugin: str,
        hook: str,
        fn: Callable[P, R],
        fallback: Callable[Concatenate[PluginFault, P], R],
        *,
        part: str = "",
        listener: HookListener | None = None,
    ) -> Callable[P, R]:
        """The same callable, timed; when it raises, ``fallback(fault, *args)`` answers instead.

        ``part`` tells apart what one plugin registers for one hook: each is counted alone.
        What becomes of it is told to the listener, if there is one.
        See ``gpusched.pluginhost.guard`` for faults, blame and quarantine.
        """

    def is_quarantined(self, plugin: str, hook: str, part: str = "") -> bool:
        """Whether the hook failed so often that it is not called any more."""
