"""I8 and writes that repeat themselves: what a list of writes, or the bound pods, betray."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from gpusched.base.classes import frozen
from gpusched.testing.invariants.model import (
    Finding,
    Obj,
    annotation_value,
    binding_term,
    fence_shard,
    is_ours,
    object_name,
    scheduled_at,
)


@frozen
class Write:
    """One request that was accepted."""

    method: str
    path: str
    body: bytes


def check_journal(writes: Iterable[Write]) -> list[str]:
    """What is wrong in a list of accepted writes, in their order.

    I8: no binding carries a fence older than one before it. Also: no pod is bound twice, and
    no status patch repeats the one before it on the same object.
    """
    wrong: list[str] = []
    bound: set[str] = set()
    last: dict[str, bytes] = {}
    newest: dict[str, int] = {}
    for write in writes:
        if write.path.endswith("/binding"):
            said = json.loads(write.body)["metadata"]
            if said.get("uid") in bound:
                wrong.append(f"pod {said['name']} was bound twice")
            bound.add(said.get("uid"))
            fence = (said.get("annotations") or {}).get("gpusched.io/fence", "")
            term = binding_term(fence)
            shard = fence_shard(fence)
            if term < newest.get(shard, -1):
                wrong.append(f"I8: pod {said['name']} was bound under fence {fence}")
            newest[shard] = max(newest.get(shard, -1), term)
        elif write.method == "PATCH" and write.path.endswith("/status"):
            if last.get(write.path) == write.body:
                wrong.append(f"{write.path} was written twice with the same content")
            last[write.path] = write.body
    return wrong


def fence_findings(pods: Sequence[Obj]) -> Iterator[Finding]:
    """I8: of the pods that we bound none carries an older fence than one that was bound before.

    Times of bindings are whole seconds: within one of them the order is not known.
    """
    ours = [pod for pod in pods if is_ours(pod) and scheduled_at(pod)]
    for shard in sorted({fence_shard(annotation_value(pod, "fence")) for pod in ours}):
        yield from _findings_of_shard(
            [pod for pod in ours if fence_shard(annotation_value(pod, "fence")) == shard]
        )


def _findings_of_shard(pods: Sequence[Obj]) -> Iterator[Finding]:
    bound = sorted(
        (scheduled_at(pod), binding_term(annotation_value(pod, "fence")), object_name(pod))
        for pod in pods
    )
    newest, before, at = -1, -1, 0.0
    for moment, term, name in bound:
        if moment > at:
            before, at = newest, moment
        if 0 <= term < before:
            yield Finding(
                invariant="I8",
                kind="Pod",
                name=name,
                sentence=f"pod {name} was bound in term {term}, after one of term {before}",
            )
        newest = max(newest, term)
