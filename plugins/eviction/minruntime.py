"""A gang that has just started may work for a while before it can be evicted."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.plugin import ALLOW, Gang, Hooks, Reason, Verdict, View, wait

NANOSECONDS = 10**9


@attrs.frozen
class MinRuntime:
    """Keeps a gang's minimum for its ``minRuntime``, counted from its last full start.

    Its own counts, else that of its queue, else that of the nearest queue above that has one.
    Members above the minimum may go at any time; a gang that is below its minimum does not run.
    """

    name: ClassVar[str] = "minruntime"
    api: ClassVar[int] = 1

    def open(self, hooks: Hooks, view: View) -> None:
        """Register the filter that keeps young gangs from being stopped."""

        def allows(_claimant: Gang, victim: Gang, _action: str) -> Verdict:
            least = protected_ns(victim, view)
            started = victim.started_at
            if not least or not started:
                return ALLOW
            ran = int((view.now - started) * NANOSECONDS)
            if ran >= least:
                return ALLOW
            return wait(
                Reason.INSUFFICIENT_RESOURCES,
                "gang {name} runs for {ran} s of the {least} s for which it is safe",
                name=f"{victim.key.namespace}/{victim.key.name}",
                ran=max(0, ran // NANOSECONDS),
                least=least // NANOSECONDS,
            )

        hooks.stop_filter(allows)


def protected_ns(gang: Gang, view: View) -> int:
    """Nanoseconds for which a gang that started is safe."""
    if gang.terms.min_runtime_ns:
        return gang.terms.min_runtime_ns
    node = view.queue(gang.queue)
    for name in node.path if node else ():
        above = view.queue(name)
        if above is not None and above.queue.min_runtime_ns:
            return above.queue.min_runtime_ns
    return 0
