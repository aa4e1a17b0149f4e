"""The answer about a submission for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpusched.advice.service.answer_view import EVERYTHING, Reader, start_view, suggestion_view
from gpusched.advice.submission.answer import (
    NodeShare,
    SubmissionAnswer,
    SubmittedGang,
    answer_submission,
)
from gpusched.advice.submission.manifests import SubmittedObject
from gpusched.advice.submission.variants import answer_variants
from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.identity import format_time
from gpusched.view.over_time.advice_view import NodeShareView
from gpusched.view.over_time.submission_view import (
    NEVER,
    RefusedDocumentView,
    SubmissionVariantsView,
    SubmissionVariantView,
    SubmissionView,
    SubmittedGangView,
)


def view_submission(
    trial: TrialCluster,
    documents: Sequence[SubmittedObject],
    wanted: Mapping[str, Sequence[str]],
    *,
    namespace: str,
    reader: Reader = EVERYTHING,
) -> SubmissionView | SubmissionVariantsView:
    """The answer about documents, or about variants of them where some are wanted.

    Args:
        trial: the cluster, which is left as it was.
        documents: that would be submitted.
        wanted: values of the options that are varied; empty for none.
        namespace: for documents that name none.
        reader: of the answer.

    Raises:
        UsageError: options that mean nothing, or contradict each other or the documents.
    """
    if not any(wanted.values()):
        return submission_view(answer_submission(trial, documents, namespace=namespace), reader)
    variants = answer_variants(trial, documents, wanted, namespace=namespace)
    return SubmissionVariantsView(
        as_of=format_time(trial.now),
        variants=tuple(
            SubmissionVariantView(
                options=each.options, answer=submission_view(each.answer, reader), best=each.best
            )
            for each in variants
        ),
    )


def submission_view(answer: SubmissionAnswer, reader: Reader = EVERYTHING) -> SubmissionView:
    """The answer as the API of the daemon tells it, for a reader."""
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
