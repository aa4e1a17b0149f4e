"""Clusters with devices, and gangs whose pods claim them."""

from __future__ import annotations

import json

import attrs
import msgspec
import pytest

from gpusched.api.devices.dynamic.claims import PodClaim
from gpusched.api.devices.dynamic.decode import CODECS
from gpusched.api.meta.identity import ObjectKey
from gpusched.testing import entities

ROOT = "resource.kubernetes.io/pcieRoot"


class Devices:
    """Objects of resource.k8s.io in the cache of a ``Given``."""

    def __init__(self, given):
        self.given = given

    def put(self, kind, name, *, namespace="", **body):
        """An object as the API has it."""
        metadata = {"name": name, "uid": f"{kind}-{name}", "resourceVersion": "1"}
        if namespace:
            metadata["namespace"] = namespace
        entity = CODECS[kind].entity_of(json.dumps({"metadata": metadata, **body}).encode())
        self.given.cache.devices.shelves[kind].put(ObjectKey(namespace, name), entity)
        return self

    def on_node(self, node, devices, *, driver="gpu.example.com", counters=()):
        """One complete pool of a node."""
        spec = {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        }
        if counters:
            spec["sharedCounters"] = list(counters)
        return self.put("ResourceSlice", f"{node}-{driver}", spec=spec)

    def a_class(self, name, expression):
        """A DeviceClass with one selector."""
        return self.put(
            "DeviceClass", name, spec={"selectors": [{"cel": {"expression": expression}}]}
        )

    def template(self, name, *requests, constraints=()):
        """A template of the namespace ``default``."""
        claim = {"devices": {"requests": list(requests), "constraints": list(constraints)}}
        return self.put("ResourceClaimTemplate", name, namespace="default", spec={"spec": claim})

    def gang(self, name, pods, *, template, **fields):
        """A gang whose pods have a claim each, made from a template by the claim controller."""
        queue = {"queue": fields["queue"]} if "queue" in fields else {}
        self.given.group(name, min_member=pods, **queue)
        for number in range(pods):
            self.pod(f"{name}-{number}", group=name, template=template, rank=number, **fields)
        return self

    def ends(self, *names):
        """Pods that are gone, with their claims: the garbage collector has been there."""
        for name in names:
            self.given.cache.devices.claims.drop(ObjectKey("default", f"{name}-claim"))
        return self

    def pod(self, name, *, template, made=True, **fields):
        """A pod with one claim; ``made`` says whether the claim controller has seen it."""
        claim = f"{name}-claim"
        held = self.given.cache.devices.templates.items[ObjectKey("default", template)]
        if made:
            entity = CODECS["ResourceClaim"].entity_of(
                json.dumps(
                    {
                        "metadata": {
                            "name": claim, "namespace": "default", "uid": claim,
                            "resourceVersion": "1",
                        }
                    }
                ).encode()
            )  # fmt: skip
            entity = attrs.evolve(entity, spec=held.spec)
            self.given.cache.devices.claims.put(ObjectKey("default", claim), entity)
        about = {
            key: fields.pop(key)
            for key in ("group", "rank", "queue", "priority", "created")
            if key in fields
        }
        pod_class = entities.pod_class(
            claims=(PodClaim(name="c", template=template),), namespace="default", **fields
        )
        pod = entities.pod(name, pod_class, version=self.given._next(), **about)
        named = (("c", claim),) if made else ()
        self.given.cache.put_pod(msgspec.structs.replace(pod, generated_claims=named))
        return self


@pytest.fixture
def devices(given):
    """Classes ``gpu`` and ``nic``, and nothing else."""
    found = Devices(given)
    found.a_class("gpu", 'device.driver == "gpu.example.com"')
    return found.a_class("nic", 'device.driver == "nic.example.com"')


def gpu(number, **more):
    """A GPU with its PCIe root."""
    return {"name": f"gpu-{number}", "attributes": {ROOT: {"string": f"pci{number // 2}"}}, **more}


def nic(number):
    """A NIC, one for each two GPUs."""
    return {"name": f"nic-{number}", "attributes": {ROOT: {"string": f"pci{number}"}}}


def exactly(name, device_class, count=1):
    """A request for some devices of a class."""
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count}}
