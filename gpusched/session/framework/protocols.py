"""What a session needs of its policies, its actions and of whoever contains them.

All three are structural: a plugin or an action inherits from nothing and imports nothing but
``gpusched.plugin``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Concatenate, ParamSpec, Protocol, TypeVar

import attrs

from gpusched.base.errors import PluginFault

if TYPE_CHECKING:  # these modules import this one
    from gpusched.session.framework.hooks import Hooks
    from gpusched.session.framework.view import View
    from gpusched.session.state.session import Session

P = ParamSpec("P")
R = TypeVar("R")

PLUGIN_API = 1
"""The version of hooks and views that this program offers; a plugin states which it expects."""


class Plugin(Protocol):
    """A policy: frozen, alive as long as the configuration that names it.

    A class may also have a field ``args``; the loader reads its type from the annotation and
    builds it from the configuration's ``arguments``.
    """

    name: ClassVar[str]
    api: ClassVar[int]

    def open(self, hooks: Hooks, view: View, /) -> None:
        """Register hooks for one session; what belongs to a session is a local here.

        Called through ``Guard.wrap`` like every hook, under the name ``open``.
        """


class Action(Protocol):
    """One verb of a session, run in the order the configuration names them."""

    name: ClassVar[str]

    def run(self, session: Session, /) -> None:
        """Try moves in statements of the session and keep those that are good as a whole."""


class Guard(Protocol):
    """Stands between a session and a plugin's callables."""

    def begin_session(self) -> None:
        """Called once before the plugins of a session are opened."""

    def wrap(
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

    def quarantined(self, plugin: str, hook: str, part: str = "") -> bool:
        """Whether the hook failed so often that it is not called any more."""


@attrs.frozen
class Policy:
    """The loaded configuration: what runs, in which order, and who advises.

    Attributes:
        tiers: plugins in tier order, an earlier tier before a later one.
    """

    actions: tuple[Action, ...]
    tiers: tuple[tuple[Plugin, ...], ...]

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """Every plugin in the order in which keys are joined."""
        return tuple(plugin for tier in self.tiers for plugin in tier)
