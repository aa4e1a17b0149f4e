"""Patches of ResourceClaims say what was decided, and what they do not mean stays."""

from __future__ import annotations

import json

from gpusched.api.devices.dynamic.claims import (
    SHARE,
    AllocatedConfig,
    AllocatedDevice,
    ClaimAllocation,
    ClaimConsumer,
    DeviceToleration,
    OpaqueConfig,
)
from gpusched.api.devices.dynamic.decode import RESOURCE_CLAIMS
from gpusched.api.meta.identity import UID, ResourceVersion
from gpusched.api.serializer.device_claims import (
    claim_finalizer_patch,
    claim_release_patch,
    claim_settle_patch,
    claim_status_patch,
)

CLAIM, POD = UID("claim-uid"), ClaimConsumer(group="", resource="pods", name="p", uid=UID("pod"))
WHOLE = AllocatedDevice(
    request="r/first",
    driver="gpu.example.com",
    pool="node-0",
    device="gpu-0",
    admin=True,
    tolerations=(DeviceToleration(key="k", operator="Exists", effect="NoExecute", seconds=30),),
    binding_conditions=("Ready",),
    failure_conditions=("Broken",),
)
CONSUMED = (("gpu.example.com/memory", 40 * 10**9),)
PART = AllocatedDevice(
    request="s", driver="gpu.example.com", pool="node-0", device="gpu-1", share=SHARE, consumed=CONSUMED
)  # fmt: skip


def merged(patch):
    """The claim after the patch, as the cache reads it."""
    body = json.loads(patch)
    metadata = {"name": "c", "namespace": "default", **body["metadata"]}
    whole = {"metadata": metadata, "spec": {"devices": {}}, "status": body["status"]}
    return RESOURCE_CLAIMS.entity_of(json.dumps(whole).encode())


def given(version, *devices):
    config = OpaqueConfig(driver="gpu.example.com", parameters='{"a": 1}', requests=("r",))
    allocation = ClaimAllocation(
        devices=devices,
        nodes=None,
        configs=(AllocatedConfig(source="FromClass", config=config),),
    )
    version = ResourceVersion(version)
    return claim_status_patch(CLAIM, version, allocation=allocation, consumers=[POD])


def test_what_is_written_reads_as_it_was_decided():
    claim = merged(given("7", WHOLE))
    assert (claim.uid, claim.resource_version) == (CLAIM, "7")
    assert claim.allocation.devices == (WHOLE,)
    assert claim.allocation.nodes is None
    (config,) = claim.allocation.configs
    assert (config.source, json.loads(config.config.parameters)) == ("FromClass", {"a": 1})
    assert claim.reserved_for == (POD,)


def test_a_share_has_an_id_of_its_own_in_every_attempt():
    def ids(patch):
        return [each.share for each in merged(patch).allocation.devices]

    first, again, later = (ids(given(version, PART, PART)) for version in ("7", "7", "9"))
    assert first == again
    assert len({*first, *later}) == 4
    assert merged(given("7", PART)).allocation.devices[0].consumed == CONSUMED


def test_a_claim_that_keeps_its_devices_gets_users_alone():
    version = ResourceVersion("7")
    body = json.loads(claim_status_patch(CLAIM, version, allocation=None, consumers=[POD]))
    assert body["status"] == {"reservedFor": [{"resource": "pods", "name": "p", "uid": "pod"}]}


def test_a_release_takes_devices_users_and_what_drivers_said_of_them():
    body = json.loads(claim_release_patch(CLAIM, ResourceVersion("7")))
    assert body["metadata"]["resourceVersion"] == "7"
    assert body["status"] == {"allocation": None, "reservedFor": None, "devices": None}


def test_a_finalizer_leaves_those_of_others():
    body = json.loads(claim_finalizer_patch(CLAIM, ResourceVersion("7"), ["a.com/b"]))
    finalizers = ["a.com/b", "resource.kubernetes.io/delete-protection"]
    assert body["metadata"]["finalizers"] == finalizers


def test_settling_holds_for_any_version_and_names_another_each_time():
    bodies = [json.loads(claim_settle_patch(CLAIM, ResourceVersion(each))) for each in ("7", "8")]
    assert all("resourceVersion" not in body["metadata"] for body in bodies)
    assert bodies[0]["metadata"]["annotations"] != bodies[1]["metadata"]["annotations"]
