"""No gang waits for ever: past its queue's ``maxWait`` it is next, and room is reserved for it.

A PodGroup of Kubernetes itself says neither how long its pods run nor how long it may wait, and its
queue hardly ever does. For such a gang room is kept from the first moment, in its turn, or newer
small pods would take each GPU that becomes free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import attrs
from attrs import validators as v

from gpusched.plugin import (
    ALLOW,
    PODS,
    PREEMPT,
    DependsOn,
    Gang,
    Hooks,
    Key,
    KeyMeaning,
    QueueNode,
    Reason,
    Verdict,
    View,
    accelerator,
    format_time,
    resource_of,
    wait,
)

_NS = 10**9
NATIVE = "native"
"""The source of PodGroups of Kubernetes itself."""


@attrs.frozen(kw_only=True)
class SlaArgs:
    """Arguments of ``sla``.

    Attributes:
        keep_room_for_native_s: so long from its creation on room is kept for a PodGroup of Kubernetes
            itself, in its turn, where its queue has no ``maxWait``; 0 for never.
        keeps_turn: ``againstFairShare`` keeps a gang that waited for longer than ``maxWait`` from being
            taken back as surplus for as long, too, unless the claimant's queues deserve what it asks
            for; ``againstPriority`` protects it inside its own queue alone.
    """

    keep_room_for_native_s: float = attrs.field(
        default=3600.0, validator=[v.ge(0), v.le(8760 * 3600)]
    )
    keeps_turn: Literal["againstFairShare", "againstPriority"] = attrs.field(
        default="againstFairShare", validator=v.in_(("againstFairShare", "againstPriority"))
    )


@attrs.frozen
class Sla:
    """Gangs that waited longer than ``maxWait`` go first in their queue, the earliest deadline first.

    Their queue is served with them before others, but for those that would stay within what they
    deserve: else gangs of a queue below its share would take each GPU that becomes free for them.

    The limit is the queue's own, or that of the nearest queue above that has one. Gangs that
    run already ask for members they lost or for more; they do not wait. One that had to wait for so
    long is not preempted by priority for as long again, nor taken back by another queue that claims
    more than it deserves: else its turn would last a moment. One that says that it ends within twice
    ``maxWait`` is left to end. What a queue deserves is never withheld.
    """

    name: ClassVar[str] = "sla"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    args: SlaArgs = SlaArgs()

    def open(self, hooks: Hooks, view: View) -> None:
        """See the class and the module."""
        limits: dict[str, int] = {}

        def limit_of(gang: Gang) -> int:
            limit = limits.get(gang.queue)
            if limit is None:
                limit = limits[gang.queue] = _max_wait_ns(gang.queue, view)
            return limit

        def deadline(gang: Gang) -> int:
            limit = limit_of(gang)
            return int(gang.waits_since) + limit // _NS if limit and not gang.placed else 0

        def order(gang: Gang) -> tuple[int, int]:
            due = deadline(gang)
            return (0, due) if due and view.is_past(due) else (1, 0)

        def turn(node: QueueNode, gang: Gang) -> Key:
            due = deadline(gang)
            over = due > 0 and view.is_past(due)
            return (not (over or _deserves(node.queue.name, gang, view)),)

        def keeps_turn(claimant: Gang, victim: Gang, action: str) -> Verdict:
            return self._keeps_turn(claimant, victim, action, limit_of(victim) // _NS, view=view)

        def each_loses_turn(claimant: Gang, victims: Sequence[Gang], action: str) -> list[bool]:
            return [
                not self._is_safe(claimant, victim, action, limit_of(victim) // _NS, view=view)
                for victim in victims
            ]

        def waits_too_long(gang: Gang) -> bool:
            due = deadline(gang)
            return due > 0 and view.is_past(due) if due else self._keeps_room(gang, view)

        if any(node.queue.max_wait_ns for node in view.queues()):
            hooks.queue_turn(turn)
            hooks.gang_order(order)
            hooks.stop_filter(keeps_turn, for_all=each_loses_turn)
            hooks.waits_too_long(waits_too_long)
        elif self.args.keep_room_for_native_s:
            hooks.waits_too_long(lambda gang: self._keeps_room(gang, view))

    def tell_gang_order(self, _gang: Gang, key: Key) -> tuple[KeyMeaning, ...]:
        """Whether it waits for longer than its queue's ``maxWait``, and when that was over."""
        if key[0]:
            return (
                KeyMeaning("", "its queue's maxWait is not over for it", only_if_decisive=True),
            )
        since = format_time(int(key[1]))
        message = f"its queue's maxWait was over at {since}, so it goes before those that may wait"
        return KeyMeaning("overdue", message), KeyMeaning("", message)

    def tell_queue_order(self, queue: str, key: Key) -> tuple[KeyMeaning, ...]:
        """Whether the queue's next gang waits for too long, or is within what the queue deserves."""
        if key[0]:
            return (
                KeyMeaning("", f"what is next in queue {queue} is neither overdue nor deserved"),
            )
        return (KeyMeaning("next", f"what is next in queue {queue} is overdue or deserved"),)

    def _keeps_turn(
        self, claimant: Gang, victim: Gang, action: str, limit: int, *, view: View
    ) -> Verdict:
        """Whether a victim whose queue's ``maxWait`` is so many seconds may be stopped."""
        if not self._is_safe(claimant, victim, action, limit, view=view):
            return ALLOW
        return wait(
            Reason.INSUFFICIENT_RESOURCES,
            "gang {name} waited longer than its queue's maxWait of {limit} s and is safe for "
            "{safe_s} s",
            name=f"{victim.key.namespace}/{victim.key.name}",
            limit=limit,
            safe_s=_safe_s(victim, limit),
        )

    def _is_safe(
        self, claimant: Gang, victim: Gang, action: str, limit: int, *, view: View
    ) -> bool:
        started = victim.started_at
        if not limit or not started:
            return False
        if int(started) < int(victim.waits_since) + limit or view.is_past(
            started + _safe_s(victim, limit)
        ):
            return False
        return action == PREEMPT or not (
            self.args.keeps_turn == "againstPriority"
            or _claims_what_is_deserved(claimant, victim, view)
        )

    def _keeps_room(self, gang: Gang, view: View) -> bool:
        group = gang.pod_group
        return (
            group is not None
            and group.source == NATIVE
            and gang.min_member > 1
            and not gang.placed
            and not view.is_past(gang.waits_since + self.args.keep_room_for_native_s)
        )


def _max_wait_ns(queue: str, view: View) -> int:
    leaf = view.queue(queue)
    for name in leaf.path if leaf else ():
        node = view.queue(name)
        if node is not None and node.queue.max_wait_ns:
            return node.queue.max_wait_ns
    return 0


def _safe_s(gang: Gang, limit: int) -> int:
    """Seconds for which its turn is safe: as long as ``maxWait``, or to its end within twice that."""
    lasts = -(-gang.terms.expected_duration_ns // _NS)
    return lasts if limit < lasts <= 2 * limit else limit


def _claims_what_is_deserved(claimant: Gang, victim: Gang, view: View) -> bool:
    """Whether queues that only the claimant is in deserve what they would hold with it."""
    mine, theirs = view.queue(claimant.queue), view.queue(victim.queue)
    if mine is None or theirs is None:
        return False
    levels = [name for name in mine.path if name not in theirs.path]
    answers = [_deserves(name, claimant, view) for name in levels]
    return True in answers and False not in answers


def _deserves(queue: str, gang: Gang, view: View) -> bool | None:
    """Whether a queue deserves what it would hold with a gang; None where it does not say.

    GPUs decide where the gang asks for any, as for reclaim.
    """
    node = view.queue(queue)
    if node is None:
        return None
    asked = [each for each in view.minimum(gang).items if resource_of(each[0]) != PODS]
    asked = [each for each in asked if accelerator(resource_of(each[0]))] or asked
    stated = {**dict(node.queue.deserved.items), **dict(node.queue.pool_deserved.items)}
    decide = [(name, amount) for name, amount in asked if amount and name in stated]
    if not decide:
        return None
    held = view.staying(queue)
    return all(held.get(name) + amount <= stated[name] for name, amount in decide)
