"""Gangs that somebody holds: they wait, and nothing of them starts until they are released."""

from __future__ import annotations

from typing import Final

HELD: Final = "Held"
"""The reason; see ``session.framework.reasons``."""


def hold_message(kind: str, name: str, hold: str) -> str:
    """Who holds a gang, where that is said, and what ends it.

    Args:
        kind: of the object that has the annotation.
        name: of the same.
        hold: its text.
    """
    return (
        f"{kind} {name} is held ({hold}): nothing of it starts until its annotation gpusched.io/hold is "
        f"gone, as by gpusched release {kind.lower()} {name}"
    )
