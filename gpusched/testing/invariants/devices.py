"""I17 and I18: what claims were given of devices, and claims that keep devices for no pod.

Read from ResourceClaims, ResourceSlices and pods alone. ``DeviceBooks`` follows single changes, so that
a long run can afford a look after each write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpusched.api.meta.quantity import QuantityError, format_billionths, parse_billionths
from gpusched.base.classes import frozen
from gpusched.testing.invariants.model import (
    EXTENDED,
    Finding,
    Obj,
    bound_node,
    is_over,
    object_name,
    served_by_claim,
)

DeviceKey = tuple[str, str, str]
"""Driver, pool and name of a device."""
_PoolKey = tuple[str, str]


@frozen(slots=True)
class _Held:
    """What one result of a claim's allocation takes of a device."""

    claim: str
    share: str
    consumed: tuple[tuple[str, int], ...]


@frozen(slots=True)
class _Published:
    """A device as the newest slice of its pool has it; amounts in billionths."""

    capacity: Mapping[str, int]
    counters: tuple[tuple[str, str, int], ...]


class DeviceBooks:
    """Which claims have which devices, followed change by change."""

    def __init__(self) -> None:
        self._held: dict[DeviceKey, list[_Held]] = {}
        self._of_claim: dict[str, list[DeviceKey]] = {}
        self._used: dict[_PoolKey, set[DeviceKey]] = {}
        self._slices: dict[_PoolKey, dict[str, Obj]] = {}
        self._devices: dict[_PoolKey, dict[str, _Published]] = {}
        self._counters: dict[_PoolKey, dict[tuple[str, str], int]] = {}

    def see_slice(self, part: Obj, *, gone: bool = False) -> None:
        """A ResourceSlice is there in this form, or gone."""
        spec = part["spec"]
        key = (spec["driver"], spec["pool"]["name"])
        listed = self._slices.setdefault(key, {})
        if gone:
            listed.pop(part["metadata"]["name"], None)
        else:
            listed[part["metadata"]["name"]] = part
        self._devices.pop(key, None)
        self._counters.pop(key, None)

    def see_claim(self, claim: Obj, *, gone: bool = False) -> list[Finding]:
        """A ResourceClaim is there in this form, or gone; what is wrong with devices that it got now."""
        name = object_name(claim)
        before = Counter(self._of_claim.get(name, ()))
        for key in self._of_claim.pop(name, ()):
            left = [each for each in self._held[key] if each.claim != name]
            self._held[key] = left
            if not left:
                del self._held[key]
                self._used[key[:2]].discard(key)
        results = [] if gone else _results(claim)
        for result in results:
            key = (result["driver"], result["pool"], result["device"])
            self._held.setdefault(key, []).append(_held_device(name, result))
            self._used.setdefault(key[:2], set()).add(key)
            self._of_claim.setdefault(name, []).append(key)
        new = Counter(self._of_claim.get(name, ())) - before
        return [found for key in new for found in self._wrong(key)]

    def findings(self) -> Iterator[Finding]:
        """What is wrong with any device that is held."""
        for key in sorted(self._held):
            yield from self._wrong(key)

    def _wrong(self, key: DeviceKey) -> Iterator[Finding]:
        """I17: a device is one claim's, its shares are within its capacities, its pool within its counters."""
        held = self._held.get(key, [])
        name = "/".join(key)
        whole = [each for each in held if not each.share]
        if len(whole) > 1 or (whole and len(held) > len(whole)):
            claims = " and ".join(sorted({each.claim for each in held})[:3])
            yield _finding(name, f"device {name} is given {len(held)} times: to {claims}")
        published = self._published(key)
        if published is None:
            return  # the driver has taken it back since
        consumed: Counter[str] = Counter()
        for each in held:
            consumed.update(dict(each.consumed))
        for what, amount in sorted(consumed.items()):
            most = published.capacity.get(what)
            if most is not None and amount > most:
                yield _finding(
                    name,
                    f"shares of device {name} take {format_billionths(amount)} {what}, "
                    f"it has {format_billionths(most)}",
                )
        if published.counters:
            yield from self._counters_of(key[:2], {part for part, _, _ in published.counters})

    def _counters_of(self, pool: _PoolKey, sets: set[str]) -> Iterator[Finding]:
        taken: Counter[tuple[str, str]] = Counter()
        for key in self._used.get(pool, ()):
            published = self._published(key)
            for part, counter, amount in published.counters if published is not None else ():
                if part in sets:
                    taken[part, counter] += amount
        offered = self._counters.get(pool, {})
        for place, amount in sorted(taken.items()):
            most = offered.get(place)
            if most is not None and amount > most:
                name = f"{'/'.join(pool)}/{place[0]}"
                yield _finding(
                    name,
                    f"devices in use take {format_billionths(amount)} {place[1]} of counter set "
                    f"{name}, it has {format_billionths(most)}",
                )

    def _published(self, key: DeviceKey) -> _Published | None:
        pool = key[:2]
        if pool not in self._devices:
            self._read_pool(pool)
        return self._devices[pool].get(key[2])

    def _read_pool(self, pool: _PoolKey) -> None:
        """Devices and counters of the newest generation."""
        slices = list(self._slices.get(pool, {}).values())
        newest = max((each["spec"]["pool"].get("generation", 0) for each in slices), default=0)
        devices: dict[str, _Published] = {}
        counters: dict[tuple[str, str], int] = {}
        for each in slices:
            spec = each["spec"]
            if spec["pool"].get("generation", 0) != newest:
                continue
            for part in spec.get("sharedCounters") or ():
                for name, value in _amounts(part.get("counters")).items():
                    counters[part["name"], name] = value
            for device in spec.get("devices") or ():
                devices[device["name"]] = _Published(
                    {
                        name.removeprefix(f"{pool[0]}/"): value
                        for name, value in _amounts(device.get("capacity")).items()
                    },
                    tuple(
                        (part["counterSet"], name, value)
                        for part in device.get("consumesCounters") or ()
                        for name, value in _amounts(part.get("counters")).items()
                    ),
                )
        self._devices[pool] = devices
        self._counters[pool] = counters


def device_findings(claims: Sequence[Obj], slices: Sequence[Obj]) -> Iterator[Finding]:
    """I17 of everything that claims have."""
    books = DeviceBooks()
    for part in slices:
        books.see_slice(part)
    for claim in claims:
        books.see_claim(claim)
    yield from books.findings()


def unserved_claims(pod: Obj, claims: Mapping[str, Obj]) -> Iterator[Finding]:
    """I17: a pod is bound when each of its claims has devices for its node, and is reserved for it.

    Args:
        pod: bound by us.
        claims: by ``namespace/name``.
    """
    name, node, uid = object_name(pod), bound_node(pod), pod["metadata"]["uid"]
    names = claim_names(pod)
    extended = names[-1] if served_by_claim(pod) else ""
    for key in names:
        claim = claims.get(key)
        status = (claim or {}).get("status") or {}
        why = ""
        if claim is None:
            why = f"whose claim {key} is not there"
        elif not status.get("allocation"):
            why = f"whose claim {key} has no devices"
        elif not _is_reserved(claim or {}, uid):
            why = f"for which claim {key} is not reserved"
        elif key == extended and len(_results(claim or {})) < _asked_of_devices(pod):
            why = f"whose claim {key} has fewer devices than its containers request"
        elif node not in _nodes(status["allocation"], node):
            why = f"where the devices of claim {key} cannot be used"
        if why:
            yield Finding(
                invariant="I17", kind="Pod", name=name,
                sentence=f"pod {name} was bound to {node}, {why}",
            )  # fmt: skip


def leaked_claims(claims: Sequence[Obj], pods: Sequence[Obj]) -> Iterator[Finding]:
    """I18: no claim keeps devices of which no pod makes use: bound, and not over.

    Args:
        claims: all of them, at a time when nothing moves.
        pods: all of them.
    """
    users = {pod["metadata"]["uid"] for pod in pods if bound_node(pod) and not is_over(pod)}
    for claim in claims:
        status = claim.get("status") or {}
        reserved = status.get("reservedFor") or ()
        if not status.get("allocation") or any(each.get("uid") in users for each in reserved):
            continue
        if any(each.get("resource") != "pods" for each in reserved):
            continue  # of a group, which reserves for its pods
        name = object_name(claim)
        whom = ", ".join(sorted(str(each.get("name")) for each in reserved)) or "nothing"
        count = len(_results(claim))
        yield Finding(
            invariant="I18", kind="ResourceClaim", name=name,
            sentence=f"claim {name} keeps {count} devices, reserved for {whom}, and no pod that runs uses them",
        )  # fmt: skip


def _asked_of_devices(pod: Obj) -> int:
    """Pieces of resources that its claim for extended resources serves, over all containers."""
    served, spec = served_by_claim(pod), pod["spec"]
    return sum(
        int((each.get("resources") or {}).get("requests", {}).get(resource, 0))
        for each in (*(spec.get("initContainers") or ()), *spec["containers"])
        for resource in served
    )


def _is_reserved(claim: Obj, uid: str) -> bool:
    """Whether a claim is reserved for a pod, or for a group, which reserves for its pods."""
    return any(
        each.get("uid") == uid or each.get("resource") != "pods"
        for each in claim["status"].get("reservedFor") or ()
    )


def claim_names(pod: Obj) -> list[str]:
    """Claims of a pod as ``namespace/name``; those that are not made yet or not needed are left out."""
    place = pod["metadata"].get("namespace", "")
    status = pod.get("status") or {}
    made = {
        each["name"]: each.get("resourceClaimName")
        for each in status.get("resourceClaimStatuses") or ()
    }
    found = []
    for each in pod["spec"].get("resourceClaims") or ():
        name = each.get("resourceClaimName") or made.get(each["name"])
        if name:
            found.append(f"{place}/{name}")
    extended = (status.get(EXTENDED) or {}).get("resourceClaimName")
    return [*found, f"{place}/{extended}"] if extended else found


def _results(claim: Obj) -> list[Obj]:
    """Devices of a claim but for those that are given for administration."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [each for each in results if not each.get("adminAccess")]


def _held_device(claim: str, result: Obj) -> _Held:
    consumed = {
        name.removeprefix(f"{result['driver']}/"): amount
        for name, amount in _amounts(result.get("consumedCapacity")).items()
    }
    return _Held(claim, str(result.get("shareID") or ""), tuple(sorted(consumed.items())))


def _nodes(allocation: Obj, node: str) -> tuple[str, ...]:
    """Nodes that a selector by name allows; the node in question where it selects in another way."""
    names: list[str] = []
    for term in (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
        for each in term.get("matchFields") or ():
            names += each.get("values") or ()
    return tuple(names) or (node,)


def _amounts(listed: Any) -> dict[str, int]:
    """Amounts in billionths by name, of quantities or of mappings with a value."""
    found = {}
    for name, said in (listed or {}).items():
        text = said.get("value") if isinstance(said, Mapping) else said
        try:
            found[name] = parse_billionths(str(text))
        except QuantityError:
            continue
    return found


def _finding(name: str, sentence: str) -> Finding:
    return Finding(invariant="I17", kind="Device", name=name, sentence=sentence)
