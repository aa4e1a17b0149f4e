"""Who could leave, in what pieces, and a choice among them: ints and tuples.

``placement.victim_field`` chooses; ``placement.cpsat_victims`` proves the choice or betters it.
"""

from __future__ import annotations

from typing import Any

import attrs

Lane = tuple[Any, ...]
"""Compared before cost: bundles of smaller lanes are taken first. All of one field compare."""


@attrs.frozen(slots=True, eq=False)
class Member:
    """A pod that could leave.

    Attributes:
        row: of its node; -1 where the claimants may not run, so that it frees nothing for them.
        frees: amounts by column of the claimants' request.
        cost: what is lost when it leaves.
        draws: numbers of limits; its leaving takes one from each.
    """

    row: int
    frees: tuple[int, ...]
    cost: int
    draws: tuple[int, ...] = ()


@attrs.frozen(slots=True, eq=False)
class Bundle:
    """Members that leave together or not at all.

    Attributes:
        members: numbers of members.
        order: decides among equals, smaller first; unique.
        group: bundles that share members have the same number; one with all members of its
            group replaces the others.
        extra: cost beside that of the members.
        draws: limits that it takes one from, beside those of its members.
    """

    members: tuple[int, ...]
    order: int
    group: int
    extra: int = 0
    draws: tuple[int, ...] = ()


@attrs.frozen(slots=True, eq=False)
class Pick:
    """A bundle of a choice, with the members that leave by it."""

    bundle: int
    members: tuple[int, ...]


@attrs.frozen(slots=True, eq=False)
class Choice:
    """Who leaves; ``cost`` is the sum over picks and their extras, ``lane`` the largest."""

    picks: tuple[Pick, ...]
    cost: int
    lane: Lane
