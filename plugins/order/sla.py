"""No gang waits for ever: past its queue's ``maxWait`` it is next, and room is reserved for it.

A PodGroup of Kubernetes itself says neither how long its pods run nor how long it may wait, and its
queue hardly ever does. For such a gang room is kept from the first moment, in its turn, or newer
small pods would take each GPU that becomes free.
"""

from __future__ import annotations

from typing import ClassVar

import attrs
from attrs import validators as v

from gpusched.plugin import ALLOW, PREEMPT, Gang, Hooks, Reason, Verdict, View, wait

_NS = 10**9
NATIVE = "native"
"""The source of PodGroups of Kubernetes itself."""


@attrs.frozen(kw_only=True)
class SlaArgs:
    """Arguments of ``sla``.

    Attributes:
        keep_room_for_native_s: so long from its creation on room is kept for a PodGroup of Kubernetes
            itself, in its turn, where its queue has no ``maxWait``; 0 for never.
    """

    keep_room_for_native_s: float = attrs.field(
        default=3600.0, validator=[v.ge(0), v.le(8760 * 3600)]
    )


@attrs.frozen
class Sla:
    """Gangs that waited longer than ``maxWait`` go first in their queue, the earliest deadline first.

    The limit is the queue's own, or that of the nearest queue above that has one. Gangs that
    run already ask for members they lost or for more; they do not wait. One that had to wait for so
    long is not preempted by priority for as long again: else its turn would last a moment.
    """

    name: ClassVar[str] = "sla"
    api: ClassVar[int] = 1
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
            return (0, due) if due and due <= view.now else (1, 0)

        def keeps_turn(_claimant: Gang, victim: Gang, action: str) -> Verdict:
            limit = limit_of(victim) // _NS
            started = victim.started_at
            if action != PREEMPT or not limit or not started:
                return ALLOW
            if int(started) < int(victim.waits_since) + limit or view.now >= started + limit:
                return ALLOW
            return wait(
                Reason.INSUFFICIENT_RESOURCES,
                "gang {name} waited longer than its queue's maxWait of {limit} s and is safe from "
                "preemption for as long",
                name=f"{victim.key.namespace}/{victim.key.name}",
                limit=limit,
            )

        def waits_too_long(gang: Gang) -> bool:
            due = deadline(gang)
            return 0 < due <= view.now if due else self._keeps_room(gang, view.now)

        if any(node.queue.max_wait_ns for node in view.queues()):
            hooks.gang_order(order)
            hooks.stop_filter(keeps_turn)
            hooks.waits_too_long(waits_too_long)
        elif self.args.keep_room_for_native_s:
            hooks.waits_too_long(lambda gang: self._keeps_room(gang, view.now))

    def _keeps_room(self, gang: Gang, now: float) -> bool:
        group = gang.pod_group
        return (
            group is not None
            and group.source == NATIVE
            and gang.min_member > 1
            and not gang.placed
            and now - gang.waits_since < self.args.keep_room_for_native_s
        )


def _max_wait_ns(queue: str, view: View) -> int:
    leaf = view.queue(queue)
    for name in leaf.path if leaf else ():
        node = view.queue(name)
        if node is not None and node.queue.max_wait_ns:
            return node.queue.max_wait_ns
    return 0
