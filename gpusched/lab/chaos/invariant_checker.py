"""Looks at the cluster after each write and says which invariant does not hold.

What a daemon cannot know yet is no fault of its own: a node that shrank, a queue that was cut and
a pod that another scheduler placed count after the patience that the faults of the script ask for.
Pods that our daemons bind are never excused among themselves.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpusched.api.devices.gpu_share import shared_resource
from gpusched.base.classes import frozen
from gpusched.devcluster.storage.store import Change, Store
from gpusched.lab.chaos.steps.objects import BUDGETS, CLAIMS, GROUPS, QUEUES, SLICES, TOPOLOGIES
from gpusched.testing.invariants import devices, gangs, model, nodes, queues
from gpusched.testing.invariants.model import Finding, Obj

_FOR: Final = re.compile(r"^(reclaimed|preempted|moved) for ([\w.-]+/[\w.-]+)")
_GONE_S: Final = 10.0
_BURST_S: Final = 60.0
_RESTORED: Final = "restore"
SCHEDULERS: Final = ("gpusched",)


@frozen(kw_only=True)
class TimedFinding:
    """A finding and when it was seen, in virtual seconds."""

    at: float
    finding: Finding

    def __str__(self) -> str:
        return f"{self.at:.3f} s  {self.finding}"


class InvariantChecker:
    """Checks the invariants of a run's cluster after each write.

    Args:
        store: of the cluster.
        now: virtual seconds.
        patience_s: how old what a daemon decides on may be.
    """

    def __init__(self, store: Store, now: Callable[[], float], patience_s: float) -> None:
        self.seen: list[TimedFinding] = []
        self._store = store
        self._now = now
        self._patience_s = patience_s
        self._said: set[str] = set()
        self._offers: dict[str, dict[str, list[tuple[float, int]]]] = {}
        self._edited: dict[str, float] = {}
        self._foreign: dict[str, float] = {}
        self._lost: dict[str, list[float]] = {}
        self._left: dict[str, float] = {}
        self._partial: dict[str, float] = {}
        self._whole: set[str] = set()
        self._bound_once: set[str] = set()
        self._usage: deque[tuple[float, dict[str, int]]] = deque()
        self._term = -1
        self._devices = devices.DeviceBooks()
        store.observers.append(self._see)

    def close(self) -> None:
        """Stop observing the store."""
        self._store.observers.remove(self._see)

    def restored(self) -> None:
        """The cluster went back to an older state: terms and bindings with it."""
        self._term = -1
        self._edited[_RESTORED] = self._now()
        self._bound_once.clear()
        self._partial.clear()
        self._whole.clear()
        self._lost.clear()
        self._usage.clear()
        self._devices = devices.DeviceBooks()
        for part in self._all(SLICES):
            self._devices.see_slice(part)
        for claim in self._all(CLAIMS):
            self._devices.see_claim(claim)
        for name in self._offers:
            self._edited[f"node {name}"] = self._now()
        for obj in self._all(QUEUES):
            self._edited[obj["metadata"]["name"]] = self._now()
        for pod in self._all("pods"):
            if model.is_ours(pod):
                self._bound_once.add(pod["metadata"]["uid"])
        self._note_usage()

    def say(self, finding: Finding) -> None:
        """Remember a finding, once."""
        if str(finding) not in self._said:
            self._said.add(str(finding))
            self.seen.append(TimedFinding(at=round(self._now(), 6), finding=finding))

    def sent(self, path: str, body: bytes) -> None:
        """I11: no binding is sent that the server has to refuse for the pod's gates."""
        parts = path.split("/")
        if parts[-1] != "binding":
            return
        pod = self._get("pods", f"{parts[-4]}/{parts[-2]}")
        if pod is None or not pod["spec"].get("schedulingGates"):
            return
        # No gate comes to a pod that is there: only another one under its name excuses.
        if (json.loads(body).get("metadata") or {}).get("uid") in {None, pod["metadata"]["uid"]}:
            name = model.object_name(pod)
            self._wrong("I11", pod, f"a binding of pod {name} was sent, which has gates")

    # -- reading the store -------------------------------------------------------------------
    def _all(self, kind: str) -> Sequence[Obj]:
        return [stored.obj for _, stored in self._store.collection(kind).scan()]

    def _get(self, kind: str, key: str) -> Obj | None:
        found = self._store.collection(kind).get(key)
        return None if found is None else found.obj

    # -- writes ------------------------------------------------------------------------------
    def _see(self, kind: str, change: Change) -> None:
        if kind == "pods":
            self._pod(change)
        elif kind == "nodes":
            self._node(change)
        elif kind == QUEUES:
            self._edit(change)
        elif kind == GROUPS:
            self._group(change)
        elif kind == SLICES:
            self._devices.see_slice(change.after.obj, gone=change.type == "DELETED")
        elif kind == CLAIMS:
            for found in self._devices.see_claim(change.after.obj, gone=change.type == "DELETED"):
                self.say(found)

    def _node(self, change: Change) -> None:
        obj, now = change.after.obj, self._now()
        name = obj["metadata"]["name"]
        if change.type != "MODIFIED" or _shape(obj) != _shape(
            change.before.obj if change.before else obj
        ):
            self._edited[f"node {name}"] = now
        if change.type == "DELETED":
            return
        for resource, amount in model.base_amounts(
            (obj.get("status") or {}).get("allocatable")
        ).items():
            known = self._offers.setdefault(name, {}).setdefault(resource, [])
            if not known or known[-1][1] != amount:
                known.append((now, amount))

    def _most(self, node: str) -> dict[str, int]:
        """The largest offers that a daemon may believe in now."""
        since = self._now() - self._patience_s
        found = {}
        for resource, known in self._offers.get(node, {}).items():
            valid = [amount for at, amount in known if at >= since]
            before = [amount for at, amount in known if at < since]
            found[resource] = max([*valid, *before[-1:]], default=0)
        return found

    def _edit(self, change: Change) -> None:
        before = change.before.obj["spec"] if change.before else None
        if change.type != "MODIFIED" or before != change.after.obj["spec"]:
            self._edited[change.after.obj["metadata"]["name"]] = self._now()

    def _fresh(self, what: str) -> bool:
        age = self._now() - self._edited.get(what, -1e9)
        return age < self._patience_s

    # -- pods --------------------------------------------------------------------------------
    def _pod(self, change: Change) -> None:
        pod, before = change.after.obj, change.before.obj if change.before else None
        node = model.bound_node(pod)
        was = model.bound_node(before) if before is not None else ""
        if change.type == "DELETED" and (group := model.label_value(pod, model.GROUP_LABEL)):
            self._left[f"{pod['metadata']['namespace']}/{group}"] = self._now()
        if change.type == "DELETED" or (
            model.is_over(pod) and before and not model.is_over(before)
        ):
            if was and (group := model.label_value(pod, model.GROUP_LABEL)):
                key = f"{pod['metadata']['namespace']}/{group}"
                self._lost.setdefault(key, []).append(self._now())
        elif node and not was:
            if model.is_ours(pod):
                self._bound(pod, before)
            else:
                self._foreign[node] = self._now()
        if _charged(pod) != (before is not None and _charged(before)) or change.type == "DELETED":
            self._note_usage()
        self._check_disruption(pod, before)
        self._gang_of(pod)

    def _bound(self, pod: Obj, before: Obj | None) -> None:
        """What holds at a binding of ours."""
        name, node, now = model.object_name(pod), model.bound_node(pod), self._now()
        for found in gangs.unrequested_binds(pod, SCHEDULERS):
            self.say(found)
        meta = pod["metadata"]
        if before is not None and before["metadata"].get("deletionTimestamp"):
            self._wrong("I11", pod, f"pod {name} was bound while it is being deleted")
        if meta["uid"] in self._bound_once:
            self._wrong("I2", pod, f"pod {name} was bound twice")
        self._bound_once.add(meta["uid"])
        term = model.binding_term(model.annotation_value(pod, "fence"))
        if term < self._term:
            self._wrong(
                "I8", pod, f"pod {name} was bound in term {term}, after one of {self._term}"
            )
        self._term = max(self._term, term)
        there = self._get("nodes", node)
        if there is None or there["spec"].get("unschedulable"):
            if not self._fresh(f"node {node}"):
                state = "cordoned" if there is not None else "not there"
                self._wrong("I1", pod, f"pod {name} was bound to {node}, which is {state}")
            if there is None:
                return
        here = [each for each in self._all("pods") if model.bound_node(each) == node]
        offer = self._most(node)
        if now - self._foreign.get(node, -1e9) < self._patience_s:
            here_room = [each for each in here if model.is_ours(each)]
        else:
            here_room = here
        for found in nodes.overcommitted_amounts(there, here_room, offer=offer, newcomer=pod):
            self.say(found)
        for found in nodes.slot_findings(node, here, memory=model.node_gpu_memory(there)):
            self.say(found)
        self._within(pod)
        self._together(pod)
        self._served(pod)

    def _served(self, pod: Obj) -> None:
        """I17: its claims have their devices before it is bound."""
        claimed = pod["spec"].get("resourceClaims") or model.served_by_claim(pod)
        if not claimed or self._fresh(_RESTORED):
            return
        claims = {model.object_name(each): each for each in self._all(CLAIMS)}
        for found in devices.unserved_claims(pod, claims):
            self.say(found)

    def _within(self, pod: Obj) -> None:
        known = {each["metadata"]["name"]: each for each in self._all(QUEUES)}
        groups = {model.object_name(each): each for each in self._all(GROUPS)}
        jobs = {model.object_name(each): each for each in self._all("jobs.batch")}
        line = queues.queue_and_ancestors(queues.queue_of(pod, groups, jobs, {}), known)
        if not line or any(self._fresh(name) for name in known):
            return
        held = queues.queue_usage(self._all("pods"), known, groups=groups, jobs=jobs, namespaces={})
        asked = {resource for resource, amount in queues.pod_charge(pod).items() if amount}
        for name in line:
            for found in queues.over_capability(known[name], held[name], asked=asked):
                self.say(found)

    def _together(self, pod: Obj) -> None:
        group, mine = self._group_of(pod)
        if group is None:
            return
        known = {each["metadata"]["name"]: each for each in self._all("nodes")}
        levels = gangs.topology_levels(list(self._all(TOPOLOGIES)))
        for found in gangs.split_gangs(group, mine, known, levels):
            self.say(found)

    def _group_of(self, pod: Obj) -> tuple[Obj | None, list[Obj]]:
        name = model.label_value(pod, model.GROUP_LABEL)
        if not name:
            return None, []
        key = f"{pod['metadata']['namespace']}/{name}"
        return self._get(GROUPS, key), self._members(key)

    def _members(self, key: str) -> list[Obj]:
        return model.members_by_group(self._all("pods")).get(key, [])

    def _check_disruption(self, pod: Obj, before: Obj | None) -> None:
        """I6: a victim is below the gang that it is evicted for, or of another queue."""
        if _evicted(pod) and not (before is not None and _evicted(before)):
            self._evicted(pod)
        said = _disruption(pod)
        if not said or (before is not None and _disruption(before) == said):
            return
        found = _FOR.search(said)
        if found is None:
            return
        victim, _ = self._group_of(pod)
        claimant = self._get(GROUPS, found[2])
        if victim is None or claimant is None:
            return
        own = victim["spec"].get("queue") == claimant["spec"].get("queue")
        name = model.object_name(victim)
        if not self._is_promised(claimant):
            sentence = f"{name} is {found[1]} for {found[2]}, none of whose pods is promised a node"
            self._wrong("I6", pod, sentence)
        if victim["spec"].get("preemptible") is False:
            self._wrong("I6", pod, f"{name} may not be evicted, and is {found[1]} for {found[2]}")
        if found[1] == "preempted" and not (own and self._value(victim) < self._value(claimant)):
            self._wrong("I6", pod, f"{name} is preempted for {found[2]}, which is not above it")
        if found[1] == "reclaimed" and own:
            self._wrong("I6", pod, f"{name} is reclaimed for {found[2]} of its own queue")
        if found[1] == "reclaimed" and not own:
            self._deserved(pod, victim, claimant)

    def _is_promised(self, claimant: Obj) -> bool:
        """Whether a waiting pod of it is nominated; a recent nomination may be gone."""
        key = model.object_name(claimant)
        waiting = [
            each
            for each in self._members(key)
            if not model.bound_node(each)
            and not model.is_over(each)
            and not each["spec"].get("schedulingGates")
            and not each["metadata"].get("deletionTimestamp")
        ]
        lately = self._now() - self._left.get(key, -1e9) < self._late_s
        if not waiting or lately or self._fresh(_RESTORED):
            return True
        return any((each.get("status") or {}).get("nominatedNodeName") for each in waiting)

    def _evicted(self, pod: Obj) -> None:
        """I6: an evicted pod has a node; evicting a pod that waits frees nothing."""
        if not model.bound_node(pod) and not self._fresh(_RESTORED):
            name = model.object_name(pod)
            self._wrong("I6", pod, f"pod {name} is evicted and has no node")

    def _deserved(self, pod: Obj, victim: Obj, claimant: Obj) -> None:
        """I5: reclaim takes from a queue that holds more than it deserves, at some level."""
        known = {each["metadata"]["name"]: each for each in self._all(QUEUES)}
        line = queues.queue_and_ancestors(victim["spec"].get("queue") or model.DEFAULT_QUEUE, known)
        other = queues.queue_and_ancestors(
            claimant["spec"].get("queue") or model.DEFAULT_QUEUE, known
        )
        theirs = [name for name in line if name not in other]
        if any(self._fresh(name) for name in known) or not theirs:
            return
        within = []
        for name in theirs:
            deserved = (known[name]["spec"].get("deserved") or {}).get(shared_resource())
            held = max((each.get(name, 0) for _, each in self._usage), default=0)
            if deserved is None or held > 1000 * int(deserved):
                return
            within.append(f"{name} holds {held / 1000:g} of {deserved} GPUs that it deserves")
        name = model.object_name(victim)
        self._wrong("I5", pod, f"{name} is reclaimed from within its share: {', '.join(within)}")

    def _note_usage(self) -> None:
        """What queues held of late: victims of one plan do not all leave at once."""
        now = self._now()
        known = {each["metadata"]["name"]: each for each in self._all(QUEUES)}
        groups = {model.object_name(each): each for each in self._all(GROUPS)}
        jobs = {model.object_name(each): each for each in self._all("jobs.batch")}
        held = queues.queue_usage(self._all("pods"), known, groups=groups, jobs=jobs, namespaces={})
        self._usage.append((now, {name: each[shared_resource()] for name, each in held.items()}))
        while len(self._usage) > 1 and self._usage[1][0] < now - _BURST_S:
            self._usage.popleft()

    def _value(self, group: Obj) -> int:
        name = group["spec"].get("priorityClassName")
        found = self._get("priorityclasses.scheduling.k8s.io", name) if name else None
        return int(found["value"]) if found is not None else 0

    # -- gangs -------------------------------------------------------------------------------
    def _gang_of(self, pod: Obj) -> None:
        """Since when its gang has been bound in part, if it has never been whole."""
        name = model.label_value(pod, model.GROUP_LABEL)
        if not name:
            return
        key = f"{pod['metadata']['namespace']}/{name}"
        group = self._get(GROUPS, key)
        if group is None:
            self._partial.pop(key, None)
            return
        self._count(key, group)

    def _count(self, key: str, group: Obj) -> None:
        mine = self._members(key)
        count = sum(1 for each in mine if model.counts_for_minimum(each))
        holding = sum(1 for each in mine if model.holds_room(each))
        if count >= group["spec"].get("minMember", 1):
            self._whole.add(key)
        elif not holding:
            self._whole.discard(key)
        if 0 < count < group["spec"].get("minMember", 1) and holding and key not in self._whole:
            self._partial.setdefault(key, self._now())
        else:
            self._partial.pop(key, None)

    def partial(self, since: float, limit_s: float) -> None:
        """I3: report gangs bound in part for longer, counted from a moment at the earliest."""
        for key, begun in self._partial.items():
            if self._now() - max(begun, since) <= limit_s:
                continue
            group = self._get(GROUPS, key)
            if group is None or self.is_held_by_budget(key):
                continue
            count = sum(1 for each in self._members(key) if model.counts_for_minimum(each))
            needed = group["spec"].get("minMember", 1)
            self.say(
                Finding(
                    invariant="I3",
                    kind="PodGroup",
                    name=key,
                    sentence=f"{count} of {needed} pods of {key} are bound for over {limit_s:g} s",
                )
            )

    def is_held_by_budget(self, key: str) -> bool:
        """Whether a PodDisruptionBudget forbids to evict what is bound of a gang."""
        labels = [
            each["metadata"].get("labels") or {}
            for each in self._members(key)
            if model.holds_room(each)
        ]
        return any(
            budget["metadata"]["namespace"] == key.partition("/")[0]
            and not (budget.get("status") or {}).get("disruptionsAllowed")
            and any(
                budget["spec"]["selector"]["matchLabels"].items() <= has.items() for has in labels
            )
            for budget in self._all(BUDGETS)
        )

    def _group(self, change: Change) -> None:
        """I15: no gang is reported as scheduled before its minimum is."""
        group = change.after.obj
        key = model.object_name(group)
        if change.type == "DELETED":
            self._partial.pop(key, None)
            self._whole.discard(key)
            return
        if change.before is not None and change.before.obj["spec"] != group["spec"]:
            self._count(key, group)
            self._lost.setdefault(key, []).append(self._now())
        mine = self._members(key)
        before = change.before.obj if change.before is not None else None
        if _scheduled(group) and not (before is not None and _scheduled(before)):
            recent = [at for at in self._lost.get(key, ()) if self._now() - at < self._late_s]
            count = sum(1 for each in mine if model.bound_node(each)) + len(recent)
            needed = group["spec"].get("minMember", 1)
            # What was said of bindings that a restore took back may still be on its way.
            if count < needed and not self._fresh(_RESTORED):
                self.say(
                    Finding(
                        invariant="I15",
                        kind="PodGroup",
                        name=key,
                        sentence=f"{key} is said to be scheduled with {count} of {needed} pods bound",
                    )
                )
        for each in (group.get("status") or {}).get("conditions") or ():
            if not (each.get("reason") and each.get("message")):
                self.say(
                    Finding(
                        invariant="I15",
                        kind="PodGroup",
                        name=key,
                        sentence=f"condition {each.get('type')} of {key} does not say why",
                    )
                )

    @property
    def _late_s(self) -> float:
        return max(_GONE_S, self._patience_s)

    def _wrong(self, invariant: str, pod: Obj, sentence: str) -> None:
        self.say(
            Finding(invariant=invariant, kind="Pod", name=model.object_name(pod), sentence=sentence)
        )


def _charged(pod: Obj) -> bool:
    return model.holds_room(pod) and not pod["metadata"].get("deletionTimestamp")


def _shape(node: Mapping[str, Any]) -> Any:
    spec = node.get("spec") or {}
    return spec.get("unschedulable"), (node["metadata"].get("labels") or {})


def _disruption(pod: Obj) -> str:
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == "DisruptionTarget" and each.get("status") == "True":
            return str(each.get("message") or "")
    return ""


def _evicted(pod: Obj) -> bool:
    """Whether the server accepted an eviction of it, as its condition tells."""
    return any(
        each.get("type") == "DisruptionTarget" and each.get("reason") == "EvictionByEvictionAPI"
        for each in (pod.get("status") or {}).get("conditions") or ()
    )


def _scheduled(group: Obj) -> bool:
    for each in (group.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Scheduled":
            return bool(each.get("status") == "True")
    return False
