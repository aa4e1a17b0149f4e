"""Variants of one submission, each answered as if it alone were submitted, to be read side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

import attrs

from gpusched.advice.start_answer import StartKind
from gpusched.advice.submission.answer import SubmissionAnswer, SubmittedGang, answer_submission
from gpusched.advice.submission.changed_manifests import (
    NO_LEVEL,
    with_gpu_type,
    with_level,
    with_members,
    with_queue,
)
from gpusched.advice.submission.manifests import SubmittedObject
from gpusched.advice.trial import TrialCluster
from gpusched.api.devices.gpu_types import gpu_type_of, names_gpu_type
from gpusched.base.classes import frozen
from gpusched.base.errors import UsageError
from gpusched.base.limits import GANG_PODS_MAX
from gpusched.config.yaml_tree import did_you_mean, list_names, quoted
from gpusched.topology.levels import topology_levels
from gpusched.view.over_time.submission_view import VARIED

VARIANTS_MAX: Final = 24


@frozen
class SubmissionVariant:
    """One variant.

    Attributes:
        options: what is different, by name.
        best: whether it starts as soon as any, and evicts as few.
    """

    options: Mapping[str, str]
    answer: SubmissionAnswer
    best: bool = False


def answer_variants(
    trial: TrialCluster,
    documents: Sequence[SubmittedObject],
    wanted: Mapping[str, Sequence[str]],
    *,
    namespace: str,
) -> tuple[SubmissionVariant, ...]:
    """The answers about all combinations of options, the best first.

    Args:
        trial: the cluster, which is left as it was.
        documents: that would be submitted.
        wanted: values of each option of ``VARIED`` that has some.
        namespace: for documents that name none.

    Raises:
        UsageError: a value means nothing here, or options contradict each other or the documents.
    """
    names = [name for name in VARIED if wanted.get(name)]
    _check_options(trial, {name: wanted[name] for name in names})
    found = []
    for values in product(*(wanted[name] for name in names)):
        options = dict(zip(names, values, strict=True))
        changed = _changed_documents(trial, documents, options)
        answer = answer_submission(trial, changed, namespace=namespace, better=False)
        found.append(SubmissionVariant(options, answer))
    found.sort(key=lambda each: _rank(each.answer))
    best = _rank(found[0].answer)[:3]
    return tuple(
        attrs.evolve(each, best=_rank(each.answer)[:3] == best and each.answer.starts_sometime)
        for each in found
    )


def _changed_documents(
    trial: TrialCluster, documents: Sequence[SubmittedObject], options: Mapping[str, str]
) -> Sequence[SubmittedObject]:
    if "queue" in options:
        documents = with_queue(documents, options["queue"])
    if "members" in options:
        documents = with_members(documents, int(options["members"]))
    if "level" in options:
        documents = with_level(documents, options["level"])
    if "gpus" in options:
        labels = [label for _, label in trial.config.gpu_resources.product_labels]
        documents = with_gpu_type(documents, options["gpus"], labels)
    return documents


def _check_options(trial: TrialCluster, wanted: Mapping[str, Sequence[str]]) -> None:
    count = 1
    for name, values in wanted.items():
        count *= len(values)
        twice = next((each for each in values if values.count(each) > 1), None)
        if twice is not None:
            raise UsageError(f"--{name} names {quoted(twice)} twice")
    if count > VARIANTS_MAX:
        raise UsageError(f"these options make {count} variants, more than {VARIANTS_MAX}")
    for text in wanted.get("members", ()):
        digits = text.isascii() and text.isdigit() and len(text) < len(str(GANG_PODS_MAX)) + 1
        if not digits or not 1 <= int(text) <= GANG_PODS_MAX:
            raise UsageError(
                f"--members {quoted(text)}: a number from 1 to {GANG_PODS_MAX:,} is needed"
            )
    _check_levels(trial, wanted.get("level", ()))
    _check_types(trial, wanted.get("gpus", ()))


def _check_levels(trial: TrialCluster, wanted: Sequence[str]) -> None:
    if not wanted:
        return
    snapshot = trial.take_snapshot()
    levels = topology_levels(snapshot.nodes.nodes, snapshot.topologies)
    known = [*(each.name for each in levels), NO_LEVEL]
    for name in wanted:
        if name not in known and all(name != each.label for each in levels):
            raise UsageError(
                f"--level {quoted(name)}: the nodes have no such level; there are {list_names(known)}"
                f"{did_you_mean(name, known).rstrip('?')}"
            )


def _check_types(trial: TrialCluster, wanted: Sequence[str]) -> None:
    if not wanted:
        return
    nodes = trial.take_snapshot().nodes.nodes
    types = sorted({gpu_type_of(each.labels, trial.config.gpu_resources) for each in nodes} - {""})
    for name in wanted:
        if not any(names_gpu_type(name, each) for each in types):
            raise UsageError(
                f"--gpus {quoted(name)}: no node has such GPUs; there are {list_names(types)}"
            )


_STARTS: Final = (
    StartKind.NOW,
    StartKind.AFTER_EVICTIONS,
    StartKind.EXPECTED,
    StartKind.UNKNOWN,
)


def _rank(answer: SubmissionAnswer) -> tuple[int, float, int, int]:
    """Sorts answers: never, how soon, how many others it evicts, how few pods it has."""
    if not answer.starts_sometime:
        return (len(_STARTS), 0.0, 0, 0)
    latest = max((_start_rank(each) for each in answer.gangs), default=(0, 0.0))
    evicted = {key for each in answer.gangs for key in each.start.evicted}
    return (*latest, len(evicted), -sum(each.pods for each in answer.gangs))


def _start_rank(gang: SubmittedGang) -> tuple[int, float]:
    return _STARTS.index(gang.start.kind), gang.start.at
