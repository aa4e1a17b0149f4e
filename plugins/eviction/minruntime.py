"""A gang that has just started may work for a while before it can be evicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from gpusched.plugin import ALLOW, DependsOn, Gang, Hooks, Reason, Verdict, View, wait

NANOSECONDS = 10**9


@attrs.frozen
class MinRuntime:
    """Keeps a gang's minimum for its ``minRuntime``, counted from its last full start.

    Its own counts, else that of its queue, else that of the nearest queue above that has one.
    Members above the minimum may go at any time; a gang that is below its minimum does not run.
    """

    name: ClassVar[str] = "minruntime"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW

    def open(self, hooks: Hooks, view: View) -> None:
        """Register the filter that keeps young gangs from being stopped."""

        def allows(_claimant: Gang, victim: Gang, _action: str) -> Verdict:
            least = victim.terms.min_runtime_ns or _queue_protects_ns(victim.queue, view)
            if not is_protected(victim, least, view):
                return ALLOW
            return wait(
                Reason.INSUFFICIENT_RESOURCES,
                "gang {name} runs for {ran} s of the {least} s for which it is safe",
                name=f"{victim.key.namespace}/{victim.key.name}",
                ran=max(0, _ran_ns(victim, view.now) // NANOSECONDS),
                least=least // NANOSECONDS,
            )

        def each_allowed(_claimant: Gang, victims: Sequence[Gang], _action: str) -> list[bool]:
            of_queue = {
                queue: _queue_protects_ns(queue, view) for queue in {each.queue for each in victims}
            }
            least = [victim.terms.min_runtime_ns or of_queue[victim.queue] for victim in victims]
            if not any(least):  # thousands are asked about
                return [True] * len(least)
            return [
                not is_protected(victim, each, view)
                for victim, each in zip(victims, least, strict=True)
            ]

        hooks.stop_filter(allows, for_all=each_allowed)


def is_protected(gang: Gang, least: int, view: View) -> bool:
    """Whether a gang that started is safe for so many nanoseconds, and they are not over."""
    return bool(least and gang.started_at) and not view.is_past(
        gang.started_at + least / NANOSECONDS
    )


def _ran_ns(gang: Gang, now: float) -> int:
    return int((now - gang.started_at) * NANOSECONDS)


def _queue_protects_ns(queue: str, view: View) -> int:
    """Nanoseconds for which a gang of a queue that does not say it itself is safe."""
    node = view.queue(queue)
    for name in node.path if node else ():
        above = view.queue(name)
        if above is not None and above.queue.min_runtime_ns:
            return above.queue.min_runtime_ns
    return 0
