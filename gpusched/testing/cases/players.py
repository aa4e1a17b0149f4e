"""The ways of playing a case, and what each finds."""

from __future__ import annotations

from gpusched.errors import GpuschedError
from gpusched.testing.cases import blackbox, sessions
from gpusched.testing.cases.judge import differences
from gpusched.testing.cases.model import Case

PLAY = {"session": sessions.play, "blackbox": blackbox.play}


def outcome(case: Case, player: str) -> list[str]:
    """What differs, one sentence each; empty when the case agrees.

    Raises:
        KeyError: no player has that name.
    """
    try:
        seen = PLAY[player](case)
    except (GpuschedError, AssertionError, TimeoutError) as error:
        return [f"{type(error).__name__}: {str(error)[:300]}"]
    return differences(case, seen)
