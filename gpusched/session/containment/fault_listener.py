"""Hears for which objects hooks of policies fail, so that these can be set aside.

What a hook that fails answers instead is its guard's to say; but the answer may reach further
than the object: a queue whose turn cannot be computed sits out with all its gangs, and gangs that
are alike get the same answer. A hook of ours that answers for others fails for what it was asked
about, which is contained like any other defect of ours. An order that answers for nothing, whoever
wrote it, would keep every gang waiting: it is found here, so that a session can do without.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeVar, cast

import attrs

from gpusched.base import limits
from gpusched.base.classes import define, frozen
from gpusched.base.errors import InvariantBroken, PluginFault
from gpusched.cache.snapshot import Snapshot
from gpusched.session.containment.suspects import SessionFault, Suspect, SuspectIndex
from gpusched.session.framework.guard import FOR_ALL, Guard, HookListener
from gpusched.session.framework.plugin import Plugin
from gpusched.session.framework.reasons import shorten

_SHIPPED_PREFIX: Final = "gpusched"
"""Package prefix of shipped policies; faults of foreign ones are reported by their guard."""
ORDERING_HOOKS: Final = frozenset({"queue_order", "queue_turn", "gang_order"})
"""Hooks without whose keys gangs can be served all the same, only in another order."""
P = ParamSpec("P")
R = TypeVar("R")


@define
class AttemptStage:
    """The stage in which an attempt is; ``entered`` is called with the name of each."""

    name: str = "open"
    entered: Callable[[str], None] = lambda _name: None

    def enter_stage(self, name: str) -> None:
        """Note that the attempt enters a stage."""
        self.name = name
        self.entered(name)


class HookCall(NamedTuple):
    """Names of a plugin, of one of its hooks, and of the callable among those of the hook."""

    plugin: str
    hook: str
    place: str


@lru_cache(maxsize=4096)
def _call_of(plugin: str, hook: str, part: str) -> tuple[HookCall, bool]:
    """The names of a callable, and whether it is asked about one object at a time."""
    one_part = part.removesuffix(FOR_ALL).rstrip()
    name = f"{plugin}.{hook}.{one_part}" if one_part else f"{plugin}.{hook}"
    return HookCall(plugin, hook, name), one_part == part


@frozen(kw_only=True)
class FailingOrder:
    """An order of queues or gangs that failed for whatever it was asked about in an attempt.

    Attributes:
        name: of policy, hook and callable.
        fault: the first one.
        objects: number of gangs, or of queues where it is not asked about gangs.
    """

    name: str
    fault: SessionFault
    objects: int


@define(kw_only=True)
class _OrderRecord:
    """How an order fared: its first fault, what it failed for, and whether it gave a key."""

    fault: SessionFault | None = None
    failed_for: set[Suspect] = attrs.Factory(set)
    answered: bool = False


class FaultListener:
    """A guard for one attempt, around that of the configuration.

    Args:
        guard: contains the hooks.
        stage: where the attempt is.
        snapshot: that is decided on.
        plugins: of the policy.
        unordered: orders that do not count in this attempt.
    """

    def __init__(
        self,
        guard: Guard,
        stage: AttemptStage,
        snapshot: Snapshot,
        plugins: Iterable[Plugin],
        *,
        unordered: Iterable[str] = (),
    ) -> None:
        self._guard = guard
        self._ours = {
            each.name for each in plugins if type(each).__module__.startswith(_SHIPPED_PREFIX)
        }
        self._stage = stage
        self._snapshot = snapshot
        self._index: SuspectIndex | None = None
        self._unordered = frozenset(unordered)
        self._orders: dict[str, _OrderRecord] = {}
        self.answers: set[str] = set()
        """Names of hooks that have answered."""
        self.faults: list[SessionFault] = []

    @property
    def compares_lists(self) -> bool:
        """Whether the guard below holds answers for lists against those for each."""
        return self._guard.compares_lists

    def begin_session(self) -> None:
        """Begin a session of the guard below."""
        self._guard.begin_session()

    def is_quarantined(self, plugin: str, hook: str, part: str = "") -> bool:
        """Whether the guard below answers the hook by its fallback."""
        return self._guard.is_quarantined(plugin, hook, part)

    def register_hook(self, plugin: str, hook: str, part: str = "") -> None:
        """Note it in the guard below."""
        self._guard.register_hook(plugin, hook, part)

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
        """The hook as the guard below wraps it; its faults are heard.

        Raises:
            InvariantBroken: it is to have another listener.
        """
        if listener is not None:
            raise InvariantBroken("a hook of an attempt has one listener")
        # Read from the stack, which is gone when the guard answers.
        call, for_one = _call_of(plugin, hook, part)
        order = None
        if hook in ORDERING_HOOKS:
            if call.place in self._unordered:
                return cast("Callable[P, R]", lambda *_args, **_named: ())
            order = self._orders[call.place] = _OrderRecord()
        ours = plugin in self._ours
        if ours or order is not None:
            # Of a callable for a list each of it is asked about next, and the fault is heard there.
            listener = _Listener(self, call, ours, ours and for_one, order)
        return self._guard.wrap_hook(plugin, hook, fn, fallback, part=part, listener=listener)

    def failing_orders(self) -> tuple[FailingOrder, ...]:
        """Orders that failed and answered for nothing, by name."""
        return tuple(
            FailingOrder(name=name, fault=record.fault, objects=len(record.failed_for))
            for name, record in sorted(self._orders.items())
            if record.fault is not None and not record.answered
        )

    def note_order_fault(
        self, call: HookCall, record: _OrderRecord, error: Exception, args: tuple[object, ...]
    ) -> None:
        """An order failed for what it was asked about."""
        about = self._suspect_index().suspects_among(args)
        record.failed_for.update(about[:1])
        if record.fault is None:
            record.fault = self._fault_of(call, error, about=about, suspects=about)

    def _suspect_index(self) -> SuspectIndex:
        if self._index is None:
            self._index = SuspectIndex(self._snapshot)
        return self._index

    def _fault_of(
        self,
        call: HookCall,
        error: Exception,
        *,
        about: tuple[Suspect, ...],
        suspects: tuple[Suspect, ...],
    ) -> SessionFault:
        story = "".join(traceback.format_exception(error))
        return SessionFault(
            kind=type(error).__name__,
            says=shorten(f"{error} (plugin {call.plugin}, hook {call.hook})"),
            stage=self._stage.name,
            place=call.place,
            suspects=suspects,
            story=story[-limits.FAULT_STORY_MAX :],
            hook=call.hook,
            asked=about,
        )

    def note_fault(self, call: HookCall, error: Exception, args: tuple[object, ...]) -> None:
        """A hook of ours failed, perhaps because of one of the objects that it was asked about."""
        if len(self.faults) >= limits.HOOK_FAULTS_HEARD_MAX or call.hook in ("open", "run"):
            return
        index = self._suspect_index()
        suspects = index.suspects_in_error(error)
        if suspects:
            about = index.suspects_among(args)
            self.faults.append(self._fault_of(call, error, about=about, suspects=suspects))


@frozen(eq=False)
class _Listener:
    """Hears one callable for a ``FaultListener``.

    Attributes:
        ours: whether its plugin is a shipped one, so that its answers count.
        heard: whether its faults may be those of objects.
        order: how it fares as an order; None where it is none.
    """

    listener: FaultListener
    call: HookCall
    ours: bool
    heard: bool
    order: _OrderRecord | None

    def failed(self, error: Exception, about: tuple[object, ...]) -> None:
        """See ``HookListener``."""
        if self.order is not None:
            self.listener.note_order_fault(self.call, self.order, error, about)
        if self.heard:
            self.listener.note_fault(self.call, error, about)

    def answered(self) -> None:
        """See ``HookListener``."""
        if self.order is not None:
            self.order.answered = True
        if self.ours:
            self.listener.answers.add(self.call.place)
