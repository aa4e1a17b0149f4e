"""I2 and I11 of what is written on pods: records of ours stand where we bound, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.testing.invariants.model import Finding, Obj, is_ours, name_of, node_of, note

RECORDS: Final = ("slots", "plan", "fence", "seal", "proof", "rank")
"""Annotations that only a binding of ours writes."""


def records(pod: Obj, schedulers: Sequence[str]) -> Iterator[Finding]:
    """A pod that we did not bind carries no record of ours.

    Args:
        pod: any pod.
        schedulers: names under which we place pods.
    """
    carried = [f"gpusched.io/{each}" for each in RECORDS if note(pod, each)]
    if not carried or (is_ours(pod) and note(pod, "fence")):
        return
    name, what = name_of(pod), ", ".join(carried)
    if node_of(pod) and note(pod, "slots"):
        yield Finding(
            invariant="I2",
            kind="Pod",
            name=name,
            sentence=f"pod {name} claims slots {note(pod, 'slots')[:64]!a} of node {node_of(pod)}, "
            "and no binding of ours gave it any",
        )
        return
    whose = (
        "is on a node that we did not give it"
        if node_of(pod)
        else "has no node yet"
        if pod["spec"].get("schedulerName") in schedulers
        else "does not ask for us"
    )
    yield Finding(
        invariant="I11",
        kind="Pod",
        name=name,
        sentence=f"pod {name} carries {what}, which only our bindings write, and {whose}",
    )
