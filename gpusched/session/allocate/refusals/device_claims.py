"""Why pods with claims for devices cannot be given places: claims that are not there, devices that are taken."""

from __future__ import annotations

import numpy as np

from gpusched.api.pod.pod import PodClass
from gpusched.arrays.columns import how_many_fit
from gpusched.cache.gangs.expected_pods import is_expected
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.session.allocate.node_sets import NodeSet, Unschedulable
from gpusched.session.framework.reasons import Reason, nodes_text, pods_text, truncate_message
from gpusched.session.state.session import Session


def claims_not_ready(session: Session, gang: Gang) -> Unschedulable | None:
    """Why the claims of a gang's pods cannot be decided; None where they can, or there are none."""
    for pod_set in gang.pod_sets:
        if pod_set.pod_class.claims:
            refusal = _not_ready(session, pod_set)
            if refusal is not None:
                return refusal
    return None


def _not_ready(session: Session, pod_set: PodSet) -> Unschedulable | None:
    devices, first = session.devices, pod_set.pods[0]
    fault = devices.class_claims(pod_set.pod_class).fault
    if fault:
        message = f"pod {first.name} {fault}"
        return Unschedulable(Reason.INVALID_SPEC, truncate_message(message))
    shared = devices.shared_claim(pod_set.pod_class)
    if shared and len(pod_set.pods) > 1:
        return Unschedulable(
            Reason.INVALID_SPEC,
            truncate_message(
                f"{pods_text(len(pod_set.pods))} share ResourceClaim {shared}, which has no devices yet: this "
                f"version of gpusched allocates claims of one pod; use a template, or allocate the claim by "
                f"a pod of its own first"
            ),
        )
    born = [pod for pod in pod_set.pods if not is_expected(pod)]
    for pod in born:
        missing = devices.missing_claim(pod)
        if missing:
            message = (
                f"pod {pod.name} waits for its claim {missing} to be made by the claim controller"
            )
            return Unschedulable(Reason.INSUFFICIENT_RESOURCES, truncate_message(message))
        held = devices.held_claim(pod)
        if held:
            message = (
                f"ResourceClaim {held} of pod {pod.name} has devices from an earlier attempt, which are "
                f"released first"
            )
            return Unschedulable(Reason.INSUFFICIENT_RESOURCES, truncate_message(message))
    return None


def device_shortage(
    session: Session, pod_class: PodClass, count: int, area: NodeSet
) -> Unschedulable | None:
    """That devices are what so many pods of a class lack; None where something else is."""
    if not pod_class.claims:
        return None
    if _room_without_devices(session, pod_class, count, area) < count:
        return None
    devices = session.devices
    rows = range(len(session.node_usage.nodes)) if area.rows is None else area.rows.nonzero()[0]
    text = devices.shortage_text(pod_class, [int(row) for row in rows])
    room = session.class_info(pod_class).class_fit.total(area.rows, most=count)
    bounded = ", more were not found in time" if devices.is_bounded(pod_class) else ""
    return Unschedulable(
        Reason.INSUFFICIENT_RESOURCES,
        truncate_message(
            f"needs devices for {pods_text(count)}; {room} fit{'s' if room == 1 else ''} now on "
            f"{nodes_text(len(rows))}{bounded}: {text}"
        ),
    )


def _room_without_devices(session: Session, pod_class: PodClass, count: int, area: NodeSet) -> int:
    """How many pods of a class nodes would take if there were devices enough, ``count`` at most each."""
    info = session.class_info(pod_class)
    if info.request.missing:
        return 0
    fits = how_many_fit(
        session.node_usage.free(slice(None), info.request.columns), info.request.amounts
    )
    open_rows = info.class_fit.allowed if area.rows is None else info.class_fit.allowed & area.rows
    return int(np.minimum(np.where(open_rows, fits, 0), count).sum())
