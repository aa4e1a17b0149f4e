"""What the cache shows of claims that are written: never less than what the API server has said."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.devices.dynamic.claims import (
    AllocatedDevice,
    ClaimAllocation,
    ClaimConsumer,
    DeviceClaimSpec,
    ResourceClaim,
)
from gpusched.api.meta.identity import UID, Rejected, ResourceVersion
from gpusched.cache.cache import Cache
from gpusched.cache.claimable.device_stores import AssumedClaim, DeviceObjectStores

FIRST, SECOND = (
    ClaimConsumer(group="", resource="pods", name=name, uid=UID(name)) for name in ("p", "q")
)
DEVICE = AllocatedDevice(request="r", driver="d", pool="node-0", device="gpu-0")
ALLOCATION = ClaimAllocation(devices=(DEVICE,), nodes=None)
NEW = ResourceClaim(
    namespace="default",
    name="c",
    uid=UID("c"),
    resource_version=ResourceVersion("5"),
    spec=DeviceClaimSpec(),
)
GIVEN = attrs.evolve(
    NEW, resource_version=ResourceVersion("8"), allocation=ALLOCATION, reserved_for=(FIRST,)
)


@pytest.fixture
def stores():
    made = DeviceObjectStores(lambda: None, Cache(()).rows.slices)
    made.claims.put(NEW.key, NEW)
    return made


def shown(stores):
    return stores.build_catalog().claims[NEW.key]


def test_an_older_form_does_not_replace_an_answer(stores):
    stores.claims.record_answer(GIVEN)
    stores.claims.put(NEW.key, attrs.evolve(NEW, resource_version=ResourceVersion("7")))
    assert shown(stores) == GIVEN
    later = attrs.evolve(NEW, resource_version=ResourceVersion("9"))
    stores.claims.put(NEW.key, later)
    assert shown(stores) == later
    stores.claims.put(NEW.key, NEW)  # an etcd that was restored: the watch is believed
    assert shown(stores) == NEW


def test_an_answer_does_not_replace_a_later_form_or_another_claim(stores):
    later = attrs.evolve(NEW, resource_version=ResourceVersion("9"))
    stores.claims.put(NEW.key, later)
    stores.claims.record_answer(GIVEN)
    assert shown(stores) == later
    stores.claims.put(NEW.key, attrs.evolve(NEW, uid=UID("again")))
    stores.claims.record_answer(GIVEN)
    assert shown(stores).uid == "again"
    stores.claims.drop(NEW.key)
    stores.claims.record_answer(GIVEN)
    assert NEW.key not in stores.build_catalog().claims


def test_a_claim_made_again_or_rejected_counts_whatever_its_version(stores):
    stores.claims.record_answer(GIVEN)
    again = attrs.evolve(NEW, uid=UID("again"), resource_version=ResourceVersion("6"))
    stores.claims.put(NEW.key, again)
    assert shown(stores) == again
    stores.claims.record_answer(attrs.evolve(GIVEN, uid=UID("again")))
    bad = Rejected(
        kind="ResourceClaim", key=NEW.key, uid=UID("again"), resource_version="12", field="f", why="w"
    )  # fmt: skip
    stores.claims.put(NEW.key, bad)
    assert NEW.key not in stores.build_catalog().claims


def test_what_is_assumed_shows_until_it_is_there(stores):
    stores.assume_claim(NEW.key, AssumedClaim(NEW.uid, ALLOCATION, (FIRST,)))
    stores.assume_claim(NEW.key, AssumedClaim(NEW.uid, None, (SECOND,)))
    assert (shown(stores).allocation, shown(stores).reserved_for) == (ALLOCATION, (FIRST, SECOND))
    stores.forget(NEW.key, SECOND.uid)
    assert shown(stores).reserved_for == (FIRST,)
    stores.claims.record_answer(GIVEN)
    assert shown(stores) == GIVEN
    assert not stores.is_assumed(NEW.key)


def test_nothing_is_assumed_of_a_claim_that_is_gone(stores):
    stores.assume_claim(NEW.key, AssumedClaim(NEW.uid, ALLOCATION, (FIRST,)))
    stores.claims.drop(NEW.key)
    assert not stores.build_catalog().claims
    assert not stores.is_assumed(NEW.key)
