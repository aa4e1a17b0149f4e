"""Starts of gangs that wait, as a play of the whole line tells them: made beside the daemon, and told while they are fresh.

A play costs seconds, so that no session makes one: a process of its own does, every few minutes while gangs wait.
Between two plays, and for who came after the last one, sessions tell what they know.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from math import inf
from typing import Final

import msgspec

from gpusched.api.meta.identity import UID, GangKey
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import GpuschedError
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.text import one_line
from gpusched.session.state.plan import Plan

_LOOK_S: Final = 5.0
"""How late it may be noticed that gangs wait."""
_SOONER: Final = 5
"""Where somebody waits of whom the last play does not tell, the next one comes after this part of a period."""
_TIMES: Final = 50
"""But not before so many times as long as it took, by that part: plays take a tenth of a processor at most."""
_FRESH_PERIODS: Final = 3
"""After so many periods without another play what the last one said is told no more."""
_log = Logger(__name__)


@frozen(kw_only=True)
class PlayedStarts:
    """What a play told.

    Attributes:
        at: the moment from which was played on, seconds since the epoch.
        starts: when gangs start that waited then, the same; 0.0 for who did not start in the play.
    """

    at: float
    starts: Mapping[tuple[GangKey, UID], float]


class StartsNotPlayed(GpuschedError):
    """No play was made, and why."""


class _SaidStarts(msgspec.Struct):
    """An answer as it is said: kind, namespace, name, UID and start of each gang; or why there is none."""

    at: float = 0.0
    starts: list[tuple[str, str, str, str, float]] = []
    refused: str = ""


def played_starts_answer(played: PlayedStarts) -> dict[str, object]:
    """What was played as an answer that ``read_played_starts`` reads."""
    starts = [(*gang, uid, start) for (gang, uid), start in played.starts.items()]
    return {"at": played.at, "starts": starts}


def read_played_starts(line: bytes) -> PlayedStarts:
    """What was played, as another process says it.

    Raises:
        StartsNotPlayed: it was not.
    """
    try:
        said = msgspec.json.decode(line, type=_SaidStarts)
    except msgspec.MsgspecError as error:
        raise StartsNotPlayed(f"what was said is no answer: {one_line(str(error))}") from error
    if said.refused:
        raise StartsNotPlayed(said.refused)
    return PlayedStarts(
        at=said.at,
        starts={
            (GangKey(kind, namespace, name), UID(uid)): start
            for kind, namespace, name, uid, start in said.starts
        },
    )


NOTHING_PLAYED: Final = PlayedStarts(at=0.0, starts={})
PlayStarts = Callable[[], Awaitable[PlayedStarts]]
"""Plays the line of the cluster as it is."""


class StartPlayer:
    """``run`` is its life, that of a term.

    Args:
        play: plays the line.
        period_s: seconds between two plays, asked each time; 0 for none.
        on_played: called when there is something new to tell.
        clock: time.
    """

    def __init__(
        self,
        play: PlayStarts,
        *,
        period_s: Callable[[], float],
        on_played: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._play = play
        self._on_played = on_played
        self._period_s = period_s
        self._clock = clock
        self._played = NOTHING_PLAYED
        self._trouble = ""
        self._plan: Plan | None = None

    def note_session(self, plan: Plan) -> None:
        """A session has left gangs that wait, or none."""
        self._plan = plan

    def fresh_starts(self, now: float) -> Mapping[tuple[GangKey, UID], float]:
        """Starts of gangs by the last play, seconds since the epoch; nothing where that is too long ago."""
        is_fresh = now - self._played.at <= _FRESH_PERIODS * self._period_s()
        return self._played.starts if is_fresh else {}

    async def run(self) -> None:
        """Play now and then, until cancelled."""
        last = sooner = -inf
        while True:
            await self._clock.sleep(_LOOK_S)
            period_s, now = self._period_s(), self._clock.monotonic()
            if not period_s or now < sooner or not any(self._waiting()):
                continue
            if now - last < period_s and not self._has_news():
                continue
            try:
                self._played = await self._play()
                self._trouble = ""
                self._on_played()
            except GpuschedError as error:  # the next one may come to its end
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    _log.warning("starts are not played", why=one_line(self._trouble))
            last, took_s = now, self._clock.monotonic() - now
            sooner = now + (period_s if self._trouble else max(period_s, _TIMES * took_s) / _SOONER)

    def _waiting(self) -> Iterator[tuple[GangKey, UID]]:
        """Gangs that wait."""
        plan = self._plan
        return (
            ((each.gang, each.uid) for each in plan.gangs if not each.is_scheduled)
            if plan
            else iter(())
        )

    def _has_news(self) -> bool:
        """Whether somebody waits who did not when was played last, or was to start before now."""
        starts, now = self._played.starts, self._clock.now()
        return any(
            starts.get(who, now) <= now and starts.get(who) != 0.0 for who in self._waiting()
        )
