"""A cluster that keeps no record of plain writes still keeps those of server-side apply."""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.base.clock import LoopClock
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start
from gpusched.lab.virtual_time.connections import MemoryNetwork
from gpusched.lab.virtual_time.loop import run_virtual


def told(story: Any, *, records: bool = False) -> Any:
    async def given(clock: LoopClock) -> Any:
        cluster = await start(ClusterOptions(clock=clock, stages=False, records=records))
        try:
            return story(cluster)
        finally:
            await cluster.close()

    return run_virtual(given, network=MemoryNetwork())


def config_map(**values: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default"},
        "data": values,
    }


def record(cluster: DevCluster) -> Any:
    found = cluster.client.get("configmaps", "default", "a")
    assert found is not None
    return found["metadata"].get("managedFields"), found["data"]


@pytest.mark.parametrize("records", [True, False])
def test_creates_and_updates_are_recorded_only_where_asked(records):
    """All else about the object is the same."""

    def story(cluster: DevCluster) -> Any:
        cluster.client.create("configmaps", config_map(x="1"))
        cluster.client.patch("configmaps", "default", "a", {"data": {"y": "2"}})
        return record(cluster)

    fields, values = told(story, records=records)
    assert values == {"x": "1", "y": "2"}
    assert bool(fields) == records


def test_an_applied_object_loses_what_its_applier_no_longer_names():
    """What another manager wrote over it since stays, and is its own."""

    def story(cluster: DevCluster) -> Any:
        def applied(**values: str) -> None:
            cluster.client.patch("configmaps", "default", "a", config_map(**values), patch_type="apply")  # fmt: skip

        applied(x="1", y="1")
        cluster.client.acting_as("other").patch("configmaps", "default", "a", {"data": {"z": "1"}})
        applied(x="1")
        return record(cluster)

    fields, values = told(story)
    assert values == {"x": "1", "z": "1"}
    assert sorted(each["operation"] for each in fields) == ["Apply", "Update"]


def test_an_apply_over_a_plain_object_takes_it_over():
    """As on a real server over an object from before records were kept."""

    def story(cluster: DevCluster) -> Any:
        cluster.client.create("configmaps", config_map(x="1", y="1"))
        cluster.client.patch("configmaps", "default", "a", config_map(x="2"), patch_type="apply")
        with pytest.raises(StatusError):
            cluster.client.create("configmaps", config_map())
        return record(cluster)

    fields, values = told(story)
    assert values == {"x": "2", "y": "1"}
    assert {each["operation"] for each in fields} == {"Apply", "Update"}
