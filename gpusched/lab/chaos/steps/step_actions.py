"""What each step of a script does."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import attrs

from gpusched.base.clock import Clock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.cluster import DevCluster
from gpusched.devcluster.control.fault_rules import parse_rule
from gpusched.devcluster.control.restart import UnknownSnapshot
from gpusched.devcluster.storage.store import Change
from gpusched.lab.chaos.daemons import DaemonFleet
from gpusched.lab.chaos.faulty_connection import PlannedDeath, WatchTampering
from gpusched.lab.chaos.invariant_checker import InvariantChecker
from gpusched.lab.chaos.scripts.script import Obj, ScriptStep
from gpusched.lab.chaos.steps import device_objects, objects
from gpusched.lab.chaos.steps.objects import BUDGETS, GROUPS, JOBS, LEASES, NAMESPACE, QUEUES

_HOME: Final = "gpusched-system"
_OWNER_S: Final = 2.0
_BACK_S: Final = 60.0
"""A daemon that was killed or stopped without a word on its return comes back after so long."""


class StepRunner:
    """Does steps; what they ask for later is done later.

    Attributes:
        skipped: steps that could not be done, as their objects are not there any more.
    """

    def __init__(
        self, cluster: DevCluster, fleet: DaemonFleet, *, witness: InvariantChecker, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._client = cluster.client.acting_as("chaos")
        self._fleet = fleet
        self._witness = witness
        self._time = clock
        self._later: set[asyncio.Task[None]] = set()
        self._gangs: dict[str, Obj] = {}
        self._rules = 0
        self._armed: list[Any] = []
        self._outside = contextvars.copy_context()
        self._made = 0
        self._replaced: set[str] = set()
        self.skipped = 0
        cluster.core.store.observers.append(self._own)

    async def do(self, step: ScriptStep) -> None:
        """Do one step; one whose objects are gone does nothing."""
        act: Callable[[Obj], Any] = getattr(self, f"_{step.do}")
        try:
            done = act(dict(step.args))
            if asyncio.iscoroutine(done):
                await done
        except (StatusError, UnknownSnapshot, LookupError):
            self.skipped += 1

    def arm(self, step: ScriptStep) -> None:
        """Do a step at an occasion: ``on`` says at which, ``nth`` at which of them from now on.

        Occasions are requests of daemons, by the end of their path (``binding``, ``eviction``,
        ``status``), in the moment before the server has them; and ``session``, when one is
        decided. ``it`` as the name of a node or gang is the one that the request is about.
        """
        self._armed.append([step, int(step.args.get("nth", 1))])

    def occasion(self, path: str, body: bytes) -> None:
        """A daemon sends this, or has decided."""
        kind = path.rpartition("/")[2]
        for armed in list(self._armed):
            step, left = armed
            if step.args["on"] != kind:
                continue
            armed[1] = left - 1
            if armed[1] > 0:
                continue
            self._armed.remove(armed)
            # Not in the daemon's context: what happens goes on when the daemon is paused by it.
            doing = self.do(self._meant(step, path, body))
            task = asyncio.get_running_loop().create_task(doing, context=self._outside)
            self._later.add(task)
            task.add_done_callback(self._later.discard, context=self._outside)

    def _meant(self, step: ScriptStep, path: str, body: bytes) -> ScriptStep:
        """The step with what ``it`` stands for."""
        args = {key: each for key, each in step.args.items() if key not in {"on", "nth"}}
        if args.get("node") == "it" or args.get("name") == "it":
            key = "node" if args.get("node") == "it" else "name"
            target = json.loads(body or b"{}").get("target") or {}
            args[key] = target.get("name", "")
        if args.get("gang") == "it":
            pod = self._client.get("pods", NAMESPACE, path.split("/")[-2]) if "/" in path else None
            args["gang"] = (
                (pod or {"metadata": {}})["metadata"].get("labels", {}).get(objects.GROUP_LABEL, "")
            )
            args["pod"] = pod["metadata"]["name"] if pod is not None else ""
        return attrs.evolve(step, args=args)

    async def finish(self) -> None:
        """Wait for what was to happen later."""
        while self._later:
            await asyncio.wait(self._later)

    def _after(self, seconds: float, what: Callable[[], Any]) -> None:
        async def later() -> None:
            await self._time.sleep(seconds)
            with suppress(StatusError, LookupError, ValueError):
                what()

        # In nobody's context: a change may be told in that of a daemon, which then stands still.
        loop = asyncio.get_running_loop()
        task = loop.create_task(later(), name="chaos later", context=self._outside)
        self._later.add(task)
        task.add_done_callback(self._later.discard, context=self._outside)

    def _own(self, kind: str, change: Change) -> None:
        """Pods without a Job are made anew under another name, as by a controller of their own."""
        pod = change.after.obj
        failed = (pod.get("status") or {}).get("phase") == "Failed"
        if kind != "pods" or not (change.type == "DELETED" or failed):
            return
        meta = pod["metadata"]
        gang = self._gangs.get((meta.get("labels") or {}).get(objects.GROUP_LABEL, ""))
        if gang is None or gang.get("by") != "pods" or meta["uid"] in self._replaced:
            return
        self._replaced.add(meta["uid"])
        if (pod.get("status") or {}).get("phase") == "Succeeded":
            return
        part = meta["labels"]["gpusched.io/role"]
        role = next(each for each in gang["roles"] if each["name"] == part)
        self._made += 1
        name = f"{gang['name']}-{part}-again-{self._made}"

        def recreate() -> None:
            if gang["name"] in self._gangs:
                self._client.create("pods", objects.pod(gang, role, name))

        self._after(_OWNER_S, recreate)

    # -- what there is -----------------------------------------------------------------------
    def _node(self, args: Obj) -> None:
        self._client.create("nodes", objects.node(args))

    def _cards(self, args: Obj) -> None:
        """The driver publishes the cards of a node, or another number of them in the next generation."""
        known = self._client.get(objects.SLICES, None, f"{args['name']}-cards")
        generation = known["spec"]["pool"]["generation"] + 1 if known is not None else 1
        node = self._client.get("nodes", None, args["name"]) or {}
        uid = node["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": args["name"], "uid": uid}
        for made in device_objects.resource_slices({**args, "generation": generation}):
            before = self._client.get(objects.SLICES, None, made["metadata"]["name"])
            if before is None:
                made["metadata"]["ownerReferences"] = [owner]
                self._client.create(objects.SLICES, made)
            else:
                self._client.update(objects.SLICES, {**before, "spec": made["spec"]})

    def _claimables(self, _args: Obj) -> None:
        """The classes of cards, and a template for each way to ask for them."""
        for made in device_objects.device_classes():
            self._client.create(device_objects.CLASSES, made)
        for name in device_objects.CLAIMED:
            self._client.create(device_objects.TEMPLATES, device_objects.template(name))

    def _claim(self, args: Obj) -> None:
        self._client.create(objects.CLAIMS, device_objects.claim(args))

    def _unclaim(self, args: Obj) -> None:
        self._client.delete(objects.CLAIMS, NAMESPACE, args["name"])

    def _unnode(self, args: Obj) -> None:
        """The node is gone, and in a moment its pods, as the pod garbage collector has it."""
        name = args["name"]
        self._client.delete("nodes", None, name)

        def collect() -> None:
            if self._client.get("nodes", None, name) is not None:
                return
            self._delete(pod for pod in self._pods() if pod["spec"].get("nodeName") == name)

        self._after(float(args.get("collect", 2.0)), collect)

    def _cordon(self, args: Obj) -> None:
        name = args["name"]
        self._client.patch("nodes", None, name, {"spec": {"unschedulable": True}})
        back: Obj = {"spec": {"unschedulable": None}}
        self._after(args["back"], lambda: self._client.patch("nodes", None, name, back))

    def _offer(self, args: Obj) -> None:
        """The device plugin restarts: the node offers fewer GPUs for a while."""
        name = args["name"]
        node = self._client.get("nodes", None, name) or {}
        had = node["status"]["allocatable"][objects.GPU]

        def offer(gpus: str) -> None:
            amounts = {"allocatable": {objects.GPU: gpus}, "capacity": {objects.GPU: gpus}}
            self._client.patch("nodes", None, name, {"status": amounts}, subresource="status")

        offer(str(args["gpus"]))
        self._after(args["back"], lambda: offer(had))

    def _label(self, args: Obj) -> None:
        patch: Obj = {"metadata": {"labels": {"rack": args["rack"]}}}
        self._client.patch("nodes", None, args["name"], patch)

    def _queue(self, args: Obj) -> None:
        self._client.create(QUEUES, objects.queue(args))

    def _requeue(self, args: Obj) -> None:
        self._client.patch(QUEUES, None, args["name"], {"spec": objects.queue_spec(args)})

    def _unqueue(self, args: Obj) -> None:
        self._client.delete(QUEUES, None, args["name"])

    def _priority(self, args: Obj) -> None:
        self._client.create(objects.PRIORITIES, objects.priority(args))

    def _topology(self, _args: Obj) -> None:
        self._client.create(objects.TOPOLOGIES, objects.topology())

    def _budget(self, args: Obj) -> None:
        self._client.create(BUDGETS, objects.budget(args))

    def _unbudget(self, args: Obj) -> None:
        self._client.delete(BUDGETS, NAMESPACE, args["gang"])

    def _foreign(self, args: Obj) -> None:
        if self._client.get("nodes", None, args["node"]) is not None:
            self._client.create("pods", objects.foreign(args))

    # -- work --------------------------------------------------------------------------------
    def _gang(self, args: Obj) -> None:
        self._gangs[args["name"]] = args
        if args.get("grouped", True):
            self._client.create(GROUPS, objects.group(args))
        for role in args["roles"]:
            stem = f"{args['name']}-{role['name']}"
            if args.get("by", "jobs") == "jobs":
                self._client.create(JOBS, objects.job(args, role, stem))
                continue
            for number in range(role["count"]):
                self._client.create("pods", objects.pod(args, role, f"{stem}-{number}"))

    def _pods(self, gang: str = "") -> list[Obj]:
        label = f"{objects.GROUP_LABEL}={gang}" if gang else None
        return self._client.list("pods", NAMESPACE, label)

    def _delete(self, pods: Iterable[Obj]) -> None:
        for pod in list(pods):
            with suppress(StatusError):
                self._client.delete("pods", NAMESPACE, pod["metadata"]["name"], grace_s=0)

    def _lose(self, args: Obj) -> None:
        pods = self._pods(args["gang"])
        if args.get("pod"):
            found = [pod for pod in pods if pod["metadata"]["name"] == args["pod"]]
        else:
            found = [pod for pod in pods if pod["spec"].get("nodeName")]
        lost = found[: args["count"]]
        if args.get("again") is False:
            self._replaced |= {pod["metadata"]["uid"] for pod in lost}
        self._delete(lost)

    def _fail(self, args: Obj) -> None:
        """One of its pods ends badly."""
        for pod in self._pods(args["gang"]):
            if pod["spec"].get("nodeName") and pod["status"].get("phase") == "Running":
                patch: Obj = {"status": {"phase": "Failed"}}
                name = pod["metadata"]["name"]
                self._client.patch("pods", NAMESPACE, name, patch, subresource="status")
                return

    def _replace(self, args: Obj) -> None:
        """One of its waiting pods is made again under its name, and is not what it was."""
        gang = self._gangs[args["gang"]]
        for pod in self._pods(args["gang"]):
            if pod["spec"].get("nodeName") or pod["metadata"].get("ownerReferences"):
                continue
            if args.get("pod") and pod["metadata"]["name"] != args["pod"]:
                continue
            self._replaced.add(pod["metadata"]["uid"])
            self._delete([pod])
            role = {**gang["roles"][0], "gpus": 1 + int(gang["roles"][0].get("gpus", 0)) % 2}
            role.pop("share", None)
            self._client.create("pods", objects.pod(gang, role, pod["metadata"]["name"]))
            return

    def _remake(self, args: Obj) -> None:
        """One of its pods, running or not, is made again under its name."""
        gang = self._gangs[args["gang"]]
        for pod in self._pods(args["gang"]):
            meta = pod["metadata"]
            if meta.get("ownerReferences") or meta["name"] != args.get("pod", meta["name"]):
                continue
            self._replaced.add(meta["uid"])
            self._delete([pod])
            part = meta["labels"]["gpusched.io/role"]
            role = next(each for each in gang["roles"] if each["name"] == part)
            self._client.create("pods", objects.pod(gang, role, meta["name"]))
            return

    def _resize(self, args: Obj) -> None:
        # Above its pods it would wait for ever, and be admitted again and again.
        most = sum(int(role["count"]) for role in self._gangs[args["gang"]]["roles"])
        patch: Obj = {"spec": {"minMember": min(args["min"], most)}}
        self._client.patch(GROUPS, NAMESPACE, args["gang"], patch)

    def _ungang(self, args: Obj) -> None:
        """The PodGroup goes, and all of it unless told otherwise."""
        gang = self._gangs.pop(args["gang"])
        if gang.get("grouped", True):
            self._client.delete(GROUPS, NAMESPACE, args["gang"])
        if args.get("whole", True):
            for role in gang["roles"]:
                name = f"{args['gang']}-{role['name']}"
                with suppress(StatusError):
                    self._client.delete(JOBS, NAMESPACE, name, propagation="Background")
            self._delete(self._pods(args["gang"]))

    def _ungate(self, args: Obj) -> None:
        self._gangs[args["gang"]].pop("gated", None)
        for pod in self._pods(args["gang"]):
            patch: Obj = {"spec": {"schedulingGates": []}}
            self._client.patch("pods", NAMESPACE, pod["metadata"]["name"], patch)

    # -- processes ---------------------------------------------------------------------------
    def _start(self, args: Obj) -> None:
        self._fleet.start(args["slot"])

    def _kill(self, args: Obj) -> None:
        """Like SIGKILL: at once, or at a later write, before or after it is done."""
        slot, back = args["slot"], float(args.get("back", _BACK_S))
        if not args.get("writes"):
            self._fleet.kill(slot)
            self._after(back, lambda: self._fleet.start(slot))
            return
        death = PlannedDeath(writes=args["writes"], answered=bool(args.get("answered")))
        self._fleet.kill_at_write(slot, death, back)

    async def _stop(self, args: Obj) -> None:
        """Like SIGTERM; it comes back after its end."""
        slot = args["slot"]
        self._fleet.stop(slot, back=float(args.get("back", _BACK_S)))

    def _pause(self, args: Obj) -> None:
        self._after(args["for"], self._fleet.freeze(args["slot"]))

    def _clock(self, args: Obj) -> None:
        self._fleet.skew(args["slot"], float(args["by"]))

    def _reload(self, args: Obj) -> None:
        self._fleet.configure(good=bool(args["good"]))

    def _solver(self, args: Obj) -> None:
        self._fleet.harm_solver(args["how"])
        self._after(args["for"], lambda: self._fleet.harm_solver(""))

    # -- API server --------------------------------------------------------------------------
    def _fault(self, args: Obj) -> None:
        self._rules += 1
        name = f"step-{self._rules}"
        match: Obj = {}
        if args.get("resource", "*") != "*":
            match["resources"] = [args["resource"]]
        if args.get("verbs"):
            match["verbs"] = args["verbs"]
        elif args.get("resource", "*") == "*":
            match["verbs"] = ["create", "update", "patch", "delete"]
        if "slot" in args:
            match["agents"] = [f"daemon-{args['slot']}"]
        rule: Obj = {"name": name, "match": match, "fault": args["fault"]}
        when = {key: args[key] for key in ("rate", "nth", "every", "first") if key in args}
        if when:
            rule["when"] = when
        faults = self._cluster.faults
        faults.add([parse_rule(rule, default_name=name)])
        self._after(float(args.get("for", 5.0)), lambda: faults.remove(name))

    def _events(self, args: Obj) -> None:
        tampering = WatchTampering(args["how"], args.get("kind", ""), float(args.get("rate", 1.0)))
        self._fleet.tampering.append(tampering)
        self._after(float(args.get("for", 5.0)), lambda: self._fleet.tampering.remove(tampering))

    async def _server(self, args: Obj) -> None:
        await self._cluster.restarts.restart(
            args.get("memory", "kept"), down_s=float(args.get("down", 0))
        )

    def _remember(self, args: Obj) -> None:
        self._cluster.restarts.take(args["name"])

    async def _restore(self, args: Obj) -> None:
        """Etcd goes back to an older state, and versions with it."""
        restart = self._cluster.restarts.restart
        await restart("snapshot", args["name"], down_s=float(args.get("down", 0)))
        self._witness.restored()

    def _lease(self, args: Obj) -> None:
        lease = self._client.list(LEASES, _HOME)[0]
        if args["how"] == "delete":
            self._client.delete(LEASES, _HOME, lease["metadata"]["name"])
            return
        spec = dict(lease["spec"])
        if args["how"] == "steal":
            spec |= {"holderIdentity": "somebody", "leaseTransitions": 1 + spec["leaseTransitions"]}
        else:
            spec |= {"holderIdentity": "\u0000garbage", "leaseDurationSeconds": 1}
            spec.pop("renewTime", None)
        self._client.update(LEASES, {**lease, "spec": spec})
