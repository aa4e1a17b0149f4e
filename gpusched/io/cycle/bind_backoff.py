"""Pauses between commits of a gang whose bindings fail time and again.

The first failure is tried again at once: most conflicts come from a change that the plan did not know
of yet. From the second in a row on the gang waits, twice as long each time, until one of its pods, its
group or a node that it was to be bound to changes. A gang that has pods bound waits for seconds only, and
a commit that ends with our lease is no failure, as nothing was refused: it is tried again twice a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import attrs

from gpusched.api.meta.identity import UID, GangKey
from gpusched.base import limits
from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.commit.model import CommitPhase
from gpusched.io.observe.text import one_line
from gpusched.io.write.binder import SettledGang
from gpusched.session.containment.set_aside import mark_of_gang
from gpusched.session.framework.reasons import Reason


@define(slots=True)
class _Failing:
    """A gang whose commits failed.

    Attributes:
        times: in a row.
        nodes: on which it was to be bound.
        until: monotonic seconds.
        gang_mark: what the gang is like since the first failure; None until a snapshot shows it.
        node_mark: the same of the nodes, since the last failure.
    """

    uid: UID
    times: int = 0
    nodes: tuple[str, ...] = ()
    until: float = 0.0
    message: str = ""
    gang_mark: object = None
    node_mark: object = None

    def is_changed(self, snapshot: Snapshot, gang: Gang) -> bool:
        """Whether gang or nodes are not what they were; notes what they are."""
        marks = mark_of_gang(gang), _mark_of_nodes(snapshot, self.nodes)
        before, (self.gang_mark, self.node_mark) = (self.gang_mark, self.node_mark), marks
        return any(old is not None and old != new for old, new in zip(before, marks, strict=True))


class BindPauses:
    """See the module. One per cycle; everything is called in the event loop.

    Args:
        clock: monotonic time.
        wake: asks for a session.
    """

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._failing: dict[GangKey, _Failing] = {}

    def note_settled(self, settled: SettledGang) -> None:
        """A commit came to rest."""
        gang = settled.gang
        if settled.phase is CommitPhase.BOUND or not settled.why:
            self._failing.pop(gang.gang, None)
            return
        known = self._failing.get(gang.gang)
        if known is None or known.uid != gang.uid:
            if len(self._failing) >= limits.BIND_PAUSES_MAX:
                self._failing.pop(next(iter(self._failing)))
            known = self._failing[gang.gang] = _Failing(gang.uid)
        if settled.lapsed:
            again_s = limits.BIND_LAPSED_PAUSE_S
            message = f"{one_line(settled.why)}; its bindings are tried again after {again_s:g} s"
            self._pause_gang(known, again_s, message)
            return
        known.times += 1
        known.node_mark = None
        known.nodes = tuple(sorted({bind.node for bind in gang.binds}))
        if known.times < limits.BIND_FREE_FAILURES:
            return
        pause_s = limits.BIND_PAUSE_MIN_S * 2 ** min(known.times - limits.BIND_FREE_FAILURES, 30)
        in_part = gang.placed + settled.bound > 0
        longest_s = limits.BIND_PAUSE_IN_PART_MAX_S if in_part else limits.BIND_PAUSE_MAX_S
        pause_s = min(pause_s, longest_s)
        message = (
            f"its bindings failed {known.times} times in a row ({one_line(settled.why)}); they are "
            f"tried again after {pause_s:g} s, or when its pods, its group or the nodes change"
        )
        self._pause_gang(known, pause_s, message)

    def _pause_gang(self, known: _Failing, pause_s: float, message: str) -> None:
        known.until = self._clock.monotonic() + pause_s
        known.message = message
        asyncio.get_running_loop().call_later(pause_s, self._wake)

    def apply_pauses(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, in which gangs that pause are told so and ask for no place."""
        if not self._failing:
            return snapshot
        gangs = {gang.key: gang for gang in snapshot.gangs}
        held: dict[GangKey, Gang] = {}
        for key, known in list(self._failing.items()):
            gang = gangs.get(key)
            if gang is None or gang.uid != known.uid or known.is_changed(snapshot, gang):
                del self._failing[key]
            elif self._clock.monotonic() < known.until and not gang.error[0]:
                held[key] = attrs.evolve(gang, error=(Reason.BACK_OFF, known.message))
        if not held:
            return snapshot
        return attrs.evolve(
            snapshot, gangs=tuple(held.get(gang.key, gang) for gang in snapshot.gangs)
        )


def _mark_of_nodes(snapshot: Snapshot, nodes: tuple[str, ...]) -> object:
    rows = [snapshot.nodes.row.get(name) for name in nodes]
    found = [snapshot.nodes.nodes[row] if row is not None else None for row in rows]
    like = [(each.uid, each.unschedulable, each.not_ready, each.taints) for each in found if each]
    return tuple(like), len(found)
