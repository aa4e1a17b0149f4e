"""Kinds of gangs that are one pod, which runs: thousands are equal in what policies read of a victim."""

from __future__ import annotations

from functools import lru_cache

from gpusched.api.gang.pod_group import GangTerms
from gpusched.base.classes import frozen


@frozen(slots=True, eq=False)
class RunningKind:
    """What gangs of one running pod have in common; those of another kind differ, or may be equal.

    Attributes:
        namespace: of the gang and its pod.
        priority: of the gang.
        pod_priority: of its pod.
        digest: of the class of its pod.
    """

    queue: str
    namespace: str
    priority: int
    terms: GangTerms
    pod_priority: int
    digest: str


@lru_cache(maxsize=2**14)
def shared_kind(about: tuple[str, str, int, GangTerms, int, str]) -> RunningKind:
    """The kind with these fields: the same object for the same ones, of late at least."""
    return RunningKind(*about)
