"""The loaded policy: actions that run in a session, in order, and plugins that advise it."""

from __future__ import annotations

from typing import ClassVar, Protocol

from gpusched.base.classes import frozen
from gpusched.session.framework.plugin import NO_NEEDS, ActionNeeds, Capability, Plugin
from gpusched.session.state.session import Session


class Action(Protocol):
    """One verb of a session, run in the order the configuration names them.

    An action may also state ``provides``, a tuple of ``Capability``, and ``needs``, an
    ``ActionNeeds``.
    """

    name: ClassVar[str]

    def run(self, session: Session, /) -> None:
        """Try moves in statements of the session and commit those that are good as a whole."""


@frozen
class Policy:
    """The loaded configuration: actions in order and the plugins that advise them.

    Attributes:
        tiers: plugins in tier order, an earlier tier before a later one.
    """

    actions: tuple[Action, ...]
    tiers: tuple[tuple[Plugin, ...], ...]

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """Every plugin in the order in which keys are joined."""
        return tuple(plugin for tier in self.tiers for plugin in tier)

    @property
    def bounds_not_preemptible(self) -> bool:
        """Whether gangs that are not preemptible stay within what their queues deserve, as a plugin states."""
        return any(getattr(plugin, "bounds_not_preemptible", False) for plugin in self.plugins)

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the actions do for a session, whatever their order."""
        return frozenset(each for action in self.actions for each in action_capabilities(action))


def action_capabilities(action: Action) -> tuple[Capability, ...]:
    """What an action states that it does; empty where it states nothing."""
    provided: tuple[Capability, ...] = getattr(action, "provides", ())
    return provided


def action_needs(action: Action) -> ActionNeeds:
    """What an action states that it expects of its configuration."""
    needs: ActionNeeds = getattr(action, "needs", NO_NEEDS)
    return needs
