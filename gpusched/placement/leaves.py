"""What taking members costs on single nodes, for members that are all alike."""

from __future__ import annotations

import attrs
import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.placement.one_class import OneClass

_DENSE = 4
"""Numbers up to so many times as many as there are of them are counted in a table of their own,
which is much quicker than sorting them."""


@attrs.frozen(eq=False, kw_only=True)
class Leaves:
    """The nodes that take members, by what they cost.

    Attributes:
        rows: the nodes, ascending, int64.
        kind: of each of these rows, index into the rest.
        most: members that a node of each kind takes, shape (kinds,).
        span, fragmentation, price: of 0, 1, 2.. members on a node of each kind, shape
            (kinds, largest of ``most`` + 1); what is beyond ``most`` means nothing.
    """

    rows: Ints
    kind: Ints
    most: Ints
    span: Ints
    fragmentation: Ints
    price: Ints

    def ranges(self, members: int, nodes: int) -> tuple[int, int, int, int]:
        """By how much span, nodes, fragmentation and price of answers differ at most."""
        used = min(members, nodes)
        if not len(self.rows):
            return 0, 0, 0, 0
        fragmentation = int(self.fragmentation.max()) - int(self.fragmentation.min())
        dearest = int(self.price[:, 1].max()) if self.price.shape[1] > 1 else 0
        return int(self.span.max()) * used, used, fragmentation * used, dearest * members


def leaves_of(one: OneClass) -> Leaves:
    """Sort the nodes by what they cost."""
    problem, gpus = one.problem, one.role.gpus
    rows = np.flatnonzero(one.fits)
    fits = one.fits[rows]
    slotted = problem.slots is not None and gpus > 0
    states, state = _numbered(problem.states[rows] if slotted else np.zeros_like(rows))
    priced = one.role.price is not None
    prices, price = _numbered(one.role.price[rows] if priced else np.zeros_like(rows))  # type: ignore[index]
    width = int(fits.max(initial=0)) + 1
    keys, kind = _numbered((fits * len(states) + state) * len(prices) + price)
    rest, price_of = np.divmod(keys, max(1, len(prices)))
    most, state_of = np.divmod(rest, max(1, len(states)))
    span = np.zeros((len(states), width), dtype=np.int64)
    fragmentation = np.zeros_like(span)
    if problem.slots is not None and slotted:
        for index, number in enumerate(states.tolist()):
            for taken in range(1, int(most[state_of == index].max(initial=0)) + 1):
                cost = problem.slots.cost(number, (gpus,) * taken)
                span[index, taken], fragmentation[index, taken] = cost
    return Leaves(
        rows=rows,
        kind=kind,
        most=most,
        span=span[state_of],
        fragmentation=fragmentation[state_of],
        price=prices[price_of][:, None] * np.arange(width)[None, :],
    )


def _numbered(values: Ints) -> tuple[Ints, Ints]:
    """The values that occur, ascending, and of each the index of its value."""
    high = int(values.max(initial=0))
    if not len(values) or int(values.min()) < 0 or high > _DENSE * len(values) + 1024:
        found, which = np.unique(values, return_inverse=True)
        return found, which
    seen = np.zeros(high + 1, dtype=np.bool_)
    seen[values] = True
    number = np.cumsum(seen) - 1
    return np.flatnonzero(seen), number[values]
