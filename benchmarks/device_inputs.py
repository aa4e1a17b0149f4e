"""Nodes whose GPUs and NICs are devices, and pods that claim a pair of them under one PCIe root."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.inputs import GPUS_A_NODE, NAMESPACE, Obj, node, pod

API: Final = "resource.k8s.io/v1"
GPU_DRIVER: Final = "gpu.nvidia.com"
NIC_DRIVER: Final = "dra.net"
ROOT: Final = "resource.kubernetes.io/pcieRoot"
NICS_A_NODE: Final = 2
TEMPLATE: Final = "gpu-and-nic"
CLAIM: Final = "pair"
_ROOTS: Final = 2


def node_of_devices(index: int) -> Obj:
    """A node whose GPUs the API knows as devices alone."""
    made = node(index)
    for amounts in (made["status"]["capacity"], made["status"]["allocatable"]):
        amounts.pop("nvidia.com/gpu", None)
    return made


def gpu_device(name: str, number: int) -> Obj:
    """One GPU of a node as NVIDIA's driver publishes it: what it is, and what only it has."""
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{name}-{number:04d}-4b1c-4d2e-9f00"},
            "productName": {"string": "NVIDIA H100 80GB HBM3"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Hopper"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "driverVersion": {"version": "580.65.6"},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{number:02x}:00.0"},
            ROOT: {"string": _root(number, GPUS_A_NODE)},
        },
        "capacity": {"memory": {"value": "81559Mi"}},
    }


def nic_device(name: str, number: int, *, shareable: bool = False) -> Obj:
    """One NIC of a node; pods share it where it is ``shareable``."""
    made: Obj = {
        "name": f"nic-{number}",
        "attributes": {
            "dra.net/ifName": {"string": f"eth{number}"},
            "dra.net/mac": {
                "string": f"02:00:{name[-5:-3]}:{name[-3:-1]}:{name[-1]}0:{number:02x}"
            },
            "dra.net/rdma": {"bool": True},
            "dra.net/mtu": {"int": 9000},
            ROOT: {"string": _root(number, NICS_A_NODE)},
        },
    }
    if shareable:
        made["allowMultipleAllocations"] = True
    return made


def _root(number: int, devices: int) -> str:
    return f"pci0000:{number * _ROOTS // devices:02x}"


def slices(index: int, *, shareable_nics: bool = False, gpus: int = GPUS_A_NODE) -> list[Obj]:
    """What both drivers publish for one node."""
    name = f"node-{index:05d}"
    cards = [gpu_device(name, number) for number in range(gpus)]
    nics = [nic_device(name, number, shareable=shareable_nics) for number in range(NICS_A_NODE)]
    return [_slice(name, GPU_DRIVER, cards), _slice(name, NIC_DRIVER, nics)]


def _slice(node_name: str, driver: str, devices: list[Obj]) -> Obj:
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node_name}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def classes() -> list[Obj]:
    """One class for GPUs and one for NICs."""
    texts = {
        GPU_DRIVER: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'",
        NIC_DRIVER: "device.driver == 'dra.net' && device.attributes['dra.net'].rdma",
    }
    return [
        {
            "apiVersion": API,
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": text}}]},
        }
        for name, text in texts.items()
    ]


def claim_spec() -> Obj:
    """One GPU and one NIC under one root."""
    return {
        "devices": {
            "requests": [
                {"name": "gpu", "exactly": {"deviceClassName": GPU_DRIVER}},
                {"name": "nic", "exactly": {"deviceClassName": NIC_DRIVER}},
            ],
            "constraints": [{"requests": ["gpu", "nic"], "matchAttribute": ROOT}],
        }
    }


def template() -> Obj:
    """The template that all pods name."""
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE, "namespace": NAMESPACE},
        "spec": {"spec": claim_spec()},
    }


def claimant(name: str) -> Obj:
    """A pod with a claim of its own."""
    made: dict[str, Any] = pod(name)
    resources = made["spec"]["containers"][0]["resources"]
    resources["requests"].pop("nvidia.com/gpu")
    del resources["limits"]
    resources["claims"] = [{"name": CLAIM}]
    made["spec"]["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": TEMPLATE}]
    return made


def claim_of(pod_name: str) -> Obj:
    """The claim that the claim controller makes for such a pod."""
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": f"{pod_name}-{CLAIM}", "namespace": NAMESPACE},
        "spec": claim_spec(),
    }
