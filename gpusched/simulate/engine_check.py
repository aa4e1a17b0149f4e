"""What must hold in every record, looked for in a simulated one: room, slots, whole gangs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpusched.report.record import Broken, End, JobLife, NodeLife, PodLife

_TOLD_MAX = 100
"""Sentences of one kind; more of them are the same bug."""


def broken(
    nodes: Sequence[NodeLife], pods: Sequence[PodLife], jobs: Sequence[JobLife]
) -> tuple[Broken, ...]:
    """Everything that did not hold, by time.

    Args:
        nodes: that stayed as they were.
        pods: of the whole run.
        jobs: of the whole run.
    """
    by_node: dict[str, list[PodLife]] = {}
    by_job: dict[str, list[PodLife]] = {}
    for pod in pods:
        if pod.bound is not None:
            by_node.setdefault(pod.node, []).append(pod)
            by_job.setdefault(pod.job, []).append(pod)
    found: list[Broken] = []
    for node in nodes:
        found += [*_node(node, by_node.get(node.name, []))][:_TOLD_MAX]
    for job in jobs:
        if job.min_member > 1:
            found += [*_gang(job, by_job.get(job.key, []))][:_TOLD_MAX]
    return tuple(sorted(found, key=lambda each: (each.at, each.invariant, each.sentence)))


def _node(node: NodeLife, pods: Sequence[PodLife]) -> Iterator[Broken]:
    offer = node.spans[0]
    moves = []
    for pod in pods:
        moves.append((pod.bound or 0.0, 1, pod))
        if pod.ended is not None:
            moves.append((pod.ended, 0, pod))
    moves.sort(key=lambda move: (move[0], move[1], move[2].namespace, move[2].name))
    gpus = cpu = memory = 0
    holder: dict[int, str] = {}
    for at, comes, pod in moves:
        sign = 1 if comes else -1
        gpus, cpu, memory = gpus + sign * pod.gpus, cpu + sign * pod.cpu, memory + sign * pod.memory
        whole = pod.gpus % 1000 == 0
        for slot in pod.slots if whole else ():
            if not comes:
                holder.pop(slot, None)
            elif slot in holder:
                sentence = f"slot {slot} of node {node.name} has pods {holder[slot]} and {pod.name}"
                yield Broken(at=at, invariant="slots", sentence=sentence)
            else:
                holder[slot] = pod.name
        over = [
            f"{have} of {offered} {what}"
            for what, have, offered in (
                ("thousandths of GPUs", gpus, offer.gpus),
                ("thousandths of cores", cpu, offer.cpu),
                ("MiB", memory, offer.memory),
            )
            if have > offered
        ]
        if comes and over:
            sentence = f"node {node.name} gave {' and '.join(over)}"
            yield Broken(at=at, invariant="room", sentence=sentence)


def _gang(job: JobLife, pods: Sequence[PodLife]) -> Iterator[Broken]:
    """At each binding the gang must have its minimum, with those that succeeded."""
    moments = Counter(pod.bound for pod in pods)
    for at in sorted(moment for moment in moments if moment is not None):
        have = sum(
            1
            for pod in pods
            if pod.bound is not None
            and pod.bound <= at
            and (pod.ended is None or pod.ended > at or pod.end is End.SUCCEEDED)
        )
        if have < job.min_member:
            sentence = f"job {job.key} has {have} of {job.min_member} pods that it needs"
            yield Broken(at=at, invariant="gangs", sentence=sentence)
