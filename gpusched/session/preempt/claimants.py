"""Claimants: gangs for which others might be evicted."""

from __future__ import annotations

from collections.abc import Callable

from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.reasons import shorten
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.state.session import Session


def preemption_claimants(
    session: Session, has_victims: Callable[[Gang], bool] = lambda _gang: True
) -> list[Gang]:
    """Gangs for which others might be evicted: admitted, ready, not started, and not nominated.

    Args:
        session: in which they find no room.
        has_victims: whether there may be a victim for a gang; asked first.
    """
    return [
        gang
        for gang in session.gangs
        if has_victims(gang)
        and gang.pending
        and (gang.missing_members or not gang.placed)
        and session.outcomes.is_admitted(gang)
        and not session.nominations.has(gang)
        and not session.placements.assigned(gang)
        and gang.ready_members + gang.pending >= gang.min_member
        and not first_refusal(session.hooks.ready_checks, gang).refuses
    ]


def gang_text(gang: Gang) -> str:
    """Namespace and name of a gang, cut to fit into a message."""
    return shorten(f"{gang.key.namespace}/{gang.key.name}")
