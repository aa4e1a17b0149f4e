"""The session that follows for status alone: none where another one tells it anyway."""

from __future__ import annotations

import asyncio

from gpusched.base.limits import STATUS_SESSION_DELAY_MAX_S, STATUS_SESSION_DELAY_S
from gpusched.io.workers.following_session import FollowingSession
from gpusched.lab.virtual_time.loop import run_virtual


def begun_after(play, *, busy_until=0.0):
    """When sessions begin, by what happens, in seconds since the beginning."""
    began = []

    async def run(clock):
        begun = clock.monotonic()

        def begin():
            began.append(round(clock.monotonic() - begun, 3))
            following.note_snapshot()

        following = FollowingSession(
            begin=begin, begin_soon=begin, is_busy=lambda: clock.monotonic() - begun < busy_until
        )
        await play(following)
        await asyncio.sleep(10)
        following.stop()

    run_virtual(run)
    return began


def test_what_only_status_depends_on_is_told_by_one_session_a_while_later():
    async def play(following):
        following.note_status()
        await asyncio.sleep(STATUS_SESSION_DELAY_S / 2)
        following.note_status()

    assert begun_after(play) == [STATUS_SESSION_DELAY_S]


def test_status_waits_the_longer_the_more_gangs_are_told_of():
    """Given sessions that told of 100 gangs, of a hundred thousand, and of two."""
    delays = []
    for gangs in (100, 100_000, 2):

        async def play(following, gangs=gangs):
            following.note_gangs(gangs)
            following.note_status()

        delays += begun_after(play)
    assert delays == [0.5, STATUS_SESSION_DELAY_MAX_S, STATUS_SESSION_DELAY_S]


def test_a_session_that_was_held_meanwhile_has_told_it():
    async def play(following):
        following.note_status()
        following.note_snapshot()
        following.follow(None)

    assert begun_after(play) == []


def test_a_session_that_is_due_anyway_tells_it():
    async def play(following):
        following.follow(1.0)
        following.note_status()

    assert begun_after(play) == [1.0]


def test_what_happens_while_a_session_is_decided_is_told_by_the_next():
    """Given a session after which none follows, then one does for status alone."""

    async def play(following):
        following.follow(0.0)
        await asyncio.sleep(0)
        following.note_snapshot()
        following.note_status()
        following.follow(None)

    assert begun_after(play)[-1:] == [STATUS_SESSION_DELAY_S]


def test_status_waits_while_bindings_wait_to_be_sent():
    async def play(following):
        following.note_status()

    late = begun_after(play, busy_until=1.0)
    assert len(late) == 1
    assert 1.0 <= late[0] < 1.0 + 2 * STATUS_SESSION_DELAY_S
