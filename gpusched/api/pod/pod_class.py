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

from gpusched.api.affinity import decode
from gpusched.api.devices.dynamic.claims import ExtendedRequest, PodClaim
from gpusched.api.devices.gpu_share import GpuShare, shared_resource
from gpusched.api.devices.slots import accelerator, gpu_request
from gpusched.api.meta.fields import decode_part
from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES, gpu_resources
from gpusched.api.meta.identity import InvalidObject
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import DEVICE
from gpusched.api.pod import requests
from gpusched.api.pod import wire as pod_wire
from gpusched.api.pod.extended_requests import has_extended, read_extended_requests
from gpusched.api.pod.pod import PodClass
from gpusched.api.pod.requests import NO_GRANTS, PodGrants, read_grants
from gpusched.base.limits import CLASS_BYTES_MAX

_SIDECAR: Final = "Always"
_CLAIMS: Final = msgspec.json.Decoder(list[pod_wire.WirePodClaim])
_ENTRY_BYTES: Final = 512
"""What an entry costs beside the text of its key, by estimate."""

_Key = tuple[bytes | bool | str, ...]
_SpecContent = tuple[PodClass, tuple[ExtendedRequest, ...]]


class PodClasses:
    """The interning table; one for each process, used in one thread."""

    def __init__(self) -> None:
        self._by_bytes: dict[_Key, _SpecContent] = {}
        self._bytes = 0
        self._by_digest: WeakValueDictionary[str, PodClass] = WeakValueDictionary()

    def class_of(
        self,
        spec: pod_wire.PodSpec,
        status: pod_wire.PodStatus | None = None,
        share: GpuShare | None = None,
        *,
        namespace: str = "",
    ) -> PodClass:
        """The class of a pod with this spec; see ``content_of``."""
        return self.content_of(spec, status, share, namespace=namespace)[0]

    def content_of(
        self,
        spec: pod_wire.PodSpec,
        status: pod_wire.PodStatus | None = None,
        share: GpuShare | None = None,
        *,
        namespace: str = "",
    ) -> _SpecContent:
        """The class of a pod with this spec, and its requests for extended resources.

        Args:
            spec: of the pod.
            status: of a bound pod, whose containers may have been resized in place.
            share: that its annotations ask for.
            namespace: of the pod; of claims for devices, where it has any.

        Raises:
            InvalidObject: a part of the spec that cannot be believed.
        """
        granted = read_grants(status)
        key = (*_key(spec), *granted.parts) if granted else _key(spec)
        gpus = gpu_resources()
        if gpus is not DEFAULT_GPU_RESOURCES:
            key = (*key, *gpus.names, gpus.main.name, *gpus.slice_prefixes)
        if share is not None:
            key = (*key, f"share {share.thousandths} {share.memory}")
        if spec.resource_claims:
            key = (*key, namespace)
        known = self._by_bytes.get(key)
        if known is not None:
            return known
        kept = self.intern(_parse(spec, granted, share, namespace))
        extended = read_extended_requests(spec) if has_extended(kept.requests) else ()
        self._remember(key, (kept, extended))
        return kept, extended

    def intern(self, made: PodClass) -> PodClass:
        """The one object for classes of this content."""
        return self._by_digest.setdefault(made.digest, made)

    def _remember(self, key: _Key, content: _SpecContent) -> None:
        size = _ENTRY_BYTES + sum(len(part) for part in key if isinstance(part, bytes))
        if self._bytes + size > CLASS_BYTES_MAX:
            self._by_bytes.clear()
            self._bytes = 0
        self._by_bytes[key] = content
        self._bytes += size


def _key(spec: pod_wire.PodSpec) -> _Key:
    rules = (
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
        spec.resource_claims,
        spec.resources,
        spec.overhead,
    )
    parts: list[bytes | bool | str] = [bytes(raw) if raw else b"" for raw in rules]
    parts.append(has_claims(spec))
    for each in spec.containers or ():
        ports = each.ports
        parts += (each.name, bytes(each.resources), bytes(ports) if ports else b"")
    for each in spec.init_containers or ():
        # The flag also tells where the init containers begin.
        parts.append(each.restart_policy == _SIDECAR)
        parts += (each.name, bytes(each.resources), bytes(each.ports))
    return tuple(parts)


def read_pod_requests(
    spec: pod_wire.PodSpec, status: pod_wire.PodStatus | None = None
) -> Resources:
    """What a pod with this spec takes from its node; ``status`` of a bound pod.

    Raises:
        InvalidObject: a part that cannot be read.
    """
    return _requests(spec, read_grants(status))


def _requests(spec: pod_wire.PodSpec, granted: PodGrants | None) -> Resources:
    given = granted or NO_GRANTS
    return requests.pod_requests(
        containers=[
            requests.ContainerNeed(bytes(each.resources), grant=given.grant_of(each.name))
            for each in spec.containers or ()
        ],
        init_containers=[
            requests.ContainerNeed(
                bytes(each.resources),
                each.restart_policy == _SIDECAR,
                grant=given.grant_of(each.name),
            )
            for each in spec.init_containers or ()
        ],
        pod_level=bytes(spec.resources),
        overhead=bytes(spec.overhead),
        pod_grant=given.pod,
    )


def _parse(
    spec: pod_wire.PodSpec, granted: PodGrants | None, share: GpuShare | None, namespace: str
) -> PodClass:
    needs = _requests(spec, granted)
    claims = _device_claims(spec) if spec.resource_claims else ()
    gpu, gpus = gpu_request(needs)
    if share is not None:
        needs, gpu = add_share_requests(needs, share), shared_resource()
    affinity = decode.parse_affinity(bytes(spec.affinity))
    hard, soft = decode.parse_spread(bytes(spec.topology_spread_constraints))
    ports = [bytes(each.ports) for each in spec.containers or ()]
    ports += [
        bytes(each.ports) for each in spec.init_containers or () if each.restart_policy == _SIDECAR
    ]
    made = PodClass(
        digest="",
        requests=needs,
        gpu=gpu,
        gpus=gpus,
        node_selector=decode.parse_node_selector(bytes(spec.node_selector)),
        affinity=affinity.required,
        preferred=affinity.preferred,
        tolerations=decode.parse_tolerations(bytes(spec.tolerations)),
        unsupported="",
        pod_affinity=affinity.pod_affinity,
        pod_anti_affinity=affinity.pod_anti_affinity,
        preferred_pod_affinity=affinity.preferred_pod_affinity,
        preferred_pod_anti_affinity=affinity.preferred_pod_anti_affinity,
        spread=hard,
        soft_spread=soft,
        ports=decode.parse_host_ports(ports),
        uses_claims=has_claims(spec),
        aligned=_aligned(spec),
        share=share,
        claims=claims,
        namespace=namespace if claims else "",
    )
    return attrs.evolve(made, digest=class_digest(made))


def _device_claims(spec: pod_wire.PodSpec) -> tuple[PodClaim, ...]:
    found = decode_part(_CLAIMS, bytes(spec.resource_claims), field="spec.resourceClaims") or ()
    return tuple(
        PodClaim(
            name=each.name,
            claim=each.resource_claim_name or "",
            template=each.resource_claim_template_name or "",
        )
        for each in found
    )


def _aligned(spec: pod_wire.PodSpec) -> tuple[Resources, ...]:
    """Of containers and sidecars; a pod whose needs are given for all of them is not looked at."""
    if spec.resources:
        return ()
    stay = [*(spec.containers or ())]
    stay += [each for each in spec.init_containers or () if each.restart_policy == _SIDECAR]
    return requests.read_aligned_requests(bytes(each.resources) for each in stay)


def add_share_requests(needs: Resources, share: GpuShare) -> Resources:
    """Requests with a share, by memory a whole GPU until the size of GPUs is known.

    Raises:
        InvalidObject: it asks for GPUs beside its share.
    """
    named = [name for name, amount in needs.items if amount and accelerator(name)]
    if named:
        raise InvalidObject(
            "spec.containers.resources",
            f"asks for {named[0]}, and its annotations for a share of a GPU: leave one of them out",
        )
    return needs.plus(Resources.of({shared_resource(): share.thousandths or DEVICE}))


def has_claims(spec: pod_wire.PodSpec) -> bool:
    """Whether any of its volumes is a claim."""
    for each in spec.volumes or ():
        if each.persistent_volume_claim is not None or each.ephemeral is not None:
            return True
    return False


def class_digest(content: PodClass) -> str:
    """Hexadecimal digest of all fields of a pod class whose own digest is still empty."""
    fields = attrs.astuple(content)
    if (
        not content.claims
    ):  # pods without claims are the classes that they were before there were any
        fields = fields[:-3]
    elif content.charge is None:
        fields = fields[:-1]
    canonical = msgspec.json.encode(fields)
    return hashlib.blake2b(canonical, digest_size=16).hexdigest()
