"""Devices of chaos runs: cards that are whole, in halves or shared, on each node, and claims for them.

Whole cards and halves exclude each other by counters; one device of a node is shared by its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpusched.lab.chaos.steps.objects import CARD, NAMESPACE

Obj = dict[str, Any]
API: Final = "resource.k8s.io/v1"
CLASSES: Final = "deviceclasses.resource.k8s.io"
TEMPLATES: Final = "resourceclaimtemplates.resource.k8s.io"
_DRIVER: Final = "cards.example.com"
_SHARED_GI: Final = 40
_CARD: Final = f"{_DRIVER}/card"


def resource_slices(args: Mapping[str, Any]) -> tuple[Obj, Obj]:
    """What the driver publishes of a node: counters, and ``cards`` of them with one that is shared."""
    devices: list[Obj] = []
    sets: list[Obj] = []
    for number in range(int(args["cards"])):
        sets.append({"name": f"card-{number}", "counters": {"half": {"value": "2"}}})
        devices.append(_partition(number, "whole", f"card-{number}", 2))
        devices += [_partition(number, "half", f"card-{number}-{part}", 1) for part in (0, 1)]
    devices.append(
        {
            "name": "shared",
            "allowMultipleAllocations": True,
            "attributes": {"kind": {"string": "shared"}, "card": {"int": -1}},
            "capacity": {"memory": {"value": f"{_SHARED_GI}Gi"}},
        }
    )
    return (
        _slice(args, "counters", {"sharedCounters": sets}),
        _slice(args, "cards", {"devices": devices}),
    )


def _slice(args: Mapping[str, Any], part: str, content: Obj) -> Obj:
    name, generation = args["name"], int(args.get("generation", 1))
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-{part}"},
        "spec": {
            "driver": _DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": generation, "resourceSliceCount": 2},
            **content,
        },
    }


def _partition(card: int, kind: str, name: str, halves: int) -> Obj:
    return {
        "name": name,
        "attributes": {"kind": {"string": kind}, "card": {"int": card}},
        "consumesCounters": [
            {"counterSet": f"card-{card}", "counters": {"half": {"value": str(halves)}}}
        ],
    }


def device_classes() -> Iterator[Obj]:
    """The class of all cards, and that of whole ones, which stands for a resource that pods request."""
    text = f'device.driver == "{_DRIVER}"'
    whole = f'{text} && device.attributes["{_DRIVER}"].kind == "whole"'
    for name, chosen, more in (
        ("card", text, {}),
        ("whole-card", whole, {"extendedResourceName": CARD}),
    ):
        spec = {"selectors": [{"cel": {"expression": chosen}}], **more}
        yield {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def _asked(kind: str, *, count: int = 1, **more: Any) -> Obj:
    text = f'device.attributes["{_DRIVER}"].kind == "{kind}"'
    selectors = [{"cel": {"expression": text}}]
    return {"deviceClassName": "card", "count": count, "selectors": selectors, **more}


_SPECS: Final[Mapping[str, Obj]] = {
    "whole": {"requests": [{"name": "r", "exactly": _asked("whole")}]},
    "half": {"requests": [{"name": "r", "exactly": _asked("half")}]},
    "either": {
        "requests": [
            {
                "name": "r",
                "firstAvailable": [
                    {"name": "whole", **_asked("whole")},
                    {"name": "half", **_asked("half")},
                ],
            }
        ]
    },
    "pair": {
        "requests": [{"name": "r", "exactly": _asked("half", count=2)}],
        "constraints": [{"requests": ["r"], "matchAttribute": _CARD}],
    },
    "share": {
        "requests": [
            {"name": "r", "exactly": _asked("shared", capacity={"requests": {"memory": "15Gi"}})}
        ]
    },
}
CLAIMED: Final = tuple(_SPECS)
"""Names of what claims ask for, and of the templates."""


def template(name: str) -> Obj:
    """A template that each pod gets a claim of its own from."""
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": {"devices": _SPECS[name]}},
    }


def claim(args: Mapping[str, Any]) -> Obj:
    """A claim that pods name: one of its own, or one that several share."""
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": args["name"], "namespace": NAMESPACE},
        "spec": {"devices": _SPECS[args["asks"]]},
    }
