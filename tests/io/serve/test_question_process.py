"""A process that answers questions: in turn, within bounds, and begun again when it is lost."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from gpusched.base.clock import SystemClock
from gpusched.io.serve.answers.question_process import AnsweringProgram, QuestionProcess
from gpusched.io.serve.answers.served_questions import ServedQuestions
from gpusched.io.serve.reviews import AccessRefused
from gpusched.view.access import EVERYTHING, ViewAccess

PROGRAM = AnsweringProgram("tests.io.serve.answering_program:answer", "options")


@asynccontextmanager
async def asked(**terms):
    """A process that answers, ended at the end."""
    process = QuestionProcess(PROGRAM, SystemClock(), **terms)
    try:
        yield process
    finally:
        await process.close()


async def refused(process, **question):
    """Status and sentence of what is no answer."""
    with pytest.raises(AccessRefused) as told:
        await process.ask(question)
    return told.value.status, str(told.value)


async def test_the_same_question_is_decided_once_and_others_in_turn():
    async with asked() as process:
        same = [process.ask({"ask": "a"}) for _ in range(3)]
        answers = await asyncio.gather(*same, process.ask({"ask": "b"}))
    assert [each["number"] for each in answers] == [1, 1, 1, 2]
    assert answers[0]["options"] == "options"


async def test_a_refusal_has_its_status_and_sentence():
    async with asked() as process:
        assert await refused(process, ask="refuse") == (404, "there is none")


async def test_more_than_eight_questions_at_once_are_too_many():
    async with asked() as process:
        questions = [process.ask({"ask": str(number)}) for number in range(9)]
        answers = await asyncio.gather(*questions, return_exceptions=True)
    assert [each["number"] for each in answers[:8]] == list(range(1, 9))
    assert (answers[8].status, str(answers[8])) == (429, "8 questions wait already: ask again soon")


async def test_a_process_that_ends_or_is_too_slow_is_begun_again():
    async with asked() as process:
        told = await refused(process, ask="end")
        assert told == (503, "the process that answers ended: ask again")
        assert (await process.ask({"ask": "a"}))["number"] == 1
    async with asked(answer_s=1.0) as process:
        status, why = await refused(process, ask="sleep")
        assert (status, why.partition(":")[0]) == (504, "no answer within 1 s")


async def test_a_gang_of_a_namespace_that_may_not_be_seen_is_not_there():
    async with asked() as process:
        served = ServedQuestions(process)
        eve = ViewAccess(namespaces=frozenset({"eve"}), nodes=False, queues=False)
        with pytest.raises(AccessRefused, match="its namespace may not be seen"):
            await served.advise("team", "job", "train", eve)
        assert (await served.advise("team", "job", "train", EVERYTHING))["asked"] == "advice"
        with pytest.raises(AccessRefused, match="may be asked by who may list its pods"):
            await served.when("{}", "team", {}, eve)
        assert (await served.when("{}", "team", {}, EVERYTHING))["asked"] == "when"
    with pytest.raises(AccessRefused, match="gpusched advise and when do so themselves"):
        await ServedQuestions(None).advise("team", "job", "train", EVERYTHING)


async def test_no_question_of_a_user_waits_for_a_play():
    """Given a play that takes a minute, then questions are answered while it goes on, and its process ends with it."""
    async with asked() as process, asked() as plays:
        served = ServedQuestions(process, plays)
        play = asyncio.create_task(served.play_starts())
        for name in ("first", "second"):
            assert (await served.advise("team", "job", name, EVERYTHING))["asked"] == "advice"
        assert not play.done()
        play.cancel()
        await asyncio.gather(play, return_exceptions=True)
        assert play.cancelled()
