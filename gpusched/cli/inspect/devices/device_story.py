"""Claims of a gang's pods: what each request got, on which node, or what keeps devices from it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpusched.api.devices.dynamic.claims import (
    GROUPS,
    AllocatedDevice,
    AllocationMode,
    DeviceClaimSpec,
    DeviceRequest,
    RequestAlternatives,
    ResourceClaim,
)
from gpusched.api.meta.identity import ObjectKey
from gpusched.api.meta.quantity import format_billionths
from gpusched.cli.command import table
from gpusched.cli.inspect.cluster_reader import Json, items_at, value_at
from gpusched.cli.inspect.devices.device_reader import DeviceObjects, claim_keys
from gpusched.cli.inspect.devices.device_usage import DevicesInUse
from gpusched.devices.readiness import awaited_conditions, failed_condition
from gpusched.devices.requests import ReadyClaim, make_ready
from gpusched.devices.shortage.causes import describe_request, find_reliefs
from gpusched.devices.shortage.messages import reliefs_text, request_shortage_text

_ROWS_SHOWN: Final = 64
_HEADER: Final = ("POD", "CLAIM", "REQUEST", "ASKS FOR", "DEVICE", "NODE")


def describe_claims(pods: Sequence[Json], objects: DeviceObjects) -> list[dict[str, Any]]:
    """One entry for each claim of each pod, by pod.

    Args:
        pods: with claims, in the order in which they are told.
        objects: devices of the cluster.
    """
    world = DevicesInUse(objects)
    stories = [
        _claim_story(pod, name, key, objects)
        for pod in pods
        for name, key in claim_keys(pod).items()
    ]
    _explain_waiting(pods, stories, world)
    return stories


def _claim_story(
    pod: Json, name: str, key: ObjectKey | None, objects: DeviceObjects
) -> dict[str, Any]:
    claim = objects.catalog.claims.get(key) if key is not None else None
    template = next(
        (
            str(each.get("resourceClaimTemplateName") or "")
            for each in items_at(pod, "spec", "resourceClaims")
            if each.get("name") == name
        ),
        "",
    )
    spec = claim.spec if claim is not None else None
    namespace = str(value_at(pod, "metadata", "namespace") or "")
    if spec is None and template:
        known = objects.catalog.templates.get(ObjectKey(namespace, template))
        spec = known.spec if known is not None else None
    return {
        "pod": str(value_at(pod, "metadata", "name")),
        "claim": name,
        "object": key.name if key is not None else "",
        "group": _claiming_group(pod, template, claim),
        "template": template,
        "node": str(value_at(pod, "spec", "nodeName") or ""),
        "state": _state(pod, key, claim, objects),
        "reservedFor": [each.name for each in claim.reserved_for] if claim is not None else [],
        "requests": [_request_story(each, claim) for each in spec.requests] if spec else [],
        "why": [],
    }


def _state(
    pod: Json, key: ObjectKey | None, claim: ResourceClaim | None, objects: DeviceObjects
) -> str:
    if key is None:
        return "not made yet"
    if claim is None:
        return "not readable" if "ResourceClaim" in objects.refused else "not there"
    if claim.allocation is None:
        return "waiting"
    uid = value_at(pod, "metadata", "uid")
    mine = uid in {each.uid for each in claim.reserved_for} or _is_for_group(pod, claim)
    return "reserved" if mine else "allocated"


def _claiming_group(pod: Json, template: str, claim: ResourceClaim | None) -> str:
    """The PodGroup whose claim a pod uses, empty where it is the pod's: as far as the claim tells."""
    group = str(value_at(pod, "spec", "schedulingGroup", "podGroupName") or "")
    if claim is None or not group:
        return ""
    made_for_another = bool(template) and claim.owner != value_at(pod, "metadata", "uid")
    return group if made_for_another or _is_for_group(pod, claim) else ""


def _is_for_group(pod: Json, claim: ResourceClaim) -> bool:
    """Whether a claim is reserved for the PodGroup of a pod."""
    group = value_at(pod, "spec", "schedulingGroup", "podGroupName")
    return any(each.resource == GROUPS and each.name == group for each in claim.reserved_for)


def _request_story(request: RequestAlternatives, claim: ResourceClaim | None) -> dict[str, Any]:
    devices = claim.allocation.devices if claim is not None and claim.allocation else ()
    return {
        "request": request.name,
        "asksFor": _asked_text(request),
        "devices": [
            _device_story(each, claim)
            for each in devices
            if each.request.partition("/")[0] == request.name
        ],
    }


def _device_story(device: AllocatedDevice, claim: ResourceClaim | None) -> dict[str, Any]:
    return {
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
        "alternative": device.request.partition("/")[2],
        "adminAccess": device.admin,
        "shareID": device.share,
        "consumedCapacity": {
            name.removeprefix(f"{device.driver}/"): format_billionths(amount)
            for name, amount in device.consumed
        },
        "awaits": list(awaited_conditions(claim, device)) if claim is not None else [],
        "failed": failed_condition(claim, device) if claim is not None else "",
    }


def _asked_text(request: RequestAlternatives) -> str:
    """``2 of gpu``, or alternatives in their order: ``1 of whole, else 1 of half``."""
    return ", else ".join(_alternative_text(each) for each in request.alternatives)


def _alternative_text(request: DeviceRequest) -> str:
    count = "all" if request.mode is AllocationMode.ALL else str(request.count)
    amounts = ", ".join(f"{format_billionths(value)} {name}" for name, value in request.capacity)
    return (
        f"{count} of {request.device_class}"
        + (f" with {amounts}" if amounts else "")
        + (" (admin access)" if request.admin else "")
    )


# -- why not ---------------------------------------------------------------------------------
def _explain_waiting(
    pods: Sequence[Json], stories: Sequence[dict[str, Any]], world: DevicesInUse
) -> None:
    """Fill in what keeps devices from claims that wait; once for all pods whose claims are equal."""
    told: dict[Hashable, list[list[str]]] = {}
    waiting: Counter[Hashable] = Counter()
    of_pod: dict[str, list[dict[str, Any]]] = {}
    for story in stories:
        of_pod.setdefault(story["pod"], []).append(story)
    asked: dict[str, list[tuple[str, DeviceClaimSpec]]] = {}
    for pod in pods:
        name = str(value_at(pod, "metadata", "name"))
        if not value_at(pod, "spec", "nodeName"):
            asked[name] = list(_waiting_specs(pod, world.objects))
            waiting[tuple(asked[name])] += 1
    for name, specs in asked.items():
        key = tuple(specs)
        if key not in told:
            told[key] = _reasons(specs, waiting[key], world)
        for (claim, _), why in zip(specs, told[key], strict=True):
            for story in of_pod[name]:
                if story["claim"] == claim:
                    story["why"] = why
    for story in stories:
        if not story["node"] and not story["why"]:
            story["why"] = _obstacle(story)


def _waiting_specs(pod: Json, objects: DeviceObjects) -> Iterator[tuple[str, DeviceClaimSpec]]:
    """Claims of a pod that have no devices, each with its name."""
    namespace = str(value_at(pod, "metadata", "namespace") or "")
    templates = {
        str(each.get("name")): str(each.get("resourceClaimTemplateName") or "")
        for each in items_at(pod, "spec", "resourceClaims")
    }
    for name, key in claim_keys(pod).items():
        claim = objects.catalog.claims.get(key) if key is not None else None
        template = objects.catalog.templates.get(ObjectKey(namespace, templates.get(name, "")))
        if claim is not None and claim.allocation is None:
            yield name, claim.spec
        elif key is None and template is not None:
            yield name, template.spec


def _obstacle(story: Mapping[str, Any]) -> list[str]:
    """Why a claim of a waiting pod is no question of devices."""
    if story["state"] == "not made yet":
        if story["template"] and not story["requests"]:
            return [f"ResourceClaimTemplate {story['template']} is not there"]
        return ["kube-controller-manager has not made the claim yet"]
    if story["state"] == "not there":
        return [f"ResourceClaim {story['object']} is not there"]
    return []


def _reasons(
    specs: Sequence[tuple[str, DeviceClaimSpec]], pods: int, world: DevicesInUse
) -> list[list[str]]:
    """For each claim of one pod the lines that say what keeps devices from its requests."""
    objects = world.objects
    if {"ResourceSlice", "DeviceClass"} & set(objects.refused):
        return [["devices may not be listed by this user: the condition tells"]] * len(specs)
    claims = [make_ready(name, spec, objects.catalog.classes) for name, spec in specs]
    found = [
        [claim.fault] if claim.fault else list(_request_reasons(claim, world)) for claim in claims
    ]
    if claims and not any(claim.fault for claim in claims):
        helpful = find_reliefs(
            world.inventory, world.usage, world.nodes, claims, most=pods, counts={}
        )
        if helpful:
            found[0].append(reliefs_text(helpful))
    return found


def _request_reasons(claim: ReadyClaim, world: DevicesInUse) -> Iterator[str]:
    for alternatives in claim.requests:
        for each in alternatives:
            yield request_shortage_text(
                describe_request(
                    world.inventory,
                    world.usage,
                    [(node, True) for node in world.nodes],
                    claim,
                    each,
                    holders=world.holders,
                ),
                shown=None,
            )


# -- text ------------------------------------------------------------------------------------
def render_claims(stories: Sequence[dict[str, Any]]) -> str:
    """The claims as a table, and below it why some have no devices."""
    rows = [row for story in stories for row in _rows(story)]
    lines = [table([_HEADER, *(tuple(map(_clean, row)) for row in rows[:_ROWS_SHOWN])])]
    if len(rows) > _ROWS_SHOWN:
        lines.append(f"and {len(rows) - _ROWS_SHOWN} more: -o json shows all")
    reasons: dict[tuple[str, ...], list[str]] = {}
    for story in stories:
        if story["why"]:
            reasons.setdefault(tuple(story["why"]), []).append(story["pod"])
    for why, pods in reasons.items():
        who = pods[0] if len(pods) == 1 else f"{pods[0]} and {len(pods) - 1} more"
        lines += ["", f"No devices for {_clean(who)}:", *(f"  {_clean(each)}" for each in why)]
    return "\n".join(lines)


def _rows(story: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    whose = f", of PodGroup {story['group']}" if story["group"] else ""
    claim = story["claim"] + (f" ({story['object']}{whose})" if story["object"] else "")
    if not story["requests"]:
        yield (story["pod"], claim, "-", "-", story["state"], story["node"] or "-")
    for request in story["requests"]:
        head = (story["pod"], claim, request["request"], request["asksFor"])
        devices = [_device_text(each) for each in request["devices"]] or [story["state"]]
        for device in devices:
            yield (*head, device, story["node"] or "-")


def _device_text(device: Mapping[str, Any]) -> str:
    """``gpu.example.com/node-0/gpu-3``, with share, consumed capacity and the alternative chosen."""
    amounts = ", ".join(f"{value} {name}" for name, value in device["consumedCapacity"].items())
    notes = [f"as {device['alternative']}"] if device["alternative"] else []
    notes += (
        [f"share {device['shareID']}" + (f" of {amounts}" if amounts else "")]
        if device["shareID"]
        else []
    )
    notes += ["admin access"] if device["adminAccess"] else []
    notes += [f"waits for {', '.join(device['awaits'])}"] if device["awaits"] else []
    notes += [f"failed: {device['failed']}"] if device["failed"] else []
    text = f"{device['driver']}/{device['pool']}/{device['device']}"
    return f"{text} ({', '.join(notes)})" if notes else text


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
