"""Doing what a timeline says: each act at once, or going on beside what follows.

``Actor.do`` returns why an act could not be done, in a sentence, empty when it was. What takes
time (a drain, a node that returns, a rule that is lifted, a restart) goes on by itself; its
troubles are told through ``tell``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import lru_cache
from typing import Any, Final

import attrs

from gpusched.config.yaml_tree import did_you_mean, list_names
from gpusched.devcluster.cluster import DevCluster
from gpusched.devcluster.control.fault_rules import FaultRuleError, parse_rule
from gpusched.lab.scenario.model.scenario import (
    Act,
    ApplyAct,
    CordonAct,
    DeleteAct,
    DrainAct,
    EvictAct,
    FailNodeAct,
    FaultAct,
    Manifest,
    PatchAct,
    RestartAct,
    ScaleAct,
    Target,
)
from gpusched.lab.scenario.play.daemons import Daemons
from gpusched.lab.scenario.target_cluster.interface import (
    Obj,
    ObjectChange,
    TargetCluster,
    WriteRefused,
)

_NAMES_MAX: Final = 8


def matching_objects(ground: TargetCluster, target: Target) -> list[Obj]:
    """Objects that a target means, in the order of their names."""
    found = []
    for obj in ground.list(target.kind):
        meta = obj["metadata"]
        place = meta.get("namespace", "")
        if place and target.namespace != place and not _fits(target.namespace, place):
            continue
        if not _fits(target.name, meta["name"]):
            continue
        labels = meta.get("labels") or {}
        if all(labels.get(key) == value for key, value in target.labels.items()):
            found.append(obj)
    return found


def names_one_object(target: Target) -> bool:
    """Whether it means one object by its name."""
    return bool(target.name) and "*" not in target.name and "*" not in target.namespace


def absence_message(ground: TargetCluster, target: Target) -> str:
    """That nothing of a target is there, and what there is instead, where one may look for it."""
    near = attrs.evolve(target, name="", labels={})
    names = sorted(obj["metadata"]["name"] for obj in matching_objects(ground, near))
    known = list_names(names[:_NAMES_MAX])
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"there is no {objects_message(target)}: there are {known}{more}{did_you_mean(target.name, names)}"


def objects_message(target: Target) -> str:
    """As a sentence names it."""
    place = "" if target.namespace in {"", "default"} else f"{target.namespace}/"
    return f"{target.kind} {place}{target.name or '*'}"


def _fits(text: str, name: str) -> bool:
    return text in {"", "*", name} or _pattern(text).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in text.split("*")), re.DOTALL)


ASK_AGAIN_S: Final = 5.0
"""A disruption budget that refused is asked again after so long."""
FAILED: Final = "gpusched.io/node-failed"
HOW: Final = "gpusched.io/failure"
GPUS_LOST: Final = "gpusched.io/gpus-lost"
_OVER: Final = ("Succeeded", "Failed")
_PLAN: Final = "gpusched.io/plan"
_KEPT_OF_A_NODE: Final = ("capacity", "allocatable")
_ANYWHERE: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})


class ActRunner:
    """Acts on one ground.

    Args:
        ground: whose cluster it is.
        daemons: that a restart ends and starts.
        cluster: the embedded one, for faults and restarts of the server; None for a real one.
        tell: given the trouble of what goes on by itself.
    """

    def __init__(
        self,
        ground: TargetCluster,
        daemons: Daemons,
        *,
        cluster: DevCluster | None,
        tell: Callable[[str], None],
    ) -> None:
        self._ground = ground
        self._daemons = daemons
        self._cluster = cluster
        self._tell = tell
        self._places: set[str] = set(_ANYWHERE)
        self._going: set[asyncio.Task[None]] = set()
        self._bindings_left = 0
        self._rules = 0
        self._fatal: BaseException | None = None
        self._context = copy_context()
        self._doers: dict[type, Callable[[Any], Awaitable[str]]] = {
            ApplyAct: self._apply,
            DeleteAct: self._delete,
            PatchAct: self._patch,
            ScaleAct: self._scale,
            CordonAct: self._cordon,
            DrainAct: self._drain,
            FailNodeAct: self._fail,
            EvictAct: self._evict,
            FaultAct: self._fault,
            RestartAct: self._restart,
        }

    @property
    def busy(self) -> bool:
        """Whether something goes on that was begun."""
        return bool(self._going) or self._bindings_left > 0

    async def do(self, act: Act) -> str:
        """Do it, or begin it; return why it could not be done.

        Raises:
            ClusterUnreachable: the cluster is lost.
        """
        if self._fatal is not None:
            raise self._fatal
        try:
            return await self._doers[type(act)](act)
        except WriteRefused as refused:
            return str(refused)

    async def apply(self, obj: Obj) -> None:
        """Apply an object, with its namespace where that is not there yet.

        Raises:
            Refused: the server does not take it.
        """
        await self._make_place((obj.get("metadata") or {}).get("namespace", ""))
        if obj.get("kind") == "Namespace":
            self._places.add((obj.get("metadata") or {}).get("name", ""))
        await self._ground.apply(obj)

    def observe_change(self, change: ObjectChange) -> None:
        """Count bindings, for a leader that is killed right after some."""
        if not self._bindings_left or change.kind != "Pod" or change.gone:
            return
        meta = change.obj["metadata"]
        uid = meta["uid"]
        if not change.obj["spec"].get("nodeName") or uid in self._bound:
            return
        if _PLAN not in (meta.get("annotations") or {}):
            return
        self._bound.add(uid)
        self._bindings_left -= 1
        if self._bindings_left == 0:
            self._daemons.kill_leader()
            self._begin(self._start_later(self._down_s))

    async def close(self) -> None:
        """Let go of what still goes on."""
        for task in self._going:
            task.cancel()
        await asyncio.gather(*self._going, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except WriteRefused as refused:
                self._tell(str(refused))
            except Exception as fault:  # noqa: BLE001 - told with the next act, or at the look
                self._fatal = fault

        # It may be a binding that is counted: what is begun then is not the daemon's.
        context = self._context.copy()
        task = asyncio.create_task(guarded(), name="act of a scenario", context=context)
        self._going.add(task)
        task.add_done_callback(self._going.discard)

    def check(self) -> None:
        """Raise what broke while it went on by itself."""
        if self._fatal is not None:
            raise self._fatal

    # -- objects -----------------------------------------------------------------------------
    async def _apply(self, act: ApplyAct) -> str:
        troubles = [await self._try(each) for each in act.manifests]
        return "; ".join(each for each in troubles if each)

    async def _try(self, manifest: Manifest) -> str:
        try:
            await self.apply(manifest.obj)
        except WriteRefused as refused:
            return f"{manifest.place}: {refused}"
        return ""

    async def _make_place(self, name: str) -> None:
        if not name or name in self._places:
            return
        self._places.add(name)
        there = {each["metadata"]["name"] for each in self._ground.list("Namespace")}
        if name not in there:
            head: Obj = {"apiVersion": "v1", "kind": "Namespace"}
            await self._ground.apply({**head, "metadata": {"name": name}})

    async def _delete(self, act: DeleteAct) -> str:
        return await self._each(
            act.target,
            lambda kind, place, name, _: self._ground.delete(
                kind, place, name, grace_s=act.grace_s
            ),
        )

    async def _patch(self, act: PatchAct) -> str:
        return await self._each(
            act.target,
            lambda kind, place, name, _: self._ground.patch(
                kind, place, name, act.body, status=act.status
            ),
        )

    async def _scale(self, act: ScaleAct) -> str:
        return await self._each(
            act.target,
            lambda kind, place, name, obj: self._ground.patch(
                kind, place, name, {"spec": _scaled(obj, act.replicas)}, status=False
            ),
        )

    async def _cordon(self, act: CordonAct) -> str:
        return await self._set(act.target, {"spec": {"unschedulable": act.on or None}})

    async def _set(self, target: Target, body: Obj) -> str:
        return await self._each(
            target,
            lambda kind, place, name, _: self._ground.patch(kind, place, name, body, status=False),
        )

    async def _each(
        self, target: Target, do: Callable[[str, str, str, Obj], Awaitable[None]]
    ) -> str:
        """Do it with each object that is meant; a name that no object has is an error."""
        found = matching_objects(self._ground, target)
        if not found and names_one_object(target):
            return absence_message(self._ground, target)
        troubles = []
        for obj in found:
            meta = obj["metadata"]
            try:
                await do(target.kind, meta.get("namespace", ""), meta["name"], obj)
            except WriteRefused as refused:
                troubles.append(str(refused))
        return "; ".join(troubles)

    # -- pods that leave ---------------------------------------------------------------------
    async def _evict(self, act: EvictAct) -> str:
        found = [pod for pod in matching_objects(self._ground, act.target) if not _is_over(pod)]
        if not found and names_one_object(act.target):
            return absence_message(self._ground, act.target)
        refused = []
        for pod in found:
            meta = pod["metadata"]
            if not await self._ground.evict(meta["namespace"], meta["name"]):
                refused.append(f"{meta['namespace']}/{meta['name']}")
        return f"a disruption budget keeps {', '.join(refused)}" if refused else ""

    async def _drain(self, act: DrainAct) -> str:
        trouble = await self._set(act.target, {"spec": {"unschedulable": True}})
        nodes = [node["metadata"]["name"] for node in matching_objects(self._ground, act.target)]
        for node in nodes:
            self._begin(self._empty(node))
        return trouble

    async def _empty(self, node: str) -> None:
        """Evict what is on a node, again and again until no pod is left."""
        while True:
            left = [pod for pod in self._ground.list("Pod") if _is_on(pod, node)]
            if not left:
                return
            for pod in left:
                meta = pod["metadata"]
                if not meta.get("deletionTimestamp"):
                    await self._ground.evict(meta["namespace"], meta["name"])
            await self._ground.clock.sleep(ASK_AGAIN_S)

    # -- nodes -------------------------------------------------------------------------------
    async def _fail(self, act: FailNodeAct) -> str:
        nodes = matching_objects(self._ground, act.target)
        if not nodes:
            return absence_message(self._ground, act.target)
        if act.how == "deleted":
            trouble = await self._each(
                act.target, lambda kind, _, name, __: self._ground.delete(kind, "", name)
            )
            returns = self._recreate([_reborn(node) for node in nodes], act.for_s)
        else:
            notes = _failing(act)
            trouble = await self._set(act.target, {"metadata": {"annotations": notes}})
            names = [node["metadata"]["name"] for node in nodes]
            returns = self._mend(names, dict.fromkeys(notes), act.for_s)
        if act.for_s is None:
            returns.close()
        else:
            self._begin(returns)
        return trouble

    async def _recreate(self, nodes: list[Obj], after_s: float | None) -> None:
        await self._ground.clock.sleep(after_s or 0.0)
        for node in nodes:
            await self._ground.apply(node)

    async def _mend(self, nodes: list[str], notes: Obj, after_s: float | None) -> None:
        await self._ground.clock.sleep(after_s or 0.0)
        there = {node["metadata"]["name"] for node in self._ground.list("Node")}
        for name in nodes:
            if name in there:
                body: Obj = {"metadata": {"annotations": notes}}
                await self._ground.patch("Node", "", name, body, status=False)

    # -- the control plane -------------------------------------------------------------------
    async def _fault(self, act: FaultAct) -> str:
        if self._cluster is None:
            return "a real cluster has no fault rules"
        self._rules += 1
        try:
            rule = parse_rule(act.rule, default_name=f"timeline-{self._rules}")
            self._cluster.faults.add([rule])
        except FaultRuleError as wrong:
            return str(wrong)
        if act.for_s is not None:
            self._begin(self._lift(rule.name, act.for_s))
        return ""

    async def _lift(self, name: str, after_s: float) -> None:
        assert self._cluster is not None
        await self._ground.clock.sleep(after_s)
        self._cluster.faults.remove(name)

    async def _restart(self, act: RestartAct) -> str:
        if self._cluster is None:
            return "what runs on a real cluster is not restarted"
        if act.what == "apiserver":
            await self._cluster.restarts.restart("cut", down_s=act.down_s)
        elif act.what == "scheduler":
            self._begin(self._end_and_start(act.down_s))
        elif act.after_writes:
            self._bindings_left, self._down_s = act.after_writes, act.down_s
            self._bound = {
                pod["metadata"]["uid"]
                for pod in self._ground.list("Pod")
                if pod["spec"].get("nodeName")
            }
        else:
            self._daemons.kill_leader()
            self._begin(self._start_later(act.down_s))
        return ""

    async def _end_and_start(self, down_s: float) -> None:
        await self._daemons.end_leader()
        await self._start_later(down_s)

    async def _start_later(self, down_s: float) -> None:
        await self._ground.clock.sleep(down_s)
        self._daemons.start()


def _failing(act: FailNodeAct) -> dict[str, str]:
    if act.how == "gpus":
        return {GPUS_LOST: str(act.gpus)}
    if act.how == "lost":
        return {HOW: "lost", FAILED: "true"}
    return {FAILED: "true"}


def _reborn(node: Obj) -> Obj:
    """The same node as it would register anew."""
    meta, status = node["metadata"], node.get("status") or {}
    kept = {key: meta[key] for key in ("name", "labels", "annotations") if meta.get(key)}
    taints = [
        each
        for each in (node.get("spec") or {}).get("taints") or ()
        if not each["key"].startswith("node.kubernetes.io/")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": kept,
        **({"spec": {"taints": taints}} if taints else {}),
        "status": {key: status[key] for key in _KEPT_OF_A_NODE if key in status},
    }


def _scaled(obj: Obj, replicas: int) -> Obj:
    if obj.get("kind") != "Job":
        return {"replicas": replicas}
    spec = obj["spec"]
    if spec.get("completions") == spec.get("parallelism"):
        return {"parallelism": replicas, "completions": replicas}
    return {"parallelism": replicas}


def _is_over(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in _OVER


def _is_on(pod: Obj, node: str) -> bool:
    """Whether a drain waits for it: pods of DaemonSets stay."""
    if pod["spec"].get("nodeName") != node or _is_over(pod):
        return False
    owners = pod["metadata"].get("ownerReferences") or ()
    return not any(each.get("kind") == "DaemonSet" for each in owners)
