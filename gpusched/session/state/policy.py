"""The loaded policy: actions that run in a session, in order, and plugins that advise it."""

from __future__ import annotations

from typing import ClassVar, Protocol

import attrs

from gpusched.session.framework.plugin import Plugin
from gpusched.session.state.session import Session


class Action(Protocol):
    """One verb of a session, run in the order the configuration names them."""

    name: ClassVar[str]

    def run(self, session: Session, /) -> None:
        """Try moves in statements of the session and commit those that are good as a whole."""


@attrs.frozen
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
    def action_names(self) -> frozenset[str]:
        """Names of the actions, whatever their order."""
        return frozenset(action.name for action in self.actions)
