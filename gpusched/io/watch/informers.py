"""Which kinds are read, from where, and where in the cache each goes."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from gpusched import API_VERSION
from gpusched.api.foreign.kinds import DEVICE_KINDS, DYNAMIC_DEVICE_KINDS, OWN, ForeignKind
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.jobs.job import Job
from gpusched.api.meta.codec import DEFECT
from gpusched.api.meta.identity import (
    UID,
    ObjectKey,
    Rejected,
    RejectedPodUsage,
    is_older_version,
)
from gpusched.api.node.node import Node
from gpusched.api.pod.pod import Pod
from gpusched.api.policy.kinds import (
    DisruptionBudget,
    Namespace,
    PriorityClass,
    ResourceQuota,
    Topology,
)
from gpusched.api.policy.reservation import AdvanceReservation
from gpusched.api.queue.queue import Queue
from gpusched.api.serializer.codecs import CODECS
from gpusched.api.volumes.volume import PersistentVolume, PersistentVolumeClaim, StorageClass
from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.cache.cache import Cache
from gpusched.cache.claimable.volume_stores import VolumeKindStore
from gpusched.cache.nodes.device_view import DeviceStore
from gpusched.cache.nodes.gpu_share_room import requests_beside_share
from gpusched.cache.store import StoreLayer
from gpusched.io.client.api_client import ApiClient
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.watch.kind_spec import KindSpec
from gpusched.io.watch.page_process import PageProcesses
from gpusched.io.watch.reflector import Reflector
from gpusched.io.workers.work_queue import OnContained, log_contained_fault

KINDS: Final = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "jobs": "/apis/batch/v1/jobs",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
    "resourcequotas": "/api/v1/resourcequotas",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
    "podgroups": f"/apis/{API_VERSION}/podgroups",
    "queues": f"/apis/{API_VERSION}/queues",
    "topologies": f"/apis/{API_VERSION}/topologies",
    "reservations": f"/apis/{API_VERSION}/reservations",
}
"""Collection paths by plural name."""
OPTIONAL: Final = frozenset({"resourcequotas", "reservations"})
"""Decisions go on without these where they may not be read, and it is told what is then not safe."""

SYSTEM: Final = "kube-system"
"""A namespace that is never deleted: its UID is as good as the cluster's."""
ROOM: Final = ("pods", "nodes")
"""Kinds whose loss of one event could give a GPU twice or not at all: looked at after each cut."""
GROUP: Final = API_VERSION.partition("/")[0]
_KINDS: Final[Mapping[type[Any], str]] = {
    Pod: "Pod",
    Node: "Node",
    Namespace: "Namespace",
    PodGroup: "PodGroup",
    Queue: "Queue",
    Topology: "Topology",
    AdvanceReservation: "Reservation",
    PriorityClass: "PriorityClass",
    DisruptionBudget: "PodDisruptionBudget",
    ResourceQuota: "ResourceQuota",
    Job: "Job",
    PersistentVolumeClaim: "PersistentVolumeClaim",
    PersistentVolume: "PersistentVolume",
    StorageClass: "StorageClass",
}
"""What Kubernetes calls the kinds, whatever they are called here."""
Put = Callable[[ObjectKey, Any], None]
Drop = Callable[[ObjectKey], None]


class KindEventHandler:
    """Passes one kind on to the cache, and reports what cannot be believed.

    Args:
        keys: of everything of this kind that the cache holds now.
        reject: told of each object that was rejected.
        find: what the cache has under a key, believed or not, for audits.
    """

    def __init__(
        self,
        put: Put,
        drop: Drop,
        *,
        keys: Callable[[], Collection[ObjectKey]],
        reject: Callable[[Rejected], None],
        find: Callable[[ObjectKey], Any] = lambda _key: None,
    ) -> None:
        self._put = put
        self._drop = drop
        self._keys = keys
        self._reject = reject
        self._find = find
        self.before: Callable[[Any], None] = _ignore
        """Told of each object before the cache is."""
        self.on_contained: OnContained = log_contained_fault
        """Told of an object that the cache failed to take in, by our own doing."""
        self.touched: set[ObjectKey] | None = None
        self._left_out: set[UID] = set()
        """Of objects that the cache could not take in any form; an audit does not miss them."""

    def replace(self, items: Sequence[Any]) -> None:
        """This is all there is: what is missing no longer exists, and what is known in just this version stays."""
        self.drop_missing(items)
        for item in items:
            if isinstance(item, Rejected) or self.fails(item) or not self.knows(item):
                self.apply("ADDED", item)

    def drop_missing(self, items: Sequence[Any]) -> None:
        """What is not among all that there is no longer exists."""
        listed = {_key(item) for item in items}
        for key in [key for key in self._keys() if key not in listed]:
            self._dropped(key)

    def apply(self, event_type: str, item: Any) -> None:
        """ADDED, MODIFIED or DELETED."""
        key = _key(item)
        if self.touched is not None:
            self.touched.add(key)
        if event_type == "DELETED":
            self._dropped(key)
            return
        self.before(item)
        self._left_out.discard(item.uid)
        try:
            self._put(key, item)
        except Exception as error:  # noqa: BLE001 - one object must not end what reads the others
            self.on_contained("taking in", error, key)
            self._put_rejected(item, error)
            return
        if isinstance(item, Rejected):
            self._reject(item)

    def _dropped(self, key: ObjectKey) -> None:
        try:
            self._drop(key)
        except Exception as error:  # noqa: BLE001 - as above
            self.on_contained("taking out", error, key)

    def _put_rejected(self, item: Any, error: Exception) -> None:
        """It counts as one that cannot be believed: what a pod holds stays charged."""
        rejected = rejected_for(item, error)
        try:
            self._put(rejected.key, rejected)
        except Exception as again:  # noqa: BLE001 - as if it were not there
            self.on_contained("taking in", again, rejected.key)
            self._dropped(rejected.key)
            if len(self._left_out) < limits.REPORTED_OBJECTS_MAX:
                self._left_out.add(rejected.uid)
        self._reject(rejected)

    # -- for audits --------------------------------------------------------------------------
    def key_of(self, item: Any) -> ObjectKey:
        """Key of the item in the cache."""
        return _key(item)

    def knows(self, item: Any) -> bool:
        """Whether the cache has the object in just this version."""
        if item.uid in self._left_out:
            return True
        known = self._find(_key(item))
        return known is not None and (known.uid, known.resource_version) == (
            item.uid,
            item.resource_version,
        )

    def fails(self, item: Any) -> bool:
        """Whether the cache has it as one that we failed to read or to take in."""
        if item.uid in self._left_out:
            return True
        known = self._find(_key(item))
        return isinstance(known, Rejected) and known.field == DEFECT

    def knows_newer(self, item: Any) -> bool:
        """Whether the cache has it in a newer version."""
        known = self._find(_key(item))
        return known is not None and is_older_version(item.resource_version, known.resource_version)

    def keys(self) -> list[ObjectKey]:
        """Of everything of this kind that the cache holds."""
        return list(self._keys())

    def drop(self, key: ObjectKey) -> None:
        """It no longer exists."""
        self._dropped(key)


def _ignore(_item: Any) -> None:
    """Nobody wants to know."""


def on_another_cluster(cache: Cache, restored: Callable[[str], None]) -> Callable[[Any], None]:
    """Notices that the API server is that of another cluster than it was.

    Args:
        cache: what was known.
        restored: told so in a sentence.
    """

    def look(item: Any) -> None:
        key = _key(item)
        known = cache.namespaces.items.get(key) if key.name == SYSTEM else None
        if known is not None and known.uid != item.uid:
            restored(
                f"namespace {SYSTEM} had UID {known.uid} and has {item.uid}: this is another "
                "cluster, or its etcd was made anew"
            )

    return look


def _key(item: Any) -> ObjectKey:
    namespace: str = getattr(item, "namespace", "")
    return item.key if isinstance(item, Rejected) else ObjectKey(namespace, item.name)


def rejected_for(item: Any, error: Exception) -> Rejected:
    """The object as one that the scheduler fails to take in."""
    if isinstance(item, Rejected):
        return item
    why = "the scheduler fails to take it in, which is a defect of the scheduler"
    pod = item if isinstance(item, Pod) else None
    return Rejected(
        kind=_KINDS.get(type(item), type(item).__name__),
        key=_key(item),
        uid=item.uid,
        resource_version=item.resource_version,
        field=DEFECT,
        why=f"{why}: {type(error).__name__}",
        generation=getattr(item, "generation", 0),
        charge=_charge(pod) if pod and pod.node else None,
        ours=isinstance(item, PodGroup | Queue | Topology | AdvanceReservation),
        scheduler=pod.scheduler if pod is not None else "",
        status=getattr(item, "status", b"{}"),
    )


def _charge(pod: Pod) -> RejectedPodUsage:
    requests, shared = requests_beside_share(pod.pod_class), pod.pod_class.share is not None
    return RejectedPodUsage(pod.node, requests, pod.slots, shared, pod.plan, pod.fence, pod.seal)


def _layer(
    layer: StoreLayer[Any] | VolumeKindStore[Any] | DeviceStore[Any],
) -> tuple[Any, Put, Drop]:
    return layer, layer.put, layer.drop


def make_foreign_event_handler(
    cache: Cache, kind: ForeignKind, reject: Callable[[str, Rejected], None]
) -> KindEventHandler:
    """A sink for a kind of another project.

    Args:
        cache: where everything goes.
        kind: a group, a queue or a workload.
        reject: told the name of the kind and the object that cannot be believed.
    """
    shelf: Any
    put: Put
    drop: Drop
    if kind.kind == COMPOSITE:
        shelf, put, drop = cache.composites, cache.put_composite, cache.drop_composite
    elif kind.source:
        layers = cache.foreign.groups if kind.kind == "PodGroup" else cache.foreign.queues
        shelf, put, drop = _layer(layers.layer(kind.source))
    elif kind.kind in DYNAMIC_DEVICE_KINDS:
        shelf, put, drop = _layer(cache.devices.shelves[kind.kind])
    elif kind.kind in DEVICE_KINDS:
        shelf, put, drop = _layer(cache.rows.shelves[kind.kind])
    else:
        shelf = cache.families.workloads[kind.kind]
        put = partial(cache.foreign.put_workload, kind.kind)
        drop = partial(cache.foreign.drop_workload, kind.kind)
    find = shelf.get
    if kind.kind == "ResourceClaim":
        claims = cache.devices.claims

        def find(key: ObjectKey) -> Any:
            """A claim as the watch showed it; what a write was answered may be newer."""
            return None if claims.awaits_watch(key) else claims.get(key)

    reject_one = partial(reject, kind.name)
    return KindEventHandler(put, drop, keys=shelf.keys, reject=reject_one, find=find)


def make_event_handlers(
    cache: Cache, reject: Callable[[str, Rejected], None]
) -> dict[str, KindEventHandler]:
    """A sink for each kind, by plural name.

    Args:
        cache: where everything goes.
        reject: told the plural name and the object that cannot be believed.
    """
    stores: dict[str, tuple[Any, Put, Drop]] = {
        "namespaces": (cache.namespaces, cache.put_namespace, cache.drop_namespace),
        "jobs": (cache.jobs, cache.put_job, cache.drop_job),
        "podgroups": _layer(cache.foreign.groups.layer(OWN)),
        "queues": _layer(cache.foreign.queues.layer(OWN)),
        "topologies": (cache.topologies, cache.topologies.put, cache.topologies.drop),
        "reservations": (cache.reservations, cache.reservations.put, cache.reservations.drop),
        "priorityclasses": (cache.priorities, cache.put_priority, cache.drop_priority),
        "persistentvolumeclaims": _layer(cache.storage.claims),
        "persistentvolumes": _layer(cache.storage.volumes),
        "storageclasses": _layer(cache.storage.classes),
        "resourcequotas": (cache.quotas, cache.put_quota, cache.drop_quota),
        "poddisruptionbudgets": (cache.budgets, cache.budgets.put, cache.budgets.drop),
    }

    def reject_of_kind(kind: str) -> Callable[[Rejected], None]:
        return lambda rejected: reject(kind, rejected)

    found = {
        kind: KindEventHandler(
            put, drop, keys=shelf.keys, reject=reject_of_kind(kind), find=shelf.get
        )
        for kind, (shelf, put, drop) in stores.items()
    }
    found["pods"] = KindEventHandler(
        lambda _key, item: cache.put_pod(item),
        cache.drop_pod,
        keys=lambda: [*cache.pods, *cache.charged],
        reject=reject_of_kind("pods"),
        find=lambda key: cache.pods.get(key) or cache.charged.get(key),
    )
    found["nodes"] = KindEventHandler(
        lambda _key, item: cache.put_node(item),
        lambda key: cache.drop_node(key.name),
        keys=lambda: [
            ObjectKey("", name) for name in (*cache.rows.all_names(), *cache.rejected_nodes)
        ],
        reject=reject_of_kind("nodes"),
        find=lambda key: cache.rows.find_any(key.name) or cache.rejected_nodes.get(key.name),
    )
    return found


def make_reflectors(
    api: ApiClient,
    cache: Cache,
    *,
    clock: Clock,
    rng: random.Random,
    telemetry: Telemetry,
    reject: Callable[[str, Rejected], None],
    restored: Callable[[str], None],
    on_contained: OnContained = log_contained_fault,
) -> tuple[list[Reflector[Any]], list[tuple[str, Reflector[Any], KindEventHandler]]]:
    """One reflector a kind, not yet running; and those that must be audited, with their sinks."""
    into = make_event_handlers(cache, reject)
    into["namespaces"].before = on_another_cluster(cache, restored)
    made = {
        kind: Reflector(
            api,
            KindSpec(
                f"{kind}.{GROUP}" if API_VERSION in path else kind, path, optional=kind in OPTIONAL
            ),
            codec=CODECS[kind],
            sink=into[kind],
            clock=clock,
            rng=rng,
            telemetry=telemetry,
            drop_missing=into[kind].drop_missing,
            beside=PageProcesses if kind == "pods" else None,
        )
        for kind, path in KINDS.items()
    }
    for kind, reflector in made.items():
        reflector.on_contained = into[kind].on_contained = on_contained
    return list(made.values()), [
        (kind, made[kind], into[kind]) for kind in KINDS if kind not in OPTIONAL
    ]
