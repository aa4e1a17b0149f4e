"""Entitlements to what queues use in divided node pools, and which of two is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from gpusched_plugins.queues.fairshare.shares import Shares

from gpusched.plugin import Resources, accelerator, resource_of

Held = Callable[[str], Resources]
"""What a queue's subtree holds, without pods that leave."""


@attrs.frozen
class ReclaimRequest:
    """One side of a comparison of entitlements.

    Attributes:
        chain: names of queues from the leaf up to the child of the common ancestor.
        requests: what the claimant requests.
        names: the resources that decide.
    """

    chain: tuple[str, ...]
    requests: Resources
    names: tuple[str, ...]


def keeps_better_entitlements(
    shares: Shares,
    claim: ReclaimRequest,
    theirs: Sequence[str],
    *,
    taken: Resources,
    held: Held,
    due: bool,
) -> bool:
    """Whether a chunk takes nothing that its queues have by a better right than the claim.

    In this order: what is deserved in a pool, what is deserved as a whole, what a queue is
    due in a pool, what it is due as a whole (``due``: the claim is by what is due). So no
    two claims can take back from each other. As ever, accelerators decide alone.
    """
    alone = any(accelerator(name) for name in claim.names)
    touched = [
        name
        for name, amount in taken.items
        if amount and name in shares.dimensions and (accelerator(name) or not alone)
    ]
    for level in theirs if touched else ():
        holds = held(level)
        for name in touched:
            whole = resource_of(name)
            if name not in claim.names:
                limit = shares.entitled(level, name) if due else shares.deserved(level, name)
                kept = holds.get(name)
            elif due and shares.deserved(level, name) is None:
                limit, kept = shares.deserved(level, whole), holds.get(whole)
            else:
                continue
            if limit is not None and kept <= limit:
                return False
    return True
