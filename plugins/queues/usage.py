"""Decayed usage of queues: those that used much of late get less when surplus is divided.

Use is a share of what there is; what lies a half-life back counts half. The state lives in the
status of the queue: the average up to a moment, and the share from then on. Between two changes
of the share the average follows from these, so nothing is written while nothing changes, and a
restart loses nothing. A queue without a record has used nothing.
"""

from __future__ import annotations

from functools import cache
from math import isqrt
from typing import ClassVar

import attrs
from attrs import validators as v

from gpusched.plugin import DependsOn, Hooks, QueueUsage, View, accelerator

ONE = 10**9
BITS = 60
"""Binary digits behind the point of the numbers that decay."""
MICROSECOND = 10**6


@attrs.frozen(kw_only=True)
class UsageArgs:
    """``halfLife``: what a queue used so long ago counts half of what it uses now."""

    half_life_s: float = attrs.field(default=7 * 86_400.0, validator=[v.ge(60.0), v.le(3.2e7)])


@attrs.frozen
class DecayedUsage:
    """Provides ``view.usage``; ``fairshare`` bends the surplus by it (``usageWeight``)."""

    name: ClassVar[str] = "usage"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    args: UsageArgs = UsageArgs()

    def open(self, hooks: Hooks, view: View) -> None:
        """Register the decayed usage of queues."""
        half_life = int(self.args.half_life_s * MICROSECOND)

        @cache
        def usage(queue: str) -> QueueUsage:
            node = view.queue(queue)
            if node is None:
                return QueueUsage()
            known, now = node.queue.usage, int(view.now)
            passed = max(0, int((now - known.as_of) * MICROSECOND)) if known.as_of else 0
            left = decay_factor(passed, half_life)
            average, share = dict(known.average), dict(known.share)
            parts = []
            for name in sorted(average.keys() | share.keys()):
                since = share.get(name, 0)
                parts.append((name, since + _decayed_part(average.get(name, 0) - since, left)))
            decayed = tuple((name, part) for name, part in parts if part)
            return QueueUsage(float(now), decayed, _share(view, queue))

        hooks.usage(usage)


def _share(view: View, queue: str) -> tuple[tuple[str, int], ...]:
    """Part of the cluster that the queue uses."""
    total, held = view.total_of_cluster(), view.staying_in_cluster(queue)
    return tuple(
        (name, min(ONE, amount * ONE // total.get(name)))
        for name, amount in held.items
        if amount and total.get(name) and (accelerator(name) or name in ("cpu", "memory"))
    )


def _decayed_part(amount: int, left: int) -> int:
    """So much of a difference; towards zero, whatever its sign."""
    return amount * left >> BITS if amount >= 0 else -(-amount * left >> BITS)


def decay_factor(passed: int, half_life: int) -> int:
    """One half to the power of ``passed / half_life``, of one unit, in parts of ``2**BITS``."""
    whole, rest = divmod(passed, half_life)
    if whole >= BITS:
        return 0
    left = 1 << BITS - whole
    for root in _roots_of_half():
        rest *= 2
        if rest >= half_life:
            rest -= half_life
            left = left * root >> BITS
    return left


@cache
def _roots_of_half() -> tuple[int, ...]:
    """One half to the power of 1/2, 1/4, 1/8 and so on, in parts of ``2**BITS``."""
    roots = [isqrt(1 << 2 * BITS - 1)]
    while len(roots) < 40:
        roots.append(isqrt(roots[-1] << BITS))
    return tuple(roots)
