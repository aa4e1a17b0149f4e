"""Keeps every queue, and every queue above it, within its ``capability``."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.plugin import ALLOW, Gang, Hooks, Reason, Verdict, View, deny, format_quantity, wait


@attrs.frozen
class Quota:
    """Refuses a gang whose minimum would take some queue on its path above its hard cap.

    A minimum that is above the cap on its own can never start: that is said as
    ``QuotaExceeded``; one that only has to wait for others is told ``WaitingForQuota``.
    """

    name: ClassVar[str] = "quota"
    api: ClassVar[int] = 1

    def open(self, hooks: Hooks, view: View) -> None:
        """See the class."""
        hooks.quota_check(lambda gang: _within(gang, view))


def _within(gang: Gang, view: View) -> Verdict:
    leaf = view.queue(gang.queue)
    asked = view.minimum(gang)
    for name in leaf.path if leaf else ():
        node = view.queue(name)
        if node is None:
            continue
        held = view.allocated(name)
        for resource, cap in node.queue.capability.items:
            need = asked.get(resource)
            if not need or held.get(resource) + need <= cap:
                continue
            words = {
                "need": format_quantity(need, resource=resource),
                "held": format_quantity(held.get(resource), resource=resource),
                "cap": format_quantity(cap, resource=resource),
                "resource": resource,
                "queue": name,
            }
            if need > cap:
                return deny(
                    Reason.QUOTA_EXCEEDED,
                    "needs {need} {resource}; queue {queue} never gets more than its capability "
                    "of {cap}",
                    **words,
                )
            return wait(
                Reason.WAITING_FOR_QUOTA,
                "needs {need} {resource}; queue {queue} holds {held} of its capability of {cap}",
                **words,
            )
    return ALLOW
