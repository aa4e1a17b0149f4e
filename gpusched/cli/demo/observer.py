"""The demo's own eyes: watches of the API beside the daemon's, so that nothing is claimed.

It keeps what it saw of each pod (when it appeared, was bound, ran) and derives the rest.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, TypeAlias

from gpusched.api.devices.slots import parse_slots, slot_numbers
from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES
from gpusched.api.meta.identity import InvalidObject
from gpusched.base import limits
from gpusched.base.classes import define
from gpusched.base.clock import Clock
from gpusched.base.errors import GpuschedError
from gpusched.cli.demo.scene import ClusterScene, GangPhase, GangScene, NodeScene, queue_scenes
from gpusched.cli.inspect.cluster_reader import GROUP_PATH, Json, items_at, value_at
from gpusched.io.client.api_client import ApiClient, api_error

Key: TypeAlias = tuple[str, str, str]
"""Kind, namespace and name of a gang."""
GPU: Final = DEFAULT_GPU_RESOURCES.main.name
_GROUP: Final = "gpusched.io/pod-group"
_QUEUE: Final = "gpusched.io/queue"
_SLOTS: Final = "gpusched.io/slots"
_PLAN: Final = "gpusched.io/plan"
_RACK: Final = "gpusched.io/rack"
_ENDED: Final = ("Succeeded", "Failed")
_WATCHED: Final = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "jobs": "/apis/batch/v1/jobs",
    "groups": f"{GROUP_PATH}/podgroups",
    "queues": f"{GROUP_PATH}/queues",
}


@define(kw_only=True)
class DemoPod:
    """What was seen of one pod; times in seconds since the demo began."""

    key: Key
    seen_s: float
    queue: str
    gpus: int
    node: str = ""
    slots: tuple[int, ...] = ()
    plan: str = ""
    bound_s: float | None = None
    ran_s: float | None = None
    ended: bool = False
    refusal: str = ""


class DemoObserver:
    """Watches pods, nodes, Jobs, PodGroups and Queues.

    Args:
        clock: for the times of what it sees.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun = clock.monotonic()
        self._objects: dict[str, dict[tuple[str, str], Json]] = {name: {} for name in _WATCHED}
        self._seen: dict[Key, float] = {}
        self._pods: dict[str, DemoPod] = {}
        self.decided_ms: dict[Key, float] = {}
        """By gang, what the daemon's session took; filled from its plans."""
        self.double: list[str] = []
        """Sentences about GPU slots that were given twice."""

    @property
    def bindings(self) -> int:
        """Pods that were seen bound."""
        return sum(pod.bound_s is not None for pod in self._pods.values())

    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return self._clock.monotonic() - self._begun

    async def run(self, api: ApiClient) -> None:
        """Watch until cancelled.

        Raises:
            GpuschedError: the API server went away or refused.
        """
        async with asyncio.TaskGroup() as group:
            for name, path in _WATCHED.items():
                group.create_task(self._follow(api, name, path), name=f"demo watches {name}")

    async def _follow(self, api: ApiClient, name: str, path: str) -> None:
        version = ""
        while True:
            if not version:
                answer = await api.request("GET", path, timeout_s=limits.REQUEST_TIMEOUT_S)
                if not answer.ok:
                    raise api_error(answer, doing=f"list {name}")
                page = json.loads(answer.body)
                version = page["metadata"]["resourceVersion"]
                for item in items_at(page, "items"):
                    self.see(name, item, gone=False)
            version = await self._watch(api, name, path, version)

    async def _watch(self, api: ApiClient, name: str, path: str, version: str) -> str:
        """One stream to its end; the version to go on from, empty to list again."""
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        async with api.stream(path, query=query, read_timeout_s=limits.WATCH_WINDOW_MAX_S) as (
            status,
            lines,
        ):
            if status != 200:
                raise GpuschedError(f"watching {name}: the API server answers HTTP {status}")
            async for line in lines:
                event = json.loads(line)
                item = event["object"]
                if event["type"] == "ERROR":
                    return ""
                version = item["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.see(name, item, gone=event["type"] == "DELETED")
        return version

    # -- seeing ----------------------------------------------------------------------------
    def see(self, name: str, item: Json, *, gone: bool) -> None:
        """An object appeared, changed or went, at this moment."""
        metadata = item["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if gone:
            self._objects[name].pop(key, None)
        else:
            self._objects[name][key] = item
        if name == "pods":
            self._see_pod(item, gone=gone)
        elif name == "groups":
            self._seen.setdefault(("PodGroup", *key), self.elapsed())
        elif name == "jobs" and _is_gang(item):
            self._seen.setdefault(("Job", *key), self.elapsed())

    def _see_pod(self, item: Json, *, gone: bool) -> None:
        now = self.elapsed()
        uid = item["metadata"]["uid"]
        facts = self._pods.get(uid)
        if facts is None:
            facts = DemoPod(
                key=self._key_of(item),
                seen_s=now,
                queue=str(value_at(item, "metadata", "labels", _QUEUE) or ""),
                gpus=_gpus(item),
            )
            self._pods[uid] = facts
            self._seen.setdefault(facts.key, now)
        phase = value_at(item, "status", "phase")
        node = str(value_at(item, "spec", "nodeName") or "")
        facts.ended = gone or phase in _ENDED
        facts.refusal = _false_message(item, "PodScheduled")[1]
        if node and facts.bound_s is None:
            facts.bound_s, facts.node = now, node
            facts.slots = _slots(item)
            facts.plan = str(value_at(item, "metadata", "annotations", _PLAN) or "")
            self._check_slots(item["metadata"]["name"], uid, facts)
        if phase in ("Running", *_ENDED) and facts.ran_s is None:
            facts.ran_s = now

    def _check_slots(self, name: str, uid: str, facts: DemoPod) -> None:
        """Whether a pod that is bound now got slots that no other pod holds, as many as it asked for."""
        if len(facts.slots) != facts.gpus:
            self.double.append(f"{name} asked for {facts.gpus} GPUs and got {len(facts.slots)}")
        for other_uid, other in self._pods.items():
            if other_uid == uid or other.ended or other.node != facts.node:
                continue
            for slot in set(other.slots) & set(facts.slots):
                self.double.append(
                    f"GPU {slot} of {facts.node} was given to {name} and to a pod of {other.key[2]}"
                )

    def _key_of(self, pod: Json) -> Key:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        group = value_at(pod, "metadata", "labels", _GROUP)
        if group:
            return ("PodGroup", namespace, str(group))
        for owner in items_at(pod, "metadata", "ownerReferences"):
            if owner.get("kind") == "Job":
                return ("Job", namespace, str(owner["name"]))
        return ("Pod", namespace, name)

    # -- deriving --------------------------------------------------------------------------
    def scene(self) -> ClusterScene:
        """What is seen at this moment."""
        keys = sorted(self._seen, key=lambda key: (self._seen[key], key))
        members: dict[Key, list[DemoPod]] = {key: [] for key in keys}
        for pod in self._pods.values():
            members[pod.key].append(pod)
        gangs = [self._gang(key, members[key]) for key in keys]
        nodes = self._nodes({key: index for index, key in enumerate(keys)})
        queues = sorted(name for _, name in self._objects["queues"])
        return ClusterScene(
            at_s=self.elapsed(),
            gangs=tuple(gangs),
            queues=queue_scenes(queues, gangs, nodes),
            nodes=nodes,
        )

    def _gang(self, key: Key, pods: list[DemoPod]) -> GangScene:
        kind, namespace, name = key
        owner = self._objects["groups" if kind == "PodGroup" else "jobs"].get((namespace, name), {})
        need = _minimum(kind, owner)
        started = [(pod.bound_s, pod.plan) for pod in pods if pod.bound_s is not None]
        bound, plans = (
            [at for at, _ in sorted(started)],
            {plan for _, plan in sorted(started)[:need]},
        )
        whole = bound[need - 1] if len(bound) >= need else None
        held = sum(pod.bound_s is not None and not pod.ended for pod in pods)
        reason, sentence = _false_message(owner, "Scheduled")
        if whole is None:
            stand = GangPhase.WAITING
        else:
            stand = GangPhase.DONE if pods and all(pod.ended for pod in pods) else GangPhase.RUNNING
        return GangScene(
            kind=kind,
            namespace=namespace,
            name=name,
            queue=_queue(kind, owner, pods),
            stand=stand,
            min_member=need,
            members=len(pods),
            held=held,
            started=len(bound),
            nodes=len({pod.node for pod in pods if pod.node}),
            gpus=max((pod.gpus for pod in pods), default=0),
            reason=reason,
            sentence=sentence or next((pod.refusal for pod in pods if pod.refusal), ""),
            waited_s=(self.elapsed() if whole is None else whole) - self._seen[key],
            whole_s=whole,
            spread_ms=1000 * (whole - bound[0]) if whole is not None else 0.0,
            decided_ms=self.decided_ms.get(key),
            early=("" in plans or len(plans) > 1)
            and any(pod.ran_s is not None and (whole is None or pod.ran_s < whole) for pod in pods),
        )

    def _nodes(self, index: dict[Key, int]) -> tuple[NodeScene, ...]:
        slots: dict[str, list[int | None]] = {}
        racks: dict[str, str] = {}
        for (_, name), node in self._objects["nodes"].items():
            count = value_at(node, "status", "allocatable", GPU)
            slots[name] = [None] * (int(count) if str(count).isdigit() else 0)
            racks[name] = str(value_at(node, "metadata", "labels", _RACK) or "")
        for pod in self._pods.values():
            for slot in () if pod.ended else pod.slots:
                if slot < len(slots.get(pod.node, ())):
                    slots[pod.node][slot] = index[pod.key]
        return tuple(
            NodeScene(name=name, rack=racks[name], slots=tuple(slots[name]))
            for name in sorted(slots, key=lambda name: (racks[name], name))
        )


def _is_gang(job: Json) -> bool:
    """Whether a Job is a gang of its own: its pods belong to no PodGroup."""
    return not value_at(job, "spec", "template", "metadata", "labels", _GROUP)


def _minimum(kind: str, owner: Json) -> int:
    """Pods that start together, by the rules of the contract."""
    spec = value_at(owner, "spec")
    count = value_at(spec, "minMember")
    if kind == "Job":
        parallel = value_at(spec, "parallelism")
        gang = value_at(spec, "completionMode") == "Indexed" or parallel == value_at(
            spec, "completions"
        )
        count = parallel if gang else 1
    return max(1, count) if isinstance(count, int) else 1


def _queue(kind: str, owner: Json, pods: list[DemoPod]) -> str:
    if kind == "PodGroup":
        named = value_at(owner, "spec", "queue")
    else:
        named = value_at(owner, "metadata", "labels", _QUEUE) or next((p.queue for p in pods), "")
    return str(named or "default")


def _gpus(pod: Json) -> int:
    total = 0
    for container in items_at(pod, "spec", "containers"):
        count = str(value_at(container, "resources", "requests", GPU) or "0")
        total += int(count) if count.isdigit() else 0
    return total


def _slots(pod: Json) -> tuple[int, ...]:
    """The slots written with the binding; none where the text is no list of slots."""
    try:
        return slot_numbers(
            parse_slots(str(value_at(pod, "metadata", "annotations", _SLOTS) or ""))
        )
    except InvalidObject:
        return ()


def _false_message(item: Any, kind: str) -> tuple[str, str]:
    """Reason and message of a condition that is False; empty where it is not."""
    for condition in items_at(item, "status", "conditions"):
        if condition.get("type") == kind and condition.get("status") == "False":
            return str(condition.get("reason") or ""), str(condition.get("message") or "")
    return "", ""
