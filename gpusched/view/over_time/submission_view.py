"""When something would start if it were submitted, as ``/v1/when`` and ``when -o json`` write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpusched.view.model import ViewPart
from gpusched.view.over_time.advice_view import BetterChangeView, StartView

NEVER: Final = "never"
"""Beside the kinds of a start that a decision knows: it does not start as it is."""
ONLY_GIVEN_LIMITS: Final = "LimitRanges are looked at as far as they are among the manifests"
"""The remark of who cannot read those of a namespace with the rights of who asks."""
VARIED: Final = ("queue", "members", "level", "gpus")
"""Options of which variants are made."""


class SubmittedGangView(ViewPart, frozen=True, kw_only=True):
    """When one gang of a submission starts.

    Attributes:
        kind, namespace, name: of the gang; of the workload where its pods are gangs of their own.
        pods: that there are of it at first.
        min_member: pods that start together or not at all.
        starting: pods that start now.
        domains: of its nodes, by level of the topology.
        better: changes that would let it start sooner, the cheapest first.
    """

    kind: str
    namespace: str
    name: str
    queue: str
    pods: int
    min_member: int
    starting: int
    start: StartView
    domains: Mapping[str, tuple[str, ...]] = {}
    better: tuple[BetterChangeView, ...] = ()


class RefusedDocumentView(ViewPart, frozen=True, kw_only=True):
    """A document of which nothing would come to be."""

    document: str
    place: str
    message: str


class SubmissionView(ViewPart, frozen=True, kw_only=True):
    """The answer about one submission.

    Attributes:
        as_of: the moment of the cluster that it is about.
        starts: whether all of it starts at some time, as far as is known.
        remarks: what was not looked at, and who does not stay where it starts, one sentence each.
        decisions: sessions that were run for the answer.
    """

    as_of: str
    starts: bool
    gangs: tuple[SubmittedGangView, ...] = ()
    refused: tuple[RefusedDocumentView, ...] = ()
    remarks: tuple[str, ...] = ()
    decisions: int = 0


class SubmissionVariantView(ViewPart, frozen=True, kw_only=True):
    """The answer about one variant.

    Attributes:
        options: what is different: ``queue``, ``members``, ``level``, ``gpus``.
        best: whether none starts sooner, or at the same time with less of others evicted.
    """

    options: Mapping[str, str]
    answer: SubmissionView
    best: bool = False


class SubmissionVariantsView(ViewPart, frozen=True, kw_only=True):
    """Variants of one submission, side by side."""

    as_of: str
    variants: tuple[SubmissionVariantView, ...]


def with_remark(
    answer: SubmissionView | SubmissionVariantsView, remark: str, *, present: bool
) -> SubmissionView | SubmissionVariantsView:
    """The answer with a remark about all of it, or without that."""

    def remarked(one: SubmissionView) -> SubmissionView:
        others = tuple(each for each in one.remarks if each != remark)
        remarks = (*others, remark) if present else others
        return msgspec.structs.replace(one, remarks=remarks)

    if isinstance(answer, SubmissionView):
        return remarked(answer)
    variants = (
        msgspec.structs.replace(each, answer=remarked(each.answer)) for each in answer.variants
    )
    return msgspec.structs.replace(answer, variants=tuple(variants))
