"""What queues are charged for shares of GPUs that are asked for by memory.

So much memory is charged as the part that it is of the smallest GPU memory that a node of the
cluster names, rounded up to thousandths, and never more than one GPU; as a whole GPU while no
node names any. One price everywhere: it does not hang by where the pod ends up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from weakref import WeakValueDictionary, ref

import attrs
from msgspec import structs

from gpusched.api.devices.gpu_share import gpu_memory_of_labels, shared_resource
from gpusched.api.jobs.job import Job
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import DEVICE
from gpusched.api.pod.pod import Pod, PodClass


class GpuCharges:
    """Follows the nodes; ``smallest`` is in bytes, 0 while no node tells."""

    def __init__(self) -> None:
        self.smallest = 0
        self._memory: dict[str, int] = {}
        self._counts: Counter[int] = Counter()
        self._priced: WeakValueDictionary[str, PodClass] = WeakValueDictionary()
        self._plain: dict[str, tuple[ref[PodClass], PodClass]] = {}
        """By digest, priced classes of pods that exist, and the classes that they were made of."""

    def put_node(self, node: str, labels: Mapping[str, str]) -> bool:
        """A node has these labels; whether prices changed by that."""
        return self._set_memory(node, gpu_memory_of_labels(labels))

    def drop_node(self, node: str) -> bool:
        """A node is gone; whether prices changed by that."""
        return self._set_memory(node, 0)

    def price_class(self, pod_class: PodClass) -> PodClass:
        """The class with its price of now among its requests; most are returned as they are."""
        share = pod_class.share
        if share is None or not share.memory:
            return pod_class
        made = self._plain.get(pod_class.digest)
        if made is not None:
            pod_class = made[1]
        if not self.smallest:
            return pod_class
        known = self._priced.get(pod_class.digest)
        if known is None:
            price = share.thousandths_of(self.smallest) or DEVICE
            digest = blake2b(f"{pod_class.digest} {price}".encode(), digest_size=16).hexdigest()
            requests = pod_class.requests.replaced_by(Resources.of({shared_resource(): price}))
            known = attrs.evolve(pod_class, requests=requests, digest=digest)
            self._priced[pod_class.digest] = known
            self._plain[digest] = (ref(known, partial(self._forget_class, digest)), pod_class)
        return known

    def _forget_class(self, digest: str, priced: ref[PodClass]) -> None:
        made = self._plain.get(digest)
        if made is not None and made[0] is priced:
            del self._plain[digest]

    def on_pod(self, pod: Pod) -> Pod:
        """The pod with the price of now."""
        priced = self.price_class(pod.pod_class)
        return pod if priced is pod.pod_class else structs.replace(pod, pod_class=priced)

    def on_job(self, job: Job) -> Job:
        """The Job with the price of now for the pods that it would make."""
        template = job.template
        priced = None if template is None else self.price_class(template.pod_class)
        if template is None or priced is None or priced is template.pod_class:
            return job
        return attrs.evolve(job, template=attrs.evolve(template, pod_class=priced))

    def _set_memory(self, node: str, memory: int) -> bool:
        before = self._memory.get(node, 0)
        if before == memory:
            return False
        if before:
            self._counts[before] -= 1
            if not self._counts[before]:
                del self._counts[before]
        self._memory.pop(node, None)
        if memory:
            self._memory[node] = memory
            self._counts[memory] += 1
        smallest = min(self._counts, default=0)
        if smallest == self.smallest:
            return False
        self.smallest = smallest
        self._priced.clear()
        return True
