"""Pods that the cluster itself needs are never evicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from gpusched.plugin import ALLOW, DependsOn, Gang, Hooks, Reason, Verdict, View, wait

SYSTEM_PRIORITY = 2_000_000_000
"""The priority of system-cluster-critical."""


@attrs.frozen
class ConformanceArgs:
    """Arguments.

    Attributes:
        namespaces: whose gangs are never evicted.
    """

    namespaces: tuple[str, ...] = ("kube-system",)


@attrs.frozen
class Conformance:
    """Keeps pods that are critical to the system, and those of system namespaces."""

    name: ClassVar[str] = "conformance"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    args: ConformanceArgs = ConformanceArgs()

    def open(self, hooks: Hooks, _view: View) -> None:
        """Register the filter of victims."""
        kept = frozenset(self.args.namespaces)

        def allows(_claimant: Gang, victim: Gang, _action: str) -> Verdict:
            if victim.key.namespace in kept:
                return wait(
                    Reason.INSUFFICIENT_RESOURCES,
                    "gangs of namespace {name} are never evicted",
                    name=victim.key.namespace,
                )
            if _highest_priority(victim) >= SYSTEM_PRIORITY:
                return wait(
                    Reason.INSUFFICIENT_RESOURCES,
                    "a gang with a pod of priority {least} or above is never evicted",
                    least=SYSTEM_PRIORITY,
                )
            return ALLOW

        known: dict[int, tuple[Gang, bool]] = {}  # with the gang, so that no other gets its id

        def each_allowed(_claimant: Gang, victims: Sequence[Gang], _action: str) -> list[bool]:
            answers = []
            for victim in victims:
                said = known.get(id(victim))
                if said is None:
                    may = victim.key.namespace not in kept
                    may = may and _highest_priority(victim) < SYSTEM_PRIORITY
                    said = known[id(victim)] = (victim, may)
                answers.append(said[1])
            return answers

        hooks.victim_filter(allows, for_all=each_allowed, alike=True)
        hooks.monotone_claims()


def _highest_priority(gang: Gang) -> int:
    """The highest priority of a member that has a place."""
    return max([member.pod.priority for member in gang.placed], default=0)
