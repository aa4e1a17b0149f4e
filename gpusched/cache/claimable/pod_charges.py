"""What pods and Jobs are to placement and queues beyond their specs: claims as they stand, devices, prices.

A pod of another charge, or with other claims, is of another class. Prices of shares of GPUs follow the
nodes, claims and devices follow what the API shows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from gpusched.api.devices.dynamic.catalog import DeviceCatalog
from gpusched.api.devices.dynamic.claims import ResourceClaim
from gpusched.api.gang.pod_group import PodGroup
from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.pod.pod import Pod
from gpusched.cache.claimable.resolved_claims import ResolvedClaims
from gpusched.cache.claimable.served_resources import ServedResources
from gpusched.cache.queues.device_charges import DeviceCharges
from gpusched.cache.queues.gpu_charges import GpuCharges

Repriced = tuple[Pod, Pod]
"""A pod as it is now, and as it was."""


class PodCharges:
    """See the module.

    Args:
        is_ours: whether pods of a UID are charged to a queue of ours.
        groups: PodGroups by key.
        claims: by key, as the API shows them.
    """

    def __init__(
        self,
        is_ours: Callable[[UID], bool],
        groups: Mapping[ObjectKey, PodGroup],
        claims: Mapping[ObjectKey, ResourceClaim],
    ) -> None:
        self.prices = GpuCharges()
        self.devices = DeviceCharges(is_ours)
        self.claims = ResolvedClaims(groups, claims)
        self.served = ServedResources()

    def on_pod(self, pod: Pod) -> Pod:
        """The pod with its claims as they stand, and with what its queue is charged for it."""
        if pod.extended:
            self.served.note_requests(pod.extended)
        if not pod.pod_class.claims and not (pod.extended and self.served.classes):
            return self.prices.on_pod(pod)
        plain = self.claims.resolve_claims(self.devices.plain_pod(pod))
        if not plain.pod_class.claims:
            self.devices.drop_pod(pod)
            return self.prices.on_pod(plain)
        return self.devices.on_pod(self.prices.on_pod(plain))

    def drop_pod(self, pod: Pod) -> None:
        """A pod is gone."""
        if pod.pod_class.claims:
            self.devices.drop_pod(pod)
        self.served.forget(pod.uid)

    def on_job(self, job: Job) -> Job:
        """The Job with the same of the pods that it would make."""
        if job.template is not None and job.template.extended:
            self.served.note_requests(job.template.extended)
            job = self.claims.resolve_template(self.devices.plain_job(job))
        return self.devices.on_job(self.prices.on_job(job))

    def reprice_pods(self, pods: Iterable[Pod]) -> Iterator[Repriced]:
        """Those of some pods that are others now."""
        for pod in pods:
            priced = self.on_pod(pod)
            if priced is not pod:
                yield priced, pod

    def follow_catalog(
        self, catalog: DeviceCatalog, pods: Mapping[UID, Pod], jobs: Mapping[ObjectKey, Job]
    ) -> tuple[Iterator[Repriced], list[tuple[ObjectKey, Job]]]:
        """Follow devices and claims: pods that are charged otherwise, and Jobs to be looked at again.

        Args:
            catalog: of now.
            pods: all of them by UID.
            jobs: all of them by key.
        """
        recharged, repriced = self.devices.follow_catalog(catalog)
        found = [pods[uid] for uid in recharged if uid in pods]
        again = [
            (key, job)
            for key, job in (jobs.items() if repriced else ())
            if self.devices.on_job(job) is not job
        ]
        priced = ((self.devices.with_charge(pod), pod) for pod in found)
        return priced, again

    def serve(
        self, catalog: DeviceCatalog, show_nodes: Callable[[Iterable[str] | None], None]
    ) -> bool:
        """Follow which extended resources devices serve; whether other classes stand for them now.

        Args:
            catalog: of now.
            show_nodes: told nodes that have other numbers of such devices, None for all.
        """
        reclassed, nodes = self.served.follow_catalog(catalog, self.devices.pools)
        if nodes is None or nodes:
            show_nodes(nodes)
            self.devices.leave_out(self.served.by_node)
        if reclassed:
            self.claims.served = self.served.classes
        return reclassed
