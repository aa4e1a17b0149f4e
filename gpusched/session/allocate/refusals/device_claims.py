"""Why pods with claims for devices cannot be given places: claims that are not there, devices that are taken."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

import numpy as np

from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.api.serializer.device_claims import CONSUMERS_MAX
from gpusched.arrays.columns import Ints, how_many_fit
from gpusched.cache.gangs.expected_pods import is_expected
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.devices.inventory import DeviceId
from gpusched.devices.shortage.causes import RequestShortage
from gpusched.devices.shortage.messages import reliefs_text, request_shortage_text
from gpusched.session.allocate.node_sets import NodeSet, Unschedulable
from gpusched.session.framework.reasons import (
    Reason,
    nodes_text,
    pods_text,
    shorten,
    truncate_message,
)
from gpusched.session.state.session import Session

_REQUESTS_TOLD: Final = 3
"""Requests of a class that a condition names; ``gpusched explain`` names all."""


def claims_not_ready(session: Session, gang: Gang) -> Unschedulable | None:
    """Why the claims of a gang's pods cannot be decided; None where they can, or there are none."""
    users: dict[ObjectKey, set[UID]] = {}
    for pod_set in gang.pod_sets:
        if pod_set.pod_class.claims:
            refusal = _not_ready(session, pod_set)
            if refusal is not None:
                return refusal
            for each in pod_set.pod_class.claims:
                if each.claim:
                    key = ObjectKey(pod_set.pod_class.namespace, each.claim)
                    users.setdefault(key, set()).update(
                        [pod.uid for pod in pod_set.pods]
                        if each.group is None
                        else [each.group.uid]
                    )
    for key, pods in users.items():
        reserved = len(session.devices.pod_claims.users_of(key) - pods)
        if len(pods) + reserved > CONSUMERS_MAX:
            message = (
                f"{pods_text(len(pods))} name ResourceClaim {key.name}, which {reserved} others use: a claim is for at "
                f"most {CONSUMERS_MAX} pods"
            )
            return Unschedulable(Reason.INVALID_SPEC, truncate_message(message))
    return None


def _not_ready(session: Session, pod_set: PodSet) -> Unschedulable | None:
    devices, first = session.devices, pod_set.pods[0]
    fault = devices.claims.class_claims(pod_set.pod_class).fault
    if fault:
        message = f"pod {first.name} {fault}"
        return Unschedulable(Reason.INVALID_SPEC, truncate_message(message))
    born = [pod for pod in pod_set.pods if not is_expected(pod)]
    for pod in born:
        if devices.pod_claims.are_ready(pod):
            continue
        missing = devices.pod_claims.missing_claim(pod)
        if missing:
            whose = f" of PodGroup {pod.group}" if missing in _claims_of_group(pod) else ""
            message = f"pod {pod.name} waits for its claim {missing}{whose} to be made by the claim controller"
            return Unschedulable(Reason.INSUFFICIENT_RESOURCES, truncate_message(message))
        twice = devices.twice_given(pod)
        if twice is not None:
            name, device, other = twice
            message = (
                f"ResourceClaim {name} of pod {pod.name} has device {device}, which claim {other} has too: another "
                f"scheduler allocated it at the same time; it is not used until that claim is released"
            )
            return Unschedulable(Reason.INSUFFICIENT_RESOURCES, truncate_message(message))
        held = devices.pod_claims.held_claim(pod, session.snapshot.now)
        if held:
            message = (
                f"ResourceClaim {held} of pod {pod.name} has devices from an earlier attempt, which are "
                f"released first"
            )
            return Unschedulable(Reason.INSUFFICIENT_RESOURCES, truncate_message(message))
    return None


def _claims_of_group(pod: Pod) -> set[str]:
    return {each.name for each in pod.pod_class.claims if each.group is not None}


def device_shortage(
    session: Session, pod_class: PodClass, count: int, area: NodeSet
) -> Unschedulable | None:
    """That devices are what so many pods of a class lack; None where something else is."""
    text = lacking_devices_text(session, pod_class, count, area)
    if not text:
        return None
    class_fit = session.class_info(pod_class).class_fit
    rows = class_fit.allowed if area.rows is None else class_fit.allowed & area.rows
    room = class_fit.count_fitting(area.rows, most=count)
    bounded = (
        ", more were not found in time" if session.devices.counts.is_bounded(pod_class) else ""
    )
    place = f" {area.where}" if area.where else ""
    return Unschedulable(
        Reason.INSUFFICIENT_RESOURCES,
        truncate_message(
            f"needs devices for {pods_text(count)}{place}; {room or 'none'} "
            f"fit{'s' if room == 1 else ''} now on {nodes_text(int(rows.sum()))}{bounded}: {text}"
        ),
    )


def lacking_devices_text(session: Session, pod_class: PodClass, count: int, area: NodeSet) -> str:
    """Which requests of so many pods of a class find too few devices, and why; empty where devices are not what they lack.

    Args:
        session: whose devices count.
        pod_class: of the pods.
        count: pods that are to find devices.
        area: where they may be.
    """
    if not pod_class.claims:
        return ""
    fits = _fits_without_devices(session, pod_class, area)
    if int(np.minimum(fits, count).sum()) < count:
        return ""
    class_fit = session.class_info(pod_class).class_fit
    rows = class_fit.allowed if area.rows is None else class_fit.allowed & area.rows
    return _requests_text(session, pod_class, count, rows.nonzero()[0].tolist(), fits)


def _requests_text(
    session: Session, pod_class: PodClass, count: int, rows: Sequence[int], fits: Ints
) -> str:
    holders = session.cycle_state.get_or_make(_DeviceHolders, lambda: _DeviceHolders(session))
    found = holders.describe_shortages(session, pod_class, rows, fits)
    shared = {each.ready.name for each in session.devices.claims.class_claims(pod_class).shared}
    lacking = [
        each
        for each in found
        if each.free < max(1, each.needed * (1 if each.claim in shared else count))
    ]
    if not lacking:
        # Each request would find enough: it is their combination, or where the devices are.
        open_rows = [row for row in rows if fits[row]]
        relief = holders.describe_relief(session, pod_class, open_rows, most=count)
    else:
        relief = ""
    told = lacking or found
    more = len(told) - _REQUESTS_TOLD
    parts = [request_shortage_text(each) for each in told[:_REQUESTS_TOLD]]
    parts += [f"and {more} more request{'s' if more > 1 else ''}"] if more > 0 else []
    return "; ".join([*([relief] if relief else []), *parts])


class _DeviceHolders:
    """Names of what holds devices, and what was found out about requests.

    Args:
        session: whose pods and claims have names.
    """

    def __init__(self, session: Session) -> None:
        self._names = dict(_gang_names(session))
        self._found: dict[Hashable, list[RequestShortage]] = {}
        devices = session.devices
        self._reliefs: dict[Hashable, str] = {}
        self._kept = session.cache.devices.known_shortages(
            devices.inventory, devices.rows.nodes, session.snapshot.devices, self._names
        )
        if not self._kept.holders:
            for uid, name, device in devices.report.devices_by_consumer():
                holder = self._names.get(uid, shorten(name))
                self._kept.holders.setdefault(device, []).append(holder)

    def describe_shortages(
        self, session: Session, pod_class: PodClass, rows: Sequence[int], fits: Ints
    ) -> list[RequestShortage]:
        """What keeps devices from each request of a class; the same while nothing else was given.

        Args:
            session: whose devices count.
            pod_class: with claims.
            rows: of nodes that are looked at.
            fits: pods that each node would take without claims, shape (nodes,).
        """
        devices, held = session.devices, self._kept.holders
        asked = (_asked_claims(session, pod_class), tuple(rows), (fits > 0).tobytes())
        later = session.node_usage.later
        latest = (asked, devices.moves, later)
        known = self._found.get(latest)
        if known is not None:
            return known
        given = tuple(devices.taken.given_devices())
        if not given and not later:  # as it was when the session began
            found: dict[Hashable, list[RequestShortage]] = self._kept.found
            key: Hashable = asked
        else:
            # What leaves later is in no list: then what was found counts until the next move.
            found, key = self._found, (asked, given, devices.moves if later else -1)
        known = found.get(key)
        if known is None:
            names: dict[DeviceId, list[str]] = {}
            for uid, device in given:
                names.setdefault(device, []).append(self._names.get(uid, "another pod"))
            places = [(row, bool(fits[row])) for row in rows]
            known = found[key] = devices.report.describe_shortage(
                pod_class, places, lambda each: [*held.get(each, ()), *names.get(each, ())]
            )
        self._found[latest] = known
        return known

    def describe_relief(
        self, session: Session, pod_class: PodClass, rows: Sequence[int], *, most: int
    ) -> str:
        """What would help, see ``DeviceRoom.reliefs``; the same while devices do not change hands."""
        devices = session.devices
        asked = (_asked_claims(session, pod_class), tuple(rows), most)
        later = session.node_usage.later
        latest = (asked, devices.moves, later)
        known = self._reliefs.get(latest)
        if known is None:
            as_begun = not later and next(devices.taken.given_devices(), None) is None
            found, key = (self._kept.reliefs, asked) if as_begun else (self._reliefs, latest)
            known = found.get(key)
            if known is None:
                known = found[key] = reliefs_text(
                    devices.report.find_reliefs(pod_class, rows, most=most)
                )
            self._reliefs[latest] = known
        return known


def _asked_claims(session: Session, pod_class: PodClass) -> Hashable:
    """What pods of a class ask for, shared claims and their own."""
    claims = session.devices.claims.class_claims(pod_class)
    own = tuple([(each.name, each.sort) for each in claims.own])
    return (tuple([(each.ready.name, each.ready.sort) for each in claims.shared]), own)


def _gang_names(session: Session) -> Iterator[tuple[UID, str]]:
    """Gangs of pods with claims, by the pod's UID."""
    for key, gang in session.snapshot.placed_gangs.items():
        name = f"{shorten(key.namespace)}/{shorten(key.name)}"
        for member in gang.placed:
            if member.pod.pod_class.claims:
                yield member.pod.uid, name
    for gang in session.all_gangs:
        name = f"{shorten(gang.key.namespace)}/{shorten(gang.key.name)}"
        for pod_set in gang.pod_sets:
            if pod_set.pod_class.claims:
                for pod in pod_set.pods:
                    yield pod.uid, name


def _fits_without_devices(session: Session, pod_class: PodClass, area: NodeSet) -> Ints:
    """Pods of a class that each node would take if there were devices enough, shape (nodes,)."""
    info = session.class_info(pod_class)
    if info.request.missing:
        return np.zeros(len(session.node_usage.nodes), dtype=np.int64)
    fits = how_many_fit(
        session.node_usage.free_amounts(slice(None), info.request.columns), info.request.amounts
    )
    open_rows = info.class_fit.allowed if area.rows is None else info.class_fit.allowed & area.rows
    return np.where(open_rows, fits, 0)
