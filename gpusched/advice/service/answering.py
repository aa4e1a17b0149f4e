"""The process that answers: a question a line on standard input, its answer a line on standard output.

It decides one question at a time, with less time of the processor than the daemon. Who asks ends it
by closing its input, or kills it where an answer takes too long; nothing is lost by that. Plays of the whole
line take a minute and are asked of another one, so that no user's question waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import Any, Final

import msgspec

from gpusched.advice.advisor import advise_gang
from gpusched.advice.service.answer_view import EVERYTHING, Reader, advice_view
from gpusched.advice.service.cluster_copy import ClusterCopy
from gpusched.advice.service.named_gang import find_gang, missing_gang_message
from gpusched.advice.service.waiting_starts import play_waiting_starts
from gpusched.advice.submission.answer_view import view_submission
from gpusched.advice.submission.manifests import read_manifests
from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.clock import Clock, SystemClock
from gpusched.base.errors import ConfigError, GpuschedError, UsageError
from gpusched.io.history.played_starts import played_starts_answer
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.io.observe.text import one_line
from gpusched.placement.cpsat.solver import SEARCH_STOPPER
from gpusched.session.status.foreign_names import hide_names_of
from gpusched.view.over_time.advice_view import SHARDS_LEFT_OUT, shards_played
from gpusched.view.over_time.submission_view import ONLY_GIVEN_LIMITS, with_remark

_NICE: Final = 10
_FRESH_S: Final = 10.0
_PLAY_MAX_S: Final = 60.0
"""Who has not started by then is told what sessions tell."""
_QUESTION_MAX: Final = 1 << 23
_encode = msgspec.json.Encoder().encode


class AnsweringOptions(msgspec.Struct, kw_only=True):
    """What is answered about.

    Attributes:
        kubeconfig: as for the daemon.
        config_file: the daemon's; empty for none.
        fresh_s: seconds for which a copy of the cluster is good.
    """

    kubeconfig: str | None = None
    config_file: str = ""
    fresh_s: float = _FRESH_S


class AdviceQuestion(msgspec.Struct, tag_field="ask", tag="advice", kw_only=True):
    """What would let a gang start.

    Attributes:
        kind, namespace, name: of the gang, or of what made it.
        everything: whether names and objects of all namespaces may be told, whatever the configuration says.
    """

    kind: str
    namespace: str
    name: str
    everything: bool = False


class WhenQuestion(msgspec.Struct, tag_field="ask", tag="when", kw_only=True):
    """When manifests would start if they were submitted.

    Attributes:
        manifests: YAML or JSON, several documents.
        namespace: of those that name none; unless ``everything``, all are of this one.
        options: values of those that are varied.
        everything: as in ``AdviceQuestion``.
    """

    manifests: str
    namespace: str
    options: dict[str, list[str]] = {}
    everything: bool = False


class StartsQuestion(msgspec.Struct, tag_field="ask", tag="starts", kw_only=True):
    """When gangs that wait start, as the line moves on."""


class AnswerRefused(GpuschedError):
    """There is no answer; ``status`` and ``reason`` are those of HTTP and of the API."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


_DECODER: Final = msgspec.json.Decoder(AdviceQuestion | WhenQuestion | StartsQuestion)


def answer_questions(text: str) -> None:
    """Answer until standard input ends.

    Args:
        text: JSON of ``AnsweringOptions``.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    SEARCH_STOPPER.guards_wall_time = True
    collect_garbage_rarely()  # a copy of the cluster is many objects that stay
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    options = msgspec.json.decode(text, type=AnsweringOptions)
    asyncio.run(_answer_lines(options))


async def _answer_lines(options: AnsweringOptions) -> None:
    copy = ClusterCopy(
        options.kubeconfig, options.config_file, fresh_s=options.fresh_s, clock=SystemClock()
    )
    reader = asyncio.StreamReader(limit=_QUESTION_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        sys.stdout.buffer.write(_encode(await answer_line(copy, line)) + b"\n")
        sys.stdout.buffer.flush()


async def answer_line(copy: ClusterCopy, line: bytes) -> dict[str, Any]:
    """``answer``, or ``refused`` with status, reason and message.

    Args:
        copy: of the cluster.
        line: JSON of a question.
    """
    try:
        question = _DECODER.decode(line)
        trial = await copy.trial()
        with gpu_resources_in_force(trial.config.gpu_resources):
            if isinstance(question, StartsQuestion):
                return {"answer": _play_starts(trial, SystemClock())}
            if isinstance(question, WhenQuestion):
                return {"answer": _answer_when(trial, question)}
            return {"answer": _answer_advice(trial, question)}
    except AnswerRefused as error:
        return _refused(error.status, error.reason, str(error))
    except msgspec.MsgspecError as error:
        return _refused(400, "BadRequest", f"this is no question: {one_line(str(error))}")
    except GpuschedError as error:
        copy.forget()
        if error.exit_status == GpuschedError.exit_status:
            return _bug(error)
        return _refused(503, "ServiceUnavailable", str(error))
    except Exception as error:  # noqa: BLE001 - one question must not take the others their answers
        copy.forget()
        return _bug(error)


def _play_starts(trial: TrialCluster, clock: Clock) -> dict[str, object]:
    late_at = clock.monotonic() + _PLAY_MAX_S
    played = play_waiting_starts(trial, is_late=lambda: clock.monotonic() > late_at)
    return played_starts_answer(played)


def _answer_advice(trial: TrialCluster, question: AdviceQuestion) -> dict[str, Any]:
    gang = find_gang(trial, question.kind, question.namespace, question.name)
    if gang is None:
        why = missing_gang_message(trial, question.kind, question.namespace, question.name)
        raise AnswerRefused(404, "NotFound", one_line(why))
    reader = EVERYTHING if question.everything else _reader_of(trial, gang.key.namespace)
    answer = advice_view(advise_gang(trial, gang), gang, reader)
    if trial.config.shards:
        answer = msgspec.structs.replace(answer, remarks=(*answer.remarks, SHARDS_LEFT_OUT))
    told: dict[str, Any] = msgspec.to_builtins(answer)
    return told


def _answer_when(trial: TrialCluster, question: WhenQuestion) -> dict[str, Any]:
    try:
        documents = read_manifests(question.manifests.encode(), "what was sent")
    except ConfigError as error:
        raise AnswerRefused(400, "BadRequest", str(error)) from error
    reader = EVERYTHING if question.everything else _reader_of(trial, question.namespace)
    for each in documents:
        namespace = each.obj["metadata"].get("namespace") or question.namespace
        if not reader.sees(namespace):
            raise AnswerRefused(
                403, "Forbidden",
                f"{each.title} is of namespace {namespace[:63]}, and {question.namespace[:63]} is asked "
                "about: ask for one namespace at a time",
            )  # fmt: skip
    try:
        answer = view_submission(
            trial, documents, question.options, namespace=question.namespace, reader=reader
        )
    except UsageError as error:
        raise AnswerRefused(400, "BadRequest", str(error).replace("--", "")) from error
    answer = with_remark(answer, ONLY_GIVEN_LIMITS, present=True)
    shards = trial.config.shards
    remark = shards_played(each.name for each in shards)
    answer = with_remark(answer, remark, present=bool(shards))
    told: dict[str, Any] = msgspec.to_builtins(answer)
    return told


def _reader_of(trial: TrialCluster, namespace: str) -> Reader:
    """Who sees one namespace; names of others are in sentences unless the configuration hides them."""
    if trial.config.names_of_other_namespaces == "shown":
        return Reader(namespace=namespace)
    hide = hide_names_of(trial.take_snapshot())
    return Reader(namespace=namespace, hide=lambda text: hide(text, namespace))


def _refused(status: int, reason: str, message: str) -> dict[str, Any]:
    return {"refused": {"status": status, "reason": reason, "message": message}}


def _bug(error: Exception) -> dict[str, Any]:
    what = f"{type(error).__name__}: {one_line(str(error))}"
    sys.stderr.write(f"a question could not be answered, this is a bug: {what}\n")
    return _refused(500, "InternalError", f"this is a bug, and has no answer: {what}")
