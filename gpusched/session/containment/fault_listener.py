"""Hears for which objects hooks of policies fail, so that these can be set aside.

What a hook that fails answers instead is its guard's to say; but the answer may reach further
than the object: a queue whose turn cannot be computed sits out with all its gangs, and gangs that
are alike get the same answer. A hook of ours that answers for others fails for what it was asked
about, which is contained like any other defect of ours.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeVar

import attrs

from gpusched.base import limits
from gpusched.base.errors import Fenced, InvariantBroken, PluginFault
from gpusched.cache.snapshot import Snapshot
from gpusched.session.containment.suspects import SessionFault, SuspectIndex
from gpusched.session.framework.guard import Guard
from gpusched.session.framework.plugin import Plugin
from gpusched.session.framework.reasons import shorten

_SHIPPED_PREFIX: Final = "gpusched"
"""Package prefix of shipped policies; faults of foreign ones are reported by their guard."""
P = ParamSpec("P")
R = TypeVar("R")


@attrs.define
class AttemptStage:
    """The stage in which an attempt is; ``entered`` is called with the name of each."""

    name: str = "open"
    entered: Callable[[str], None] = lambda _name: None

    def enter(self, name: str) -> None:
        """Note that the attempt enters a stage."""
        self.name = name
        self.entered(name)


class HookCall(NamedTuple):
    """Names of a plugin, of one of its hooks, and of the callable among those of the hook."""

    plugin: str
    hook: str
    place: str


class FaultListener:
    """A guard for one attempt, around that of the configuration.

    Args:
        guard: contains the hooks.
        stage: where the attempt is.
        snapshot: that is decided on.
        plugins: of the policy.
    """

    def __init__(
        self, guard: Guard, stage: AttemptStage, snapshot: Snapshot, plugins: Iterable[Plugin]
    ) -> None:
        self._guard = guard
        self._ours = {
            each.name for each in plugins if type(each).__module__.startswith(_SHIPPED_PREFIX)
        }
        self._stage = stage
        self._snapshot = snapshot
        self._index: SuspectIndex | None = None
        self.answers: set[str] = set()
        """Names of hooks that have answered."""
        self.faults: list[SessionFault] = []

    def begin_session(self) -> None:
        """Begin a session of the guard below."""
        self._guard.begin_session()

    def quarantined(self, plugin: str, hook: str, part: str = "") -> bool:
        """Whether the guard below answers the hook by its fallback."""
        return self._guard.quarantined(plugin, hook, part)

    def wrap(
        self,
        plugin: str,
        hook: str,
        fn: Callable[P, R],
        fallback: Callable[Concatenate[PluginFault, P], R],
        *,
        part: str = "",
    ) -> Callable[P, R]:
        """The hook as the guard below wraps it; its faults are heard."""
        if plugin not in self._ours:
            return self._guard.wrap(plugin, hook, fn, fallback, part=part)

        # Read from the stack, which is gone when the guard answers.
        name = f"{plugin}.{hook}.{part}" if part else f"{plugin}.{hook}"

        def observed(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                answer = fn(*args, **kwargs)
            except (InvariantBroken, Fenced):
                raise
            except Exception as error:
                self._record(HookCall(plugin, hook, name), error, args)
                raise
            self.answers.add(name)
            return answer

        return self._guard.wrap(plugin, hook, observed, fallback, part=part)

    def _record(self, call: HookCall, error: Exception, args: tuple[object, ...]) -> None:
        if len(self.faults) >= limits.HOOK_FAULTS_HEARD_MAX or call.hook in ("open", "run"):
            return
        if self._index is None:
            self._index = SuspectIndex(self._snapshot)
        suspects = self._index.suspects(error)
        if suspects:
            story = "".join(traceback.format_exception(error))
            fault = SessionFault(
                kind=type(error).__name__,
                says=shorten(f"{error} (plugin {call.plugin}, hook {call.hook})"),
                stage=self._stage.name,
                place=call.place,
                suspects=suspects,
                story=story[-limits.FAULT_STORY_MAX :],
                hook=call.hook,
                asked=self._index.among(args),
            )
            self.faults.append(fault)
