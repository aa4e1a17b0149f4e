"""I2 and I11 of what is written on pods: records of ours stand where we bound, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.testing.invariants.model import (
    Finding,
    Obj,
    annotation_value,
    bound_node,
    is_ours,
    object_name,
)

RECORDS: Final = ("slots", "plan", "fence", "seal", "proof", "rank", "numa", "charged")
"""Annotations that only a binding of ours writes."""


def record_findings(pod: Obj, schedulers: Sequence[str]) -> Iterator[Finding]:
    """A pod that we did not bind carries no record of ours.

    Args:
        pod: any pod.
        schedulers: names under which we place pods.
    """
    carried = [f"gpusched.io/{each}" for each in RECORDS if annotation_value(pod, each)]
    if not carried or (is_ours(pod) and annotation_value(pod, "fence")):
        return
    name, what = object_name(pod), ", ".join(carried)
    if bound_node(pod) and annotation_value(pod, "slots"):
        yield Finding(
            invariant="I2",
            kind="Pod",
            name=name,
            sentence=f"pod {name} claims slots {annotation_value(pod, 'slots')[:64]!a} of node {bound_node(pod)}, "
            "and no binding of ours gave it any",
        )
        return
    whose = (
        "is on a node that we did not give it"
        if bound_node(pod)
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
