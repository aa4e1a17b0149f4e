"""The answer about a submission for programs."""

from __future__ import annotations

from typing import Any

import msgspec

from gpusched.advice.service.answer_view import (
    EVERYTHING,
    Reader,
    start_view,
    suggestion_view,
)
from gpusched.advice.submission.answer import NodeShare, SubmissionAnswer, SubmittedGang
from gpusched.api.meta.identity import format_time
from gpusched.view.over_time.advice_view import NodeShareView
from gpusched.view.over_time.submission_view import (
    NEVER,
    RefusedDocumentView,
    SubmissionView,
    SubmittedGangView,
)


def submission_view(answer: SubmissionAnswer, reader: Reader = EVERYTHING) -> SubmissionView:
    """The answer as the API of the daemon tells it to a reader."""
    return SubmissionView(
        as_of=format_time(answer.as_of),
        starts=answer.starts_sometime,
        gangs=tuple(_gang_view(each, reader) for each in answer.gangs),
        refused=tuple(
            RefusedDocumentView(
                document=each.title, place=each.place, message=reader.hide(each.message)
            )
            for each in answer.refused
        ),
        remarks=answer.remarks,
        decisions=answer.decisions,
    )


def submission_json(answer: SubmissionAnswer) -> dict[str, Any]:
    """The same as plain values of JSON."""
    made: dict[str, Any] = msgspec.to_builtins(submission_view(answer))
    return made


def _gang_view(gang: SubmittedGang, reader: Reader) -> SubmittedGangView:
    start = start_view(
        gang.start,
        shares=[_share_view(each) for each in gang.shares],
        known_by=gang.known_by,
        reader=reader,
    )
    if gang.never:
        start = msgspec.structs.replace(start, kind=NEVER, at="", message=reader.hide(gang.never))
    return SubmittedGangView(
        kind=gang.kind,
        namespace=gang.namespace,
        name=gang.name,
        queue=gang.queue,
        pods=gang.pods,
        min_member=gang.min_member,
        starting=gang.starting,
        start=start,
        domains=dict(gang.domains),
        better=tuple(suggestion_view(each, reader) for each in gang.suggestions),
    )


def _share_view(share: NodeShare) -> NodeShareView:
    return NodeShareView(name=share.name, pods=share.pods, slots=share.slots)
