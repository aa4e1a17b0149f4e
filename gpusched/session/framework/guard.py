"""Containment of plugins: what a session asks of the object through which plugins are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from gpusched.base.errors import PluginFault

P = ParamSpec("P")
R = TypeVar("R")


class Guard(Protocol):
    """Stands between a session and a plugin's callables."""

    def begin_session(self) -> None:
        """Called once before the plugins of a session are opened."""

    def wrap_hook(
        self,
        plugin: str,
        hook: str,
        fn: Callable[P, R],
        fallback: Callable[Concatenate[PluginFault, P], R],
        *,
        part: str = "",
    ) -> Callable[P, R]:
        """The same callable, timed; when it raises, ``fallback(fault, *args)`` answers instead.

        ``part`` tells apart what one plugin registers for one hook: each is counted alone.
        See ``gpusched.pluginhost.guard`` for faults, blame and quarantine.
        """

    def is_quarantined(self, plugin: str, hook: str, part: str = "") -> bool:
        """Whether the hook failed so often that it is not called any more."""
