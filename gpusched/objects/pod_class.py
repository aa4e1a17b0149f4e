"""Interning of pod classes: pods equal in all that placement reads share one object.

Two levels. The raw bytes of the relevant parts of a spec are looked up first: pods of one
template repeat them, and nothing is parsed. Bytes seen for the first time are parsed, and the
canonical content decides, so that ``1Gi`` and ``1024Mi`` are the same class. The first level is
dropped when it grows too large; the second holds every class as long as a pod has it.
"""

from __future__ import annotations

import hashlib
from typing import Final
from weakref import WeakValueDictionary

import attrs
import msgspec

from gpusched.limits import CLASS_BYTES_MAX
from gpusched.objects import requests, rules, wire
from gpusched.objects.pod import PodClass
from gpusched.objects.resources import Resources
from gpusched.objects.slot import gpu_request

_SIDECAR: Final = "Always"
_ENTRY_BYTES: Final = 512
"""What an entry costs beside the text of its key, by estimate."""

_Key = tuple[bytes | bool, ...]


class PodClasses:
    """The interning table; one for each process, used in one thread."""

    def __init__(self) -> None:
        self._by_bytes: dict[_Key, PodClass] = {}
        self._bytes = 0
        self._by_digest: WeakValueDictionary[str, PodClass] = WeakValueDictionary()

    def of(self, spec: wire.PodSpec) -> PodClass:
        """The class of a pod with this spec.

        Raises:
            Disbelief: a part of the spec that cannot be believed.
        """
        key = _key(spec)
        known = self._by_bytes.get(key)
        if known is not None:
            return known
        made = _parse(spec)
        kept = self._by_digest.setdefault(made.digest, made)
        self._remember(key, kept)
        return kept

    def _remember(self, key: _Key, pod_class: PodClass) -> None:
        size = _ENTRY_BYTES + sum(len(part) for part in key if isinstance(part, bytes))
        if self._bytes + size > CLASS_BYTES_MAX:
            self._by_bytes.clear()
            self._bytes = 0
        self._by_bytes[key] = pod_class
        self._bytes += size


def _key(spec: wire.PodSpec) -> _Key:
    parts: list[bytes | bool] = [
        bytes(spec.node_selector),
        bytes(spec.affinity),
        bytes(spec.tolerations),
        bytes(spec.topology_spread_constraints),
        bytes(spec.resource_claims),
        bytes(spec.resources),
        bytes(spec.overhead),
    ]
    for each in spec.containers or ():
        parts.append(bytes(each.resources))
        parts.append(bytes(each.ports))
    for each in spec.init_containers or ():
        # The flag also tells where the init containers begin.
        parts.append(each.restart_policy == _SIDECAR)
        parts.append(bytes(each.resources))
        parts.append(bytes(each.ports))
    return tuple(parts)


def requests_of(spec: wire.PodSpec) -> Resources:
    """What a pod with this spec takes from its node.

    Raises:
        Disbelief: a part that cannot be read.
    """
    return requests.pod_requests(
        containers=[
            requests.ContainerNeed(bytes(each.resources)) for each in spec.containers or ()
        ],
        init_containers=[
            requests.ContainerNeed(bytes(each.resources), each.restart_policy == _SIDECAR)
            for each in spec.init_containers or ()
        ],
        pod_level=bytes(spec.resources),
        overhead=bytes(spec.overhead),
    )


def _parse(spec: wire.PodSpec) -> PodClass:
    needs = requests_of(spec)
    gpu, gpus = gpu_request(needs)
    affinity, preferred, by_affinity = rules.parse_affinity(bytes(spec.affinity))
    tolerations, by_toleration = rules.parse_tolerations(bytes(spec.tolerations))
    ports = [bytes(each.ports) for each in (spec.containers or [])]
    ports += [bytes(each.ports) for each in (spec.init_containers or [])]
    by_spread = rules.forbids_by_spread(bytes(spec.topology_spread_constraints))
    by_ports = rules.uses_host_ports(ports)
    by_claims = rules.uses_claims(bytes(spec.resource_claims))
    made = PodClass(
        digest="",
        requests=needs,
        gpu=gpu,
        gpus=gpus,
        node_selector=rules.parse_node_selector(bytes(spec.node_selector)),
        affinity=affinity,
        preferred=preferred,
        tolerations=tolerations,
        unsupported=by_affinity or by_spread or by_ports or by_claims or by_toleration,
    )
    return attrs.evolve(made, digest=_digest(made))


def _digest(content: PodClass) -> str:
    canonical = msgspec.json.encode(attrs.astuple(content))
    return hashlib.blake2b(canonical, digest_size=16).hexdigest()
