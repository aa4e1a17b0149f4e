"""Plays of the line: made while gangs wait, told while they are fresh, and said by one process to another."""

from __future__ import annotations

import asyncio
import itertools
import json
from types import SimpleNamespace

import pytest

from gpusched.api.meta.identity import UID, GangKey
from gpusched.io.history.played_starts import (
    PlayedStarts,
    StartPlayer,
    StartsNotPlayed,
    played_starts_answer,
    read_played_starts,
)
from gpusched.lab.virtual_time.loop import run_virtual

LATER = 4e9
WHO = (GangKey("PodGroup", "team", "g"), UID("1"))


def waiting(*names):
    """A plan after which gangs wait."""
    gangs = [
        SimpleNamespace(gang=GangKey("PodGroup", "team", name), uid=UID("1"), is_scheduled=False)
        for name in names
    ]
    return SimpleNamespace(gangs=gangs)


def played(main, *, period_s=300.0):
    """What a player did in virtual time: its plays by the second, and what ``main`` returns.

    Args:
        main: called with the clock and the player.
        period_s: seconds between two plays.
    """

    async def story(clock):
        plays = []

        async def play():
            plays.append(round(clock.monotonic() - began))
            return PlayedStarts(at=clock.now(), starts={WHO: clock.now() + 3_600})

        player = StartPlayer(play, period_s=lambda: period_s, on_played=lambda: None, clock=clock)
        began = clock.monotonic()
        running = asyncio.create_task(player.run())
        found = await main(clock, player)
        running.cancel()
        return plays, found

    return run_virtual(story, limit_s=10_000.0)


def test_it_plays_soon_and_then_once_a_period_while_gangs_wait():
    """Given gangs that wait from the 60th to the 720th second, then it plays at once, and every five minutes."""

    async def main(clock, player):
        await clock.sleep(60)
        player.note_session(waiting("g"))
        await clock.sleep(660)
        player.note_session(waiting())
        await clock.sleep(2_000)

    plays, _ = played(main)
    assert len(plays) == 3
    assert 60 <= plays[0] <= 65
    assert [after - before for before, after in itertools.pairwise(plays)] == [300, 300]


def test_it_plays_sooner_where_somebody_waits_whom_it_does_not_know():
    """Given a second gang that comes 20 s after a play, then the next one is a minute after that play, and then five."""

    async def main(clock, player):
        player.note_session(waiting("g"))
        await clock.sleep(25)
        player.note_session(waiting("g", "h"))
        await clock.sleep(50)
        player.note_session(waiting("g"))
        await clock.sleep(400)

    plays, _ = played(main)
    assert plays == [5, 65, 365]


def test_plays_that_take_long_come_seldom():
    """Given plays that take 20 s each and somebody new at every moment, then there are 200 s between them."""

    async def story(clock):
        plays = []

        async def play():
            plays.append(round(clock.monotonic() - began))
            await clock.sleep(20)
            return PlayedStarts(at=clock.now(), starts={})

        player = StartPlayer(play, period_s=lambda: 300.0, on_played=lambda: None, clock=clock)
        player.note_session(waiting("g"))
        began = clock.monotonic()
        running = asyncio.create_task(player.run())
        await clock.sleep(500)
        running.cancel()
        return plays

    assert run_virtual(story, limit_s=1_000.0) == [5, 205, 405]


def test_it_never_plays_where_that_is_switched_off():
    async def main(clock, player):
        player.note_session(waiting("g"))
        await clock.sleep(2_000)
        return player.fresh_starts(clock.now())

    assert played(main, period_s=0.0) == ([], {})


def test_what_was_played_three_periods_ago_is_told_no_more():
    async def main(clock, player):
        player.note_session(waiting("g"))
        await clock.sleep(10)
        player.note_session(waiting())
        told = []
        for after_s in (880, 30):
            await clock.sleep(after_s)
            told.append(WHO in player.fresh_starts(clock.now()))
        return told

    assert played(main)[1] == [True, False]


def test_a_play_that_fails_leaves_what_is_known_and_is_tried_again():
    """Given a first play that comes to no end, then the next one is made a period later."""

    async def story(clock):
        tries = []

        async def play():
            tries.append(clock.monotonic())
            if len(tries) == 1:
                raise StartsNotPlayed("no answer within 150 s")
            return PlayedStarts(at=clock.now(), starts={WHO: LATER})

        player = StartPlayer(play, period_s=lambda: 60.0, on_played=lambda: None, clock=clock)
        player.note_session(waiting("g"))
        running = asyncio.create_task(player.run())
        await clock.sleep(100)
        running.cancel()
        return len(tries), player.fresh_starts(clock.now())

    assert run_virtual(story, limit_s=1_000.0) == (2, {WHO: LATER})


def test_what_was_played_is_read_as_it_was_said():
    said = PlayedStarts(at=12.5, starts={WHO: 3_600.25})
    assert read_played_starts(json.dumps(played_starts_answer(said)).encode()) == said


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"refused": "nothing can be read"}', "nothing can be read"),
        (b'{"starts": 3}', "what was said is no answer"),
        (b"Traceback", "what was said is no answer"),
    ],
)
def test_what_is_no_answer_says_why(line, why):
    with pytest.raises(StartsNotPlayed, match=why):
        read_played_starts(line)
