"""The end of a plan's id: what of its gang there was beside the members that the plan bound.

It stands with the id in the annotation ``gpusched.io/plan`` of each member, under our seal. It is
enough to tell a gang that has lost members from one that never was whole by the members that are
left: whoever finds them after a restart needs no other record.
"""

from __future__ import annotations

import re
from typing import Final

_GROWN: Final = "-grown"
_LEFT: Final = re.compile(r"-left([0-9]{1,9})")


def plan_suffix(*, left: int, grows: bool) -> str:
    """The end of a plan's id; empty when all members that waited are bound.

    Args:
        left: members that wait on when those of the plan are bound.
        grows: whether the gang had its minimum before.
    """
    return _GROWN if grows else f"-left{left}" if left else ""


def is_growth(plan: str) -> bool:
    """Whether the gang had its minimum before members were bound by the plan."""
    return plan.endswith(_GROWN)


def members_left_waiting(plan: str) -> int:
    """Members that the plan left waiting."""
    told = _LEFT.search(plan)
    return int(told[1]) if told else 0
