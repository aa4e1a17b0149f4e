"""The gang that people mean by the kind and the name of an object."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.identity import ObjectKey
from gpusched.cache.gangs.gang import Gang


def find_gang(trial: TrialCluster, word: str, namespace: str, name: str) -> Gang | None:
    """The gang of an object that waits, else the first one of what the object made; None for none.

    Args:
        trial: the cluster.
        namespace: of the object.
        name: of the object.
        word: for the kind, in any form that kubectl takes: ``job``, ``Jobs``, ``jobs.batch``.
    """
    gangs = [each for each in trial.take_snapshot().gangs if each.pod_sets or each.gated]
    return _find_among(gangs, word, namespace, name)


def missing_gang_message(trial: TrialCluster, word: str, namespace: str, name: str) -> str:
    """Why nothing can be said of a gang that does not wait; arguments as of ``find_gang``."""
    running = list(trial.take_snapshot().placed_gangs.values())
    if _find_among(running, word, namespace, name) is not None:
        return f"{word} {name} in namespace {namespace} runs: there is nothing that it waits for"
    return (
        f"no gang of {word}/{name} waits in namespace {namespace}; "
        "gpusched get jobs -A lists what waits and runs"
    )


def _find_among(gangs: Sequence[Gang], word: str, namespace: str, name: str) -> Gang | None:
    kind = word.lower().partition(".")[0]
    exact = [
        each
        for each in gangs
        if each.key[1:] == (namespace, name) and _is_kind(each.key.kind, kind)
    ]
    if exact:
        return exact[0]
    for each in gangs:
        if each.key.namespace != namespace:
            continue
        pods = [pod for pod_set in each.pod_sets for pod in pod_set.pods]
        owners = {(pod.owner.kind, pod.owner.name) for pod in pods if pod.owner is not None}
        if any(_is_kind(owner, kind) and owned == name for owner, owned in owners):
            return each
        if kind in _PODS and any(pod.key == ObjectKey(namespace, name) for pod in pods):
            return each
    return None


_PODS = frozenset({"pod", "pods", "po"})
_SHORT = {"gpg": "podgroup", "pg": "podgroup", "po": "pod"}


def _is_kind(kind: str, word: str) -> bool:
    lower = kind.lower()
    return _SHORT.get(word, word) in {lower, f"{lower}s"}
