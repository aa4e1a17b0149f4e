"""The answer about a submission for programs."""

from __future__ import annotations

from typing import Any

import msgspec

from gpusched.advice.service.answer_view import start_view, suggestion_view
from gpusched.advice.submission.answer import NodeShare, SubmissionAnswer, SubmittedGang
from gpusched.api.meta.identity import format_time
from gpusched.view.over_time.advice_view import NodeShareView
from gpusched.view.over_time.submission_view import (
    NEVER,
    RefusedDocumentView,
    SubmissionView,
    SubmittedGangView,
)


def submission_view(answer: SubmissionAnswer) -> SubmissionView:
    """The answer as the API of the daemon tells it."""
    return SubmissionView(
        as_of=format_time(answer.as_of),
        starts=answer.starts_sometime,
        gangs=tuple(map(_gang_view, answer.gangs)),
        refused=tuple(
            RefusedDocumentView(document=each.title, place=each.place, message=each.message)
            for each in answer.refused
        ),
        remarks=answer.remarks,
        decisions=answer.decisions,
    )


def submission_json(answer: SubmissionAnswer) -> dict[str, Any]:
    """The same as plain values of JSON."""
    made: dict[str, Any] = msgspec.to_builtins(submission_view(answer))
    return made


def _gang_view(gang: SubmittedGang) -> SubmittedGangView:
    start = start_view(
        gang.start, shares=[_share_view(each) for each in gang.shares], known_by=gang.known_by
    )
    if gang.never:
        start = msgspec.structs.replace(start, kind=NEVER, at="", message=gang.never)
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
        better=tuple(suggestion_view(each) for each in gang.suggestions),
    )


def _share_view(share: NodeShare) -> NodeShareView:
    return NodeShareView(name=share.name, pods=share.pods, slots=share.slots)
