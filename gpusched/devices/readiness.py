"""Whether drivers have made devices of a claim ready: conditions that pods wait for, and those that end it."""

from __future__ import annotations

from typing import Final

from gpusched.api.devices.dynamic.claims import AllocatedDevice, ResourceClaim

READY_WITHIN_S: Final = 600.0
"""Seconds from its allocation within which a device must be ready, kube-scheduler's own."""


def has_waited(claim: ResourceClaim) -> bool:
    """Whether a claim has devices that are, or were, to be made ready before its pod is bound."""
    allocation = claim.allocation
    return allocation is not None and any(each.binding_conditions for each in allocation.devices)


def never_ready(claim: ResourceClaim, now: float) -> str:
    """Why devices of a claim are not waited for any more; empty while they may be, or are, ready.

    Args:
        claim: with or without devices.
        now: seconds since the epoch.
    """
    allocation = claim.allocation
    for device in allocation.devices if allocation is not None and has_waited(claim) else ():
        failed = failed_condition(claim, device)
        if failed:
            return f"cannot be used: it has condition {failed}"
        missing = awaited_conditions(claim, device)
        began = allocation.timestamp if allocation is not None else 0.0
        if missing and began and now - began >= READY_WITHIN_S:
            lacks = ", ".join(missing)
            return f"was not ready within {READY_WITHIN_S:g} s: it lacks condition {lacks}"
    return ""


def awaited_conditions(claim: ResourceClaim, device: AllocatedDevice) -> tuple[str, ...]:
    """Conditions that a device of a claim must still have before its pod is bound, in its order."""
    if not device.binding_conditions:
        return ()
    true = _true_conditions(claim, device)
    return tuple([each for each in device.binding_conditions if each not in true])


def failed_condition(claim: ResourceClaim, device: AllocatedDevice) -> str:
    """A condition that says that a device will never be ready; empty for none."""
    if not device.failure_conditions:
        return ""
    true = _true_conditions(claim, device)
    return next((each for each in device.failure_conditions if each in true), "")


def _true_conditions(claim: ResourceClaim, device: AllocatedDevice) -> frozenset[str]:
    place = (device.driver, device.pool, device.device, device.share)
    return frozenset(
        each.type
        for each in claim.conditions
        if each.status == "True" and (each.driver, each.pool, each.device, each.share) == place
    )


def has_failed(claim: ResourceClaim) -> bool:
    """Whether a driver says of any device of a claim that it will never be ready."""
    held = claim.allocation.devices if claim.allocation is not None else ()
    return any(failed_condition(claim, each) for each in held)
