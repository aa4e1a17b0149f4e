"""Higher priority first, but in line where a queue says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from gpusched.plugin import (
    ALLOW,
    PREEMPT,
    DependsOn,
    Gang,
    Hooks,
    Key,
    KeyMeaning,
    Reason,
    Verdict,
    View,
    wait,
)

IN_LINE = ("Fifo", "StrictFifo")
"""Orderings in which the time of arrival alone counts."""


@attrs.frozen(kw_only=True)
class PriorityArgs:
    """What besides gangs is ordered by priority.

    Attributes:
        queues: queues too, before their shares are looked at. False leaves them to ``fairshare``,
            which looks at their priority only among queues within their shares.
    """

    queues: bool = False


@attrs.frozen
class Priority:
    """Orders the gangs of a queue by their priority.

    In queues with the ordering ``Fifo`` or ``StrictFifo`` priority does not count: there no gang
    is preempted for one that stands behind it in the line.
    """

    name: ClassVar[str] = "priority"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    args: PriorityArgs = PriorityArgs()

    def open(self, hooks: Hooks, view: View) -> None:
        """Register the keys of gangs and, if asked for, of queues by priority."""
        lines = {node.queue.name for node in view.queues() if node.queue.ordering in IN_LINE}

        def stands_before(claimant: Gang, victim: Gang) -> bool:
            if victim.queue not in lines:
                return True
            return (claimant.waits_since, claimant.key) < (victim.waits_since, victim.key)

        def may_pass(claimant: Gang, victim: Gang, action: str) -> Verdict:
            if action != PREEMPT or stands_before(claimant, victim):
                return ALLOW
            return wait(
                Reason.INSUFFICIENT_RESOURCES,
                "gang {name} is before it in queue {queue!r}, where priority does not count",
                name=f"{victim.key.namespace}/{victim.key.name}",
                queue=victim.queue,
            )

        def may_pass_each(claimant: Gang, victims: Sequence[Gang], action: str) -> list[bool]:
            return [action != PREEMPT or stands_before(claimant, victim) for victim in victims]

        if lines:
            hooks.victim_filter(may_pass, for_all=may_pass_each)
            hooks.monotone_claims()  # it says nothing of claims across queues

        def key(gang: Gang) -> Key:
            return (0 if gang.queue in lines else -gang.priority,)

        if self.args.queues:
            hooks.queue_order(lambda node: (-node.queue.priority,))
        hooks.gang_order(key, alike=True, rests_on=lambda: frozenset(lines), of_members=False)

    def tell_gang_order(self, gang: Gang, key: Key) -> tuple[KeyMeaning, ...]:
        """The priority and the class that gave it, or that none counts."""
        if key == (0,) and gang.priority:
            message = f"in queue {gang.queue} priority does not count, but who came first"
            return (KeyMeaning("", message),)
        given = _class_of(gang)
        who = f"class {given} counts" if given else "its priority is"
        return (KeyMeaning(str(gang.priority), f"{who} {gang.priority}"),)

    def tell_queue_order(self, queue: str, key: Key) -> tuple[KeyMeaning, ...]:
        """The queue's own priority."""
        value = -int(key[0])
        return (KeyMeaning(str(value), f"queue {queue} has priority {value}"),)


def _class_of(gang: Gang) -> str:
    """Name of the class that gave the gang its priority; empty where that is not known."""
    pods = [each.pod for each in gang.placed[:1]]
    pods += [pod_set.pods[0] for pod_set in gang.pod_sets]
    for pod in pods:
        if pod.priority == gang.priority:
            return pod.priority_class
    return gang.pod_group.priority_class if gang.pod_group is not None else ""
