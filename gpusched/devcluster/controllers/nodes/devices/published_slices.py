"""The ResourceSlices and DeviceClasses that drivers publish for a node: pure, in the drivers' own names.

Names and attributes of GPUs, partitions and channels are those of NVIDIA's driver
(dra-driver-nvidia-gpu: ``gpu.nvidia.com``, ``compute-domain.nvidia.com``), those of NICs DRANET's
(``dra.net``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from gpusched.devcluster.controllers.nodes.devices.device_entries import DeviceEntry
from gpusched.devcluster.controllers.nodes.devices.gpu_models import (
    ENGINES,
    MODELS,
    GpuModel,
    MigProfile,
)

Obj = dict[str, Any]

GPU_DRIVER: Final = "gpu.nvidia.com"
DOMAIN_DRIVER: Final = "compute-domain.nvidia.com"
NIC_DRIVER: Final = "dra.net"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
_API: Final = "resource.k8s.io/v1"
_DEVICES_MAX: Final = 128
_PARTITIONS_MAX: Final = 64
"""Devices of a slice in which some consume counters."""
_COUNTER_SETS_MAX: Final = 8
_DRIVER_VERSION: Final = "580.95.5"
_CUDA_VERSION: Final = "13.0.0"


def slices_of(node: str, entries: Sequence[DeviceEntry], generation: int = 1) -> list[Obj]:
    """The ResourceSlices of a node: a pool of the node's name for each driver.

    Args:
        node: its name.
        entries: the devices that it has.
        generation: of the pools.
    """
    roots = _roots(entries)
    counters, gpus = _gpus(node, entries, roots)
    width = _PARTITIONS_MAX if counters else _DEVICES_MAX
    parts: list[tuple[str, Obj]] = [
        (GPU_DRIVER, {"sharedCounters": sets}) for sets in _batches(counters, _COUNTER_SETS_MAX)
    ]
    parts += [(GPU_DRIVER, {"devices": part}) for part in _batches(gpus, width)]
    for driver, devices in (
        (NIC_DRIVER, _nics(entries, roots)),
        (DOMAIN_DRIVER, _channels(entries)),
    ):
        parts += [(driver, {"devices": part}) for part in _batches(devices, _DEVICES_MAX)]
    drivers = [driver for driver, _ in parts]
    made: list[Obj] = []
    for i, (driver, content) in enumerate(parts):
        spec = {
            "driver": driver,
            "nodeName": node,
            "pool": {
                "name": node,
                "generation": generation,
                "resourceSliceCount": drivers.count(driver),
            },
            **content,
        }
        name = f"{node}-{driver}-{drivers[:i].count(driver)}"
        head = {"apiVersion": _API, "kind": "ResourceSlice"}
        made.append({**head, "metadata": {"name": name}, "spec": spec})
    return made


def classes_of(entries: Iterable[DeviceEntry]) -> list[Obj]:
    """The DeviceClasses that come with the drivers of these devices."""
    kinds = {entry.kind for entry in entries}
    made: list[Obj] = []
    if kinds & {"gpu", "mig"}:
        made += [
            _class("gpu.nvidia.com", GPU_DRIVER, "type == 'gpu'"),
            _class("mig.nvidia.com", GPU_DRIVER, "type == 'mig'"),
        ]
    if "nic" in kinds:
        made.append(_class("dranet", NIC_DRIVER))
    if "channels" in kinds:
        made += [
            _class("compute-domain-daemon.nvidia.com", DOMAIN_DRIVER, "type == 'daemon'"),
            _class(
                "compute-domain-default-channel.nvidia.com",
                DOMAIN_DRIVER,
                "type == 'channel'",
                "id == 0",
            ),
        ]
    return made


def _batches(items: Sequence[Obj], size: int) -> Iterator[list[Obj]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def _class(name: str, driver: str, *conditions: str) -> Obj:
    texts = [f"device.driver == '{driver}'"]
    texts += [f"device.attributes['{driver}'].{condition}" for condition in conditions]
    return {
        "apiVersion": _API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": " && ".join(texts)}}]},
    }


def _roots(entries: Iterable[DeviceEntry]) -> int:
    """PCIe roots of a node: one to each device of the kind with the fewest, so that all kinds meet."""
    counts: dict[str, int] = {}
    for entry in entries:
        if entry.kind != "channels":
            kind = "nic" if entry.kind == "nic" else "gpu"
            counts[kind] = counts.get(kind, 0) + entry.count
    return min(counts.values(), default=1)


def _placed(
    entries: Iterable[DeviceEntry], kinds: Sequence[str], roots: int
) -> Iterator[tuple[DeviceEntry, int, int]]:
    """Each device of some kinds: its entry, its number on the node, the number of its root."""
    chosen = [entry for entry in entries if entry.kind in kinds]
    total = sum(entry.count for entry in chosen)
    number = 0
    for entry in chosen:
        for within in range(entry.count):
            own = within * entry.roots // entry.count if entry.roots else number * roots // total
            yield entry, number, own
            number += 1


def _gpus(node: str, entries: Sequence[DeviceEntry], roots: int) -> tuple[list[Obj], list[Obj]]:
    """Counter sets and devices of the GPUs, partitions among them."""
    counters: list[Obj] = []
    devices: list[Obj] = []
    for entry, number, root in _placed(entries, ("gpu", "mig"), roots):
        model = MODELS[entry.model]
        shared = _shared_attributes(model, number, root)
        unique = _uuid(node, f"gpu-{number}")
        whole: Obj = {
            "name": f"gpu-{number}",
            "attributes": {"type": _text("gpu"), "uuid": _text(f"GPU-{unique}"), **shared},
            "capacity": {"memory": {"value": f"{model.memory}Mi"}},
        }
        found = [whole]
        if entry.kind == "mig":
            total = _counters(range(model.slices), model.memory, model.engines)
            counters.append({"name": f"gpu-{number}-counter-set", "counters": total})
            whole["consumesCounters"] = _consumption(number, total)
            found += _partitions(node, model, number, shared, f"GPU-{unique}")
        devices += [device for device in found if device["name"] not in entry.without]
    return counters, devices


def _shared_attributes(model: GpuModel, number: int, root: int) -> Obj:
    """Attributes that a GPU and its partitions have alike."""
    return {
        "productName": _text(model.product),
        "brand": _text("Nvidia"),
        "architecture": _text(model.architecture),
        "cudaComputeCapability": {"version": model.capability},
        "cudaDriverVersion": {"version": _CUDA_VERSION},
        "driverVersion": {"version": _DRIVER_VERSION},
        "pcieBusID": _text(_bus_id(root, number)),
        PCIE_ROOT: _root(root),
    }


def _partitions(node: str, model: GpuModel, number: int, shared: Obj, parent: str) -> Iterator[Obj]:
    """Every place of every partition of a GPU."""
    for profile in model.profiles:
        for start in profile.starts:
            short = profile.name.replace(".", "")
            name = f"gpu-{number}-mig-{short}-{profile.number}-{start}"
            used = _counters(range(start, start + profile.slices), profile.memory, profile.engines)
            yield {
                "name": name,
                "attributes": {
                    "type": _text("mig"),
                    "profile": _text(profile.name),
                    "parentUUID": _text(parent),
                    "uuid": _text(f"MIG-{_uuid(node, name)}"),
                    **shared,
                },
                "capacity": _capacity(profile),
                "consumesCounters": _consumption(number, used),
            }


def _capacity(profile: MigProfile) -> Obj:
    """What a partition has, in the driver's camel case."""
    names = ("multiprocessors", "copyEngines", "decoders", "jpegEngines", "ofaEngines")
    amounts = {
        name: {"value": str(amount)} for name, amount in zip(names, profile.engines, strict=True)
    }
    return {"memory": {"value": f"{profile.memory}Mi"}, **amounts}


def _counters(slices: Iterable[int], memory: int, engines: Sequence[int]) -> Obj:
    found = {"memory": {"value": f"{memory}Mi"}}
    for name, amount in zip(ENGINES, engines, strict=True):
        if amount:
            found[name] = {"value": str(amount)}
    return found | {f"memory-slice-{number}": {"value": "1"} for number in slices}


def _consumption(number: int, counters: Obj) -> list[Obj]:
    return [{"counterSet": f"gpu-{number}-counter-set", "counters": counters}]


def _nics(entries: Sequence[DeviceEntry], roots: int) -> list[Obj]:
    """RDMA NICs; eth0 is the node's own and no device."""
    made: list[Obj] = []
    for entry, number, root in _placed(entries, ("nic",), roots):
        name = f"eth{number + 1}"
        if name in entry.without:
            continue
        attributes = {
            "dra.net/ifName": _text(name),
            "dra.net/rdma": {"bool": True},
            "dra.net/numaNode": {"int": 2 * root // (entry.roots or roots)},
            PCIE_ROOT: _root(root),
        }
        made.append({"name": name, "attributes": attributes})
    return made


def _channels(entries: Sequence[DeviceEntry]) -> list[Obj]:
    """Channels of compute domains (IMEX), and the daemon that serves them."""
    made: list[Obj] = []
    for entry, number, _ in _placed(entries, ("channels",), 1):
        if not made:
            made.append(_numbered("daemon", 0))
        if f"channel-{number}" not in entry.without:
            made.append(_numbered("channel", number))
    return made


def _numbered(kind: str, number: int) -> Obj:
    return {
        "name": f"{kind}-{number}",
        "attributes": {"type": _text(kind), "id": {"int": number}},
    }


def _text(value: str) -> Obj:
    return {"string": value}


def _bus(root: int) -> int:
    """The number of the first bus under a root: sixteen roots share the 256 buses of a domain."""
    return root * 16 % 256


def _bus_id(root: int, number: int) -> str:
    """A place under a root that no other device of the node has."""
    return f"{root // 16:04x}:{_bus(root) + 1 + number % 15:02x}:{number // 15:02x}.0"


def _root(root: int) -> Obj:
    return _text(f"pci{root // 16:04x}:{_bus(root):02x}")


def _uuid(node: str, device: str) -> str:
    """The same device of a node of the same name has the same id in every run."""
    digest = hashlib.sha256(f"{node}/{device}".encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
