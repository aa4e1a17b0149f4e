"""The table in docs/security.md names every key that the code reads of a tenant's object, and no other."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

import gpusched
from gpusched.api.foreign import native_wire
from gpusched.api.gang import wire as wire_groups
from gpusched.api.jobs import wire as job_wire
from gpusched.api.meta import wire
from gpusched.api.pod import wire as pod_wire
from tests.shipped.manifests.security_table import metadata_keys, rows

ROOT = Path(gpusched.__file__).parent
READ = ("api", "cache", "commit", "session", "topology", "arrays", "placement")
"""Packages in which what an object says is read."""
KEY = re.compile(r"(?:[a-z0-9-]+\.)+(?:io|sh|org|com|ai|scheduler)/[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"/v\d").search
OF_OTHERS = {
    *("gpusched.io/block", "gpusched.io/rack", "gpusched.io/gpu-layout"),
    *("kubernetes.io/hostname", "topology.kubernetes.io/region", "topology.kubernetes.io/zone"),
    "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
    "cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock",
    *(f"network.topology.nvidia.com/{level}" for level in ("accelerator", "core", "leaf", "spine")),
    *(f"nvidia.com/gpu.{what}" for what in ("memory", "product", "replicas", "clique")),
    *("amd.com/gpu.product-name", "gpu.intel.com/product", "habana.ai/gaudi.product"),
    *("beta.amd.com/gpu.product-name", "intel.feature.node.kubernetes.io/gaudi.product"),
    "oci.oraclecloud.com/rdma.hpc_island_id", "oci.oraclecloud.com/rdma.local_block_id",
    "oci.oraclecloud.com/rdma.network_block_id",
}  # fmt: skip
"""Labels, annotations and taints of nodes: not a tenant's."""
WRITTEN = {
    *("gpusched.io/reason", "volume.kubernetes.io/selected-node", "gpusched.io/seal-key"),
    *("resource.kubernetes.io/delete-protection", "gpusched.io/settled", "gpusched.io/numa"),
    *("gpusched.io/GangWhole", "gpusched.io/Admitted", "gpusched.io/Scheduled"),
}
"""Written on events, claims, the Lease and in the status of pods and native groups; not read of anything that a tenant
writes."""
RESOURCES = {
    *("nvidia.com/gpu", "nvidia.com/mig-", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"),
    *("habana.ai/gaudi", "huawei.com/Ascend910"),
}
CONTROLLERS = {
    "kubernetes.io/no-provisioner", "pv.kubernetes.io/bind-completed",
}  # fmt: skip
"""Words of the volume controllers."""
WITHOUT_PREFIX = {
    *("pod-group-name", "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"),
    *("spark-role", "spark-app-selector", "pod-template-hash"),
}
"""Keys of pods that are no domain and name."""


@cache
def constants() -> frozenset[str]:
    """Every string in the code that looks like a key, but API versions."""
    found = set()
    for package in READ:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and KEY.fullmatch(text) and not _VERSION(text):
                    found.add(text)
    return frozenset(found)


def struct_keys() -> set[str]:
    """Every annotation that is decoded of pods and Jobs, and of what they are made from."""
    structs = (
        wire.WorkloadAnnotations, pod_wire.PodAnnotations, job_wire.JobAnnotations,
        native_wire.NativeAnnotations,
    )  # fmt: skip
    return {field.encode_name for struct in structs for field in msgspec.structs.fields(struct)}


def test_every_key_that_is_read_stands_in_the_table():
    """And every key of the table is read somewhere."""
    read = constants() | struct_keys() | WITHOUT_PREFIX
    of_tenants = read - OF_OTHERS - WRITTEN - RESOURCES - CONTROLLERS
    assert sorted(of_tenants) == metadata_keys()


def test_what_is_left_out_is_in_the_code():
    """Nothing is excused that nobody reads."""
    there = constants()
    for excused in (OF_OTHERS, WRITTEN, RESOURCES, CONTROLLERS):
        assert sorted(excused - there) == []


def test_keys_without_a_prefix_are_in_the_code():
    """The list above is no guess."""
    text = "".join(path.read_text() for path in sorted((ROOT / "api").rglob("*.py")))
    assert [key for key in sorted(WITHOUT_PREFIX) if f'"{key}"' not in text] == []


def test_every_field_of_a_pod_group_stands_in_the_table():
    """And no field that it does not have."""
    fields = {
        f"spec.{field.encode_name}" for field in msgspec.structs.fields(wire_groups.PodGroupSpec)
    }
    of_groups = {key for row in rows() if "PodGroup" in row.of for key in row.keys}
    named = {key for key in of_groups if key.startswith("spec.")} - {"spec.schedulingGroup"}
    assert named == fields


def test_every_test_that_the_table_names_is_there():
    """By name, somewhere under tests/."""
    tests = Path(__file__).parents[2]
    there = {
        name
        for path in tests.rglob("test_*.py")
        for name in re.findall(r"(?m)^\s*(?:async )?def (\w+)\(", path.read_text())
    }
    named = {name for row in rows() for name in row.tests}
    assert sorted(named - there) == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.keys[0])
def test_every_line_says_what_it_can_cause_and_who_shows_it(row):
    """No cell is empty."""
    assert row.keys
    assert row.of
    assert row.at_most
    assert row.tests
