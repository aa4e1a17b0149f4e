"""Whether drivers have made devices of a claim ready: conditions that pods wait for, and those that end it."""

from __future__ import annotations

from gpusched.api.devices.dynamic.claims import AllocatedDevice, ResourceClaim


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
