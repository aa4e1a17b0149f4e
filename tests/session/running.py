"""Gangs that run, for tests of those who evict them."""

from __future__ import annotations

from typing import Any

from gpusched.api.affinity.selector import EVERYTHING
from gpusched.api.meta.identity import ObjectKey, ResourceVersion
from gpusched.api.pod.pod import PodPhase
from gpusched.api.policy.kinds import DisruptionBudget
from gpusched.testing import entities
from gpusched.testing.given import Given

CPU = {"pods": 110, "memory": 512 * entities.GIB}


def runs(
    c: Given,
    name: str,
    nodes: str,
    *,
    gpus: int = 1,
    min_member: int | None = None,
    queue: str = "default",
    priority: int = 0,
    since: float = entities.BORN,
    slots: dict[str, int] | None = None,
    roles: dict[str, int] | None = None,
    role_of: tuple[str, ...] = (),
    group: dict[str, Any] | None = None,
    **spec: Any,
) -> Given:
    """A gang of which one pod runs on each of the nodes named in order: ``"n1 n1 n2"``.

    Args:
        c: gets it.
        name: of the gang; its pods are ``name-0`` and on, ranked.
        nodes: of its pods.
        gpus: of each pod.
        min_member: all of them unless told.
        queue: of the gang.
        priority: of its pods.
        roles: minima by role.
        since: when they were placed, seconds since the epoch.
        slots: taken so far by node, changed; needed where several gangs share a node.
        role_of: role of each pod.
        group: further fields of its PodGroup.
        spec: as ``entities.pod`` and ``entities.pod_class`` have.
    """
    places = nodes.split()
    taken = _first_free_slots(c) if slots is None else slots
    c.group(
        name,
        queue=queue,
        min_member=len(places) if min_member is None else min_member,
        roles=roles,
        phase="Running",
        **(group or {}),
    )
    for number, node in enumerate(places):
        first = taken.get(node, 0)
        taken[node] = first + gpus
        c.pod(
            f"{name}-{number}",
            group=name,
            rank=number,
            gpus=gpus,
            priority=priority,
            node=node,
            slots=((1 << gpus) - 1) << first,
            plan="p",
            phase=PodPhase.RUNNING,
            scheduled=since,
            role=role_of[number] if role_of else "",
            **spec,
        )
    return c


def _first_free_slots(c: Given) -> dict[str, int]:
    """First slot of each node above those that pods of the cluster hold."""
    taken: dict[str, int] = {}
    for pod in c.cache.pods.values():
        if pod.node:
            taken[pod.node] = max(taken.get(pod.node, 0), pod.slots.bit_length())
    return taken


def budget(c: Given, name: str, *, allowed: int) -> None:
    """A PodDisruptionBudget that counts every pod of the default namespace."""
    made = DisruptionBudget(
        namespace="default",
        name=name,
        uid=entities.uid("PodDisruptionBudget", name, "default"),
        resource_version=ResourceVersion("1"),
        selector=EVERYTHING,
        disruptions_allowed=allowed,
    )
    c.cache.budgets.put(ObjectKey("default", name), made)
