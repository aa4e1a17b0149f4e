"""The answer about a submission for programs."""

from __future__ import annotations

from typing import Any

import msgspec

from gpusched.advice.proposal import FAMILY_NAMES, Suggestion
from gpusched.advice.start_answer import StartAnswer
from gpusched.advice.submission.answer import NodeShare, SubmissionAnswer, SubmittedGang
from gpusched.api.meta.identity import format_time
from gpusched.view.over_time.submission_view import (
    NEVER,
    BetterChangeView,
    NamedGang,
    NodeShareView,
    RefusedDocumentView,
    StartView,
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
    start = _start_view(gang.start, gang.shares, known_by=gang.known_by)
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
        better=tuple(map(_better_view, gang.suggestions)),
    )


def _better_view(suggestion: Suggestion) -> BetterChangeView:
    proposal, start = suggestion.proposal, suggestion.start
    return BetterChangeView(
        change=FAMILY_NAMES[proposal.family],
        message=proposal.message,
        command=proposal.command,
        at=format_time(proposal.at) if proposal.at else "",
        start=_start_view(start, tuple(NodeShare(name, pods) for name, pods in start.nodes)),
        objects=tuple(
            {
                "resource": edit.plural, "namespace": edit.key.namespace, "name": edit.key.name,
                "becomes": edit.becomes,
            }
            for edit in proposal.edits
        ),
    )  # fmt: skip


def _start_view(
    start: StartAnswer, shares: tuple[NodeShare, ...], *, known_by: str = ""
) -> StartView:
    return StartView(
        kind=str(start.kind),
        at=format_time(start.at) if start.at else "",
        known_by=known_by if start.at else "",
        nodes=tuple(
            NodeShareView(name=each.name, pods=each.pods, slots=each.slots) for each in shares
        ),
        evicts=tuple(
            NamedGang(kind=each.kind, namespace=each.namespace, name=each.name)
            for each in start.evicted
        ),
        reason=start.reason,
        message=start.message,
    )
