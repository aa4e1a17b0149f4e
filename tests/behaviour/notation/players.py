"""The ways of playing a case, and what each finds."""

from __future__ import annotations

from gpusched.base.errors import GpuschedError
from tests.behaviour.notation import daemon_player, session_player
from tests.behaviour.notation.judge import outcome_differences
from tests.behaviour.notation.model import Case

PLAY = {"session": session_player.play_in_sessions, "blackbox": daemon_player.play_on_daemon}


def case_differences(case: Case, player: str) -> list[str]:
    """What differs, one sentence each; empty when the case agrees.

    Raises:
        KeyError: no player has that name.
    """
    try:
        seen = PLAY[player](case)
    except (GpuschedError, AssertionError, TimeoutError) as error:
        return [f"{type(error).__name__}: {str(error)[:300]}"]
    return outcome_differences(case, seen)
