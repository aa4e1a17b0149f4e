"""Any API server as a ground, in real time: what a scenario makes there is labelled and removed."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from gpusched.base.clock import Clock
from gpusched.base.errors import (
    ApiError,
    BudgetRefused,
    ClusterUnreachable,
    GpuschedError,
    OutcomeUnknown,
)
from gpusched.base.limits import REQUEST_TIMEOUT_S, SCENARIO_LOST_S
from gpusched.io.client.api_client import MERGE_PATCH, ApiClient
from gpusched.io.client.responses import ApiResponse, api_error
from gpusched.io.client.transport import JSON
from gpusched.io.workers.backoff import RetryBackoff
from gpusched.lab.scenario.target_cluster.interface import Obj, ObjectChange, WriteRefused
from gpusched.lab.scenario.target_cluster.real_discovery import DiscoveredKind, DiscoveredKinds
from gpusched.lab.scenario.target_cluster.real_watch import KindWatch

MANAGER: Final = "gpusched-scenario"
RUN_LABEL: Final = "scenario.gpusched.io/run"
"""On everything that a run makes: its ID."""
ALWAYS: Final = ("Namespace", "Node", "Pod", "Job", "Deployment", "ReplicaSet", "PodGroup", "Queue",
    "Topology", "PriorityClass", "Event")  # fmt: skip
"""Kinds that the recorder and the invariants want, whatever the scenario says."""
FOREIGN: Final = frozenset({"Namespace", "Topology", "PriorityClass", "Event"})
"""Kinds of which others' objects are seen too."""
_APPLY_PATCH: Final = "application/apply-patch+yaml"
_EVICTION: Final = "/eviction"
_PROBE_S: Final = 5.0
_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
_QUICK_S: Final = 0.1


class RealTarget:
    """A ground over an API server. Every call waits out an outage of up to a minute.

    Args:
        api: it is used, not owned.
        clock: real time, or that of the cluster.
        run: ID that labels everything that is made.
    """

    embedded = False

    def __init__(self, api: ApiClient, clock: Clock, *, run: str) -> None:
        self.clock = clock
        self.run = run
        self.kinds = DiscoveredKinds(self._get)
        self.made: set[str] = set()
        """Kinds of which something was made."""
        self.selector: Mapping[str, str] = {}
        """Labels of nodes that pods of this run are kept to."""
        self._api = api
        self._begin = clock.monotonic()
        self._heard = clock.monotonic()
        self._why = ""
        self._backoff = RetryBackoff(random.Random(run))  # noqa: S311  # spreads retries, no secret
        self._watches: dict[str, KindWatch] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: list[Callable[[ObjectChange], None]] = []

    # -- life --------------------------------------------------------------------------------
    async def open(self, kinds: Collection[str]) -> None:
        """Learn what is served and follow some kinds beside those that every run needs.

        Raises:
            ClusterUnreachable: the server does not answer.
            Refused: one of the kinds is not served, or may not be read.
        """
        await self.kinds.read()
        self._tasks.append(asyncio.create_task(self._probe(), name="probe"))
        await self.follow([*(each for each in ALWAYS if self.kinds.find(each)), *sorted(kinds)])

    async def follow(self, kinds: Sequence[str]) -> None:
        """Watch these kinds too; returns when all were listed.

        Raises:
            Refused: one of them is not served, or may not be read.
            ClusterUnreachable: the server is lost.
        """
        for kind in kinds:
            if kind not in self._watches:
                served = self.kinds.need(kind)
                watch = KindWatch(self._api, served, clock=self.clock, observe_change=self._changed)
                self._watches[kind] = watch
                self._tasks.append(asyncio.create_task(watch.run(), name=f"watch {kind}"))
        while not all(self._watches[kind].synced for kind in kinds):
            self.check()
            await self.clock.sleep(_QUICK_S)
        for kind in kinds:
            if self._watches[kind].refused:
                raise WriteRefused(
                    f"{self._watches[kind].served.name} may not be listed and watched"
                )

    def follows(self, kind: str) -> bool:
        """Whether its objects are known."""
        return kind in self._watches

    async def close(self) -> None:
        """Follow nothing any longer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def begin(self) -> None:
        """Begin the run: changes are told in seconds since this moment."""
        self._begin = self.clock.monotonic()

    def check(self) -> None:
        """Raise ``ClusterUnreachable`` after too long a silence."""
        silent = self.clock.monotonic() - self._heard
        if silent > SCENARIO_LOST_S:
            why = f": {self._why}" if self._why else ""
            raise ClusterUnreachable(
                f"the API server {self._api.host} has not answered for {silent:.0f} s{why}"
            )

    # -- writes ------------------------------------------------------------------------------
    async def apply(self, obj: Obj) -> Obj:
        """Apply an object server-side; fields that the kind does not have are refused."""
        served = await self._serve(obj.get("kind", ""), obj.get("apiVersion", ""))
        body = with_run_labels(obj, {RUN_LABEL: self.run}, selector=self.selector)
        metadata = body["metadata"]
        place = (metadata.get("namespace") or "default") if served.namespaced else ""
        self.made.add(served.kind)
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        if not metadata.get("name"):
            answer = await self._send("POST", served.collection(place), query=query, body=body)
            return self._stored(answer, served, place, metadata.get("generateName", ""))
        answer = await self._send(
            "PATCH",
            served.path(place, metadata["name"]),
            query={**query, "force": "true"},
            body=body,
            content_type=_APPLY_PATCH,
        )
        stored = self._stored(answer, served, place, metadata["name"])
        wanted = body.get("status") if served.kind == "Node" else None
        if wanted and not (stored.get("status") or {}).get("capacity"):
            await self.patch("Node", "", metadata["name"], {"status": wanted}, status=True)
        return stored

    async def install(self, obj: Obj) -> None:
        """Apply something that stays in the cluster when the run is over."""
        served = await self._serve(obj["kind"], obj["apiVersion"])
        name = obj["metadata"]["name"]
        answer = await self._send(
            "PATCH",
            served.path("", name),
            query={"fieldManager": MANAGER, "force": "true"},
            body=obj,
            content_type=_APPLY_PATCH,
        )
        self._stored(answer, served, "", name)

    async def patch(self, kind: str, namespace: str, name: str, body: Obj, *, status: bool) -> None:
        """Apply a merge patch to an object or its status."""
        served = await self._serve(kind)
        path = served.path(namespace, name) + ("/status" if status else "")
        query = {"fieldManager": MANAGER}
        answer = await self._send("PATCH", path, query=query, body=body, content_type=MERGE_PATCH)
        self._stored(answer, served, namespace, name)

    async def delete(
        self, kind: str, namespace: str, name: str, *, grace_s: int | None = None
    ) -> None:
        """Delete an object in the background."""
        served = await self._serve(kind)
        body: Obj = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        answer = await self._send("DELETE", served.path(namespace, name), body=body)
        if answer.status != 404:
            self._stored(answer, served, namespace, name)

    async def evict(self, namespace: str, name: str) -> bool:
        """Evict a pod; False when a disruption budget refuses for now."""
        served = await self._serve("Pod")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        path = served.path(namespace, name) + _EVICTION
        answer = await self._send("POST", path, body=body)
        if answer.status == 404:
            return True
        if not answer.ok and isinstance(_fault(answer), BudgetRefused):
            return False
        self._stored(answer, served, namespace, name)
        return True

    # -- reads -------------------------------------------------------------------------------
    def list(self, kind: str) -> Sequence[Obj]:
        """Objects of this run as last seen; of ``FOREIGN`` kinds all of the cluster."""
        self.check()
        watch = self._watches.get(kind)
        if watch is None:
            raise WriteRefused(f"objects of kind {kind} are not followed in this cluster")
        return [obj for obj in watch.objects() if self._is_seen(kind, obj)]

    def objects_of_any_owner(self, kind: str) -> Sequence[Obj]:
        """Objects of a kind that is followed, also those made by others."""
        return self._watches[kind].objects()

    def on_change(self, listener: Callable[[ObjectChange], None]) -> None:
        """Tell a listener of every change, of what is there first."""
        at = self._now()
        for kind in sorted(self._watches):
            for obj in self.list(kind):
                listener(ObjectChange(at, kind, obj, gone=False))
        self._listeners.append(listener)

    async def read(self, path: str) -> Obj | None:
        """One object by its path, None where there is none.

        Raises:
            ClusterUnreachable: the server is lost.
            Refused: it may not be read.
        """
        answer = await self._get(path)
        if answer.status == 404:
            return None
        if not answer.ok:
            raise WriteRefused(str(api_error(answer, doing=f"read {path}")))
        found: Obj = json.loads(answer.body)
        return found

    # -- inside ------------------------------------------------------------------------------
    def _now(self) -> float:
        return round(max(0.0, self.clock.monotonic() - self._begin), 6)

    def _is_seen(self, kind: str, obj: Obj) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return kind in FOREIGN or labels.get(RUN_LABEL) == self.run

    def _changed(self, kind: str, obj: Obj, gone: bool) -> None:
        self._heard = self.clock.monotonic()
        if not self._listeners or not self._is_seen(kind, obj):
            return
        told = ObjectChange(self._now(), kind, obj, gone=gone)
        for listener in self._listeners:
            listener(told)

    async def _serve(self, kind: str, api_version: str = "") -> DiscoveredKind:
        """A kind; what was defined a moment ago is asked for again."""
        if self.kinds.find(kind, api_version) is None:
            await self.kinds.read()
        return self.kinds.need(kind, api_version)

    async def _get(self, path: str) -> ApiResponse:
        return await self._send("GET", path)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Obj | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        """One request; every one may be repeated, so that an outage is waited out.

        Raises:
            ClusterUnreachable: there was no answer for too long.
        """
        raw = None if body is None else json.dumps(body).encode()
        until = self.clock.monotonic() + SCENARIO_LOST_S
        answer: ApiResponse | None = None
        while True:
            wait = 0.0
            try:
                answer = await self._api.request(
                    method, path, query=query, body=raw, content_type=content_type,
                    timeout_s=REQUEST_TIMEOUT_S,
                )  # fmt: skip
            except (ClusterUnreachable, ApiError) as error:
                self._why = str(error)
                repeatable = method != "POST" or path.endswith(_EVICTION)
                if not repeatable and isinstance(error, OutcomeUnknown):
                    # A second one would be another object.
                    raise WriteRefused(self._why) from error
            else:
                self._heard = self.clock.monotonic()
                if answer.status not in _AGAIN or isinstance(_fault(answer), BudgetRefused):
                    self._backoff.succeeded()
                    return answer
                wait = answer.retry_after_s()
            if self.clock.monotonic() >= until:
                if answer is not None:
                    return answer
                raise ClusterUnreachable(
                    f"{method} {path} was not answered for {SCENARIO_LOST_S:.0f} s: {self._why}"
                )
            await self.clock.sleep(max(wait, self._backoff.failed()))

    async def _probe(self) -> None:
        """Ask now and then, so that a silent cluster is told from a lost one."""
        while True:
            await self.clock.sleep(_PROBE_S)
            try:
                await self._api.request("GET", "/version", timeout_s=_PROBE_S)
            except GpuschedError as error:
                self._why = str(error)
            else:
                self._heard = self.clock.monotonic()

    def _stored(
        self, answer: ApiResponse, served: DiscoveredKind, namespace: str, name: str
    ) -> Obj:
        if not answer.ok:
            place = f"{namespace}/{name}" if namespace and served.namespaced else name
            said = str(_fault(answer)).removeprefix("could not write it: ")
            raise WriteRefused(f"{served.kind} {place}: {said}")
        found: Obj = json.loads(answer.body)
        return found


def _fault(answer: ApiResponse) -> ApiError:
    return api_error(answer, doing="write it", write=True)


def with_run_labels(obj: Obj, labels: Mapping[str, str], *, selector: Mapping[str, str]) -> Obj:
    """An object with labels on it and on the pods that it makes.

    Args:
        obj: it stays as it is.
        labels: of the run.
        selector: labels of nodes that its pods are kept to; empty for none.
    """
    made = {**obj, "metadata": _with(obj.get("metadata"), "labels", labels)}
    spec = made.get("spec")
    if not isinstance(spec, dict):
        return made
    if made.get("kind") == "Pod":
        made["spec"] = _with(spec, "nodeSelector", selector)
    elif isinstance(template := spec.get("template"), dict) and "spec" in template:
        inner = {
            **template,
            "metadata": _with(template.get("metadata"), "labels", labels),
            "spec": _with(template["spec"], "nodeSelector", selector),
        }
        made["spec"] = {**spec, "template": inner}
    return made


def _with(whole: Any, key: str, more: Mapping[str, str]) -> dict[str, Any]:
    found = dict(whole or {})
    if more:
        found[key] = {**(found.get(key) or {}), **more}
    return found
