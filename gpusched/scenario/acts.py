"""Doing what a timeline says: each act at once, or going on beside what follows.

``Actor.do`` returns why an act could not be done, in a sentence, empty when it was. What takes
time (a drain, a node that returns, a rule that is lifted, a restart) goes on by itself; its
troubles are told through ``tell``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from typing import Any, Final

from gpusched.devcluster.app import DevCluster
from gpusched.devcluster.control.rules import RuleError, parse_rule
from gpusched.scenario.daemons import Daemons
from gpusched.scenario.ground import Change, Ground, Obj, Refused
from gpusched.scenario.model import (
    Act,
    Apply,
    Cordon,
    Delete,
    Drain,
    Evict,
    FailNode,
    Fault,
    Manifest,
    Patch,
    Restart,
    Scale,
    Target,
)
from gpusched.scenario.targets import absent, is_exact, matching

ASK_AGAIN_S: Final = 5.0
"""A disruption budget that refused is asked again after so long."""
FAILED: Final = "gpusched.io/node-failed"
HOW: Final = "gpusched.io/failure"
GPUS_LOST: Final = "gpusched.io/gpus-lost"
_OVER: Final = ("Succeeded", "Failed")
_PLAN: Final = "gpusched.io/plan"
_KEPT_OF_A_NODE: Final = ("capacity", "allocatable")
_ANYWHERE: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})


class Actor:
    """Acts on one ground.

    Args:
        ground: whose cluster it is.
        daemons: that a restart ends and starts.
        cluster: the embedded one, for faults and restarts of the server; None for a real one.
        tell: given the trouble of what goes on by itself.
    """

    def __init__(
        self,
        ground: Ground,
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
            Apply: self._apply,
            Delete: self._delete,
            Patch: self._patch,
            Scale: self._scale,
            Cordon: self._cordon,
            Drain: self._drain,
            FailNode: self._fail,
            Evict: self._evict,
            Fault: self._fault,
            Restart: self._restart,
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
        except Refused as refused:
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

    def heed(self, change: Change) -> None:
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
            except Refused as refused:
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
    async def _apply(self, act: Apply) -> str:
        troubles = [await self._try(each) for each in act.manifests]
        return "; ".join(each for each in troubles if each)

    async def _try(self, manifest: Manifest) -> str:
        try:
            await self.apply(manifest.obj)
        except Refused as refused:
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

    async def _delete(self, act: Delete) -> str:
        return await self._each(
            act.target,
            lambda kind, place, name, _: self._ground.delete(
                kind, place, name, grace_s=act.grace_s
            ),
        )

    async def _patch(self, act: Patch) -> str:
        return await self._each(
            act.target,
            lambda kind, place, name, _: self._ground.patch(
                kind, place, name, act.body, status=act.status
            ),
        )

    async def _scale(self, act: Scale) -> str:
        return await self._each(
            act.target,
            lambda kind, place, name, obj: self._ground.patch(
                kind, place, name, {"spec": _scaled(obj, act.replicas)}, status=False
            ),
        )

    async def _cordon(self, act: Cordon) -> str:
        return await self._set(act.target, {"spec": {"unschedulable": act.on or None}})

    async def _set(self, target: Target, body: Obj) -> str:
        return await self._each(
            target,
            lambda kind, place, name, _: self._ground.patch(kind, place, name, body, status=False),
        )

    async def _each(
        self, target: Target, do: Callable[[str, str, str, Obj], Awaitable[None]]
    ) -> str:
        """Do it with each object that is meant; a name that nobody has is a trouble."""
        found = matching(self._ground, target)
        if not found and is_exact(target):
            return absent(self._ground, target)
        troubles = []
        for obj in found:
            meta = obj["metadata"]
            try:
                await do(target.kind, meta.get("namespace", ""), meta["name"], obj)
            except Refused as refused:
                troubles.append(str(refused))
        return "; ".join(troubles)

    # -- pods that leave ---------------------------------------------------------------------
    async def _evict(self, act: Evict) -> str:
        found = [pod for pod in matching(self._ground, act.target) if not _is_over(pod)]
        if not found and is_exact(act.target):
            return absent(self._ground, act.target)
        refused = []
        for pod in found:
            meta = pod["metadata"]
            if not await self._ground.evict(meta["namespace"], meta["name"]):
                refused.append(f"{meta['namespace']}/{meta['name']}")
        return f"a disruption budget keeps {', '.join(refused)}" if refused else ""

    async def _drain(self, act: Drain) -> str:
        trouble = await self._set(act.target, {"spec": {"unschedulable": True}})
        nodes = [node["metadata"]["name"] for node in matching(self._ground, act.target)]
        for node in nodes:
            self._begin(self._empty(node))
        return trouble

    async def _empty(self, node: str) -> None:
        """Evict what is on a node, again and again until nobody is left."""
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
    async def _fail(self, act: FailNode) -> str:
        nodes = matching(self._ground, act.target)
        if not nodes:
            return absent(self._ground, act.target)
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
    async def _fault(self, act: Fault) -> str:
        if self._cluster is None:
            return "a real cluster has no fault rules"
        self._rules += 1
        try:
            rule = parse_rule(act.rule, default_name=f"timeline-{self._rules}")
            self._cluster.faults.add([rule])
        except RuleError as wrong:
            return str(wrong)
        if act.for_s is not None:
            self._begin(self._lift(rule.name, act.for_s))
        return ""

    async def _lift(self, name: str, after_s: float) -> None:
        assert self._cluster is not None
        await self._ground.clock.sleep(after_s)
        self._cluster.faults.remove(name)

    async def _restart(self, act: Restart) -> str:
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


def _failing(act: FailNode) -> dict[str, str]:
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
