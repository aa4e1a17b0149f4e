"""A word of a tenant, wherever it stands, is not in an anonymised snapshot, and nothing else changes."""

from __future__ import annotations

import gzip
import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import inspect

from gpusched import devcluster
from gpusched.api.foreign import kinds
from gpusched.api.meta.identity import Rejected
from gpusched.api.serializer.codecs import CODECS
from gpusched.base.clock import SystemClock
from gpusched.base.installed_files import path
from gpusched.cache.cache import Cache
from gpusched.config.model import DEFAULT
from gpusched.io.recordings.pseudonyms import Pseudonyms
from gpusched.io.recordings.public_words import KEYS
from gpusched.io.recordings.recorded_kinds import RECORDED
from gpusched.io.watch.discovery import foreign_codec
from gpusched.io.watch.informers import make_event_handlers
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.decide import decide
from gpusched.session.state.plan import Plan
from gpusched.session.state.session_cache import SessionCache

DATA = Path(devcluster.__file__).parent / "data"
"""Schemas of a real API server."""
WORD = "zqxj"
KEY = b"k" * 16
DEPTH_MAX = 14
AMOUNT = "5"
RESOURCE = "example.com/chip"
NUMBERS: dict[Any, Any] = {"integer": 3, "number": 3, "boolean": True}
SCHEMAS = {
    "pods": ("api_v1", "io.k8s.api.core.v1.Pod"),
    "nodes": ("api_v1", "io.k8s.api.core.v1.Node"),
    "namespaces": ("api_v1", "io.k8s.api.core.v1.Namespace"),
    "persistentvolumes": ("api_v1", "io.k8s.api.core.v1.PersistentVolume"),
    "persistentvolumeclaims": ("api_v1", "io.k8s.api.core.v1.PersistentVolumeClaim"),
    "resourcequotas": ("api_v1", "io.k8s.api.core.v1.ResourceQuota"),
    "jobs.batch": ("apis_batch_v1", "io.k8s.api.batch.v1.Job"),
    "poddisruptionbudgets.policy": (
        "apis_policy_v1", "io.k8s.api.policy.v1.PodDisruptionBudget"),
    "priorityclasses.scheduling.k8s.io": (
        "apis_scheduling.k8s.io_v1", "io.k8s.api.scheduling.v1.PriorityClass"),
    "storageclasses.storage.k8s.io": (
        "apis_storage.k8s.io_v1", "io.k8s.api.storage.v1.StorageClass"),
    "resourceslices.resource.k8s.io": (
        "apis_resource.k8s.io_v1", "io.k8s.api.resource.v1.ResourceSlice"),
}  # fmt: skip
OWN = ("podgroups", "queues", "topologies", "reservations")


class Planter:
    """Makes an object of a schema with another word in every text, and as every key users choose.

    Args:
        schemas: by name, for references.
    """

    def __init__(self, schemas: dict[str, Any]) -> None:
        self._schemas = schemas
        self._numbers = count()

    def word(self) -> str:
        """Another one each time, of letters alone."""
        number, text = next(self._numbers), ""
        for _ in range(4):
            number, digit = divmod(number, 26)
            text = chr(97 + digit) + text
        return WORD + text

    def of_schema(self, schema: dict[str, Any], depth: int = 0) -> Any:
        """An object with every property; None where references go round."""
        while "$ref" in schema or schema.get("allOf"):
            named = schema.get("$ref", "").rpartition("/")[2]
            schema = self._schemas[named] if named else schema["allOf"][0]
        if depth > DEPTH_MAX:
            return None
        if schema.get("x-kubernetes-int-or-string") or "oneOf" in schema or "anyOf" in schema:
            return AMOUNT
        kind = schema.get("type")
        if kind == "array":
            return [self.of_schema(schema["items"], depth + 1)]
        if kind == "string":
            return "2026-01-01T00:00:00Z" if schema.get("format") == "date-time" else self.word()
        return NUMBERS[kind] if kind in NUMBERS else self._members(schema, depth)

    def _members(self, schema: dict[str, Any], depth: int) -> Any:
        found = {
            name: self.of_schema(part, depth + 1)
            for name, part in schema.get("properties", {}).items()
        }
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            found.update(self._named(self.of_schema(more, depth + 1)))
        return found

    def _named(self, value: Any) -> dict[str, Any]:
        """A mapping of keys that users choose; amounts are known by resources, whose names stay."""
        return {RESOURCE if value in (AMOUNT, NUMBERS["integer"]) else self.word(): value}

    def of_type(self, info: Any, depth: int = 0) -> Any:
        """The same of a struct of ours, for kinds without a schema at hand."""
        if isinstance(info, inspect.UnionType):
            parts = {type(each): each for each in info.types}
            if {inspect.IntType, inspect.FloatType} <= parts.keys():
                return AMOUNT
            first = parts.get(inspect.StrType) or next(
                each for each in info.types if not isinstance(each, inspect.NoneType)
            )
            return self.of_type(first, depth)
        if depth > DEPTH_MAX:
            return None
        if isinstance(info, inspect.StructType):
            return {
                each.encode_name: self.of_type(each.type, depth + 1)
                for each in inspect.type_info(info.cls).fields
            }
        if isinstance(info, inspect.ListType):
            return [self.of_type(info.item_type, depth + 1)]
        if isinstance(info, inspect.DictType):
            if isinstance(info.value_type, inspect.AnyType):
                return {"name": self.word()}
            return self._named(self.of_type(info.value_type, depth + 1))
        numbers = {inspect.IntType: 3, inspect.FloatType: 3, inspect.BoolType: True}
        raw = {"conditions": [{"type": self.word(), "reason": self.word()}], "x": self.word()}
        return self.word() if isinstance(info, inspect.StrType) else numbers.get(type(info), raw)


def notes(planter: Planter) -> dict[str, str]:
    """A word in every annotation and label that we know, and in one that we do not."""
    found = {key: planter.word() for key in sorted(KEYS)}
    found[f"{planter.word()}.example.com/{planter.word()}"] = planter.word()
    found["gpusched.io/moved"] = json.dumps(
        {"at": "2026-01-01T00:00:00Z", "seal": planter.word(),
         "pods": [{"requests": {"cpu": 1}, "nodes": {planter.word(): 1}}]}
    )  # fmt: skip
    found["yunikorn.apache.org/task-groups"] = json.dumps(
        [{"name": planter.word(), "minMember": 2, planter.word(): {planter.word(): planter.word()}}]
    )
    found["gpusched.io/proof"] = f"{planter.word()} 4, at least 3"
    return found


def planted(resource: str) -> dict[str, Any]:
    """An object of a recorded kind with a word everywhere."""
    plural, _, group = resource.partition(".")
    if resource in SCHEMAS:
        file, name = SCHEMAS[resource]
        page = json.loads(gzip.decompress((DATA / "openapi" / f"{file}.json.gz").read_bytes()))
        planter = Planter(page["components"]["schemas"])
        made = planter.of_schema(page["components"]["schemas"][name])
    elif plural in OWN and group == "scheduling.gpusched.io":
        crd = yaml.safe_load((path("manifests/crds") / f"{plural}.yaml").read_text())
        planter = Planter({})
        made = planter.of_schema(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    else:
        (kind,) = (each for each in kinds.ALL if each.name == resource)
        planter = Planter({})
        codec: Any = foreign_codec(kind)
        made = planter.of_type(inspect.type_info(codec.wire_type))
    metadata = made.setdefault("metadata", {}) or {}
    metadata.update(
        name=planter.word(), namespace=planter.word(), uid=planter.word(),
        generateName=planter.word(), labels=notes(planter), annotations=notes(planter),
    )  # fmt: skip
    return {**made, "metadata": metadata}


@pytest.mark.parametrize("kind", RECORDED, ids=lambda each: each.resource)
def test_no_planted_word_is_left(kind):
    """Given an object with a word of its own in every field, no word of them is in its record."""
    whole = {**planted(kind.resource), "apiVersion": "v1", "kind": kind.kind}
    kept = kind.shape(whole)
    plain = msgspec.json.encode(kept).decode()
    hidden = msgspec.json.encode(Pseudonyms(KEY).of_object(kept)).decode()
    if kind.kind == "NodeResourceTopology":  # the names of resources stay, and are values here
        hidden = re.sub(r'"resources":\[\{"name":"\w+"', "", hidden)
    assert plain.count(WORD) >= 5
    assert WORD not in hidden, hidden[max(0, hidden.find(WORD) - 80) :][:160]


# -- the same decisions --------------------------------------------------------------------------
OURS, GPU = "scheduling.gpusched.io/v1alpha1", "nvidia.com/gpu"
ZONE, TEAM = "acme.example/hall", "acme.example/team"
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": ZONE, "labelSelector": {"matchLabels": {TEAM: "spread"}}}
        ]
    }
}
WANTED = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [
                    {"key": "acme.example/kind", "operator": "In", "values": ["gen2"]}]}
            ]
        }
    }
}  # fmt: skip
SECRET = {"key": "acme.example/secret", "value": "project-x", "effect": "NoSchedule"}


def made(version: str, kind: str, name: str, space: str = "", **parts: Any) -> dict[str, Any]:
    meta = {
        "name": name, "uid": f"{kind}-{name}", "resourceVersion": "1", "generation": 1,
        "creationTimestamp": f"2026-01-01T00:00:{len(name):02}Z",
        "labels": parts.pop("labels", {}), "annotations": parts.pop("notes", {}),
        **({"namespace": space} if space else {}),
    }  # fmt: skip
    return {"apiVersion": version, "kind": kind, "metadata": meta, **parts}


def host(number: int, gpus: int, **spec: Any) -> dict[str, Any]:
    amounts = {GPU: str(gpus), "cpu": str(100 + number), "memory": f"{500 + number}Gi",
               "pods": "110"}  # fmt: skip
    labels = {
        ZONE: f"hall-{'ab'[number // 4]}", "acme.example/row": f"row-{number // 2}",
        "acme.example/kind": f"gen{number % 3}", "kubernetes.io/hostname": f"gpu-host-{number}",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    }  # fmt: skip
    status = {"allocatable": amounts, "capacity": amounts,
              "conditions": [{"type": "Ready", "status": "True"}]}  # fmt: skip
    return made("v1", "Node", f"gpu-host-{number}", labels=labels, spec=spec, status=status)


def members(group: str, number: int, gpus: int, **spec: Any) -> list[dict[str, Any]]:
    limits = {GPU: str(gpus), "cpu": "1"}
    return [
        made(
            "v1", "Pod", f"{group}-{each}", "llm-team",
            labels={"gpusched.io/pod-group": group, TEAM: group, "gpusched.io/sub-group": "tp"},
            spec={
                "schedulerName": "gpusched",
                "containers": [{"name": "train", "resources": {"limits": limits}}],
                **spec,
            },
            status={"phase": "Pending"},
        )
        for each in range(number)
    ]  # fmt: skip


def gang(name: str, least: int, queue: str = "research", **spec: Any) -> dict[str, Any]:
    parts = {"queue": queue, "minMember": least, **spec}
    return made(OURS, "PodGroup", name, "llm-team", spec=parts)


def cluster_objects() -> dict[str, list[dict[str, Any]]]:
    """Nodes that all differ, and gangs that hang by every name there is."""
    return {
        "namespaces": [made("v1", "Namespace", "llm-team")],
        "priorityclasses": [
            made("scheduling.k8s.io/v1", "PriorityClass", "acme-urgent", value=1000)],
        "queues": [
            made(OURS, "Queue", "acme", spec={"capability": {GPU: "200"}}),
            made(OURS, "Queue", "research", spec={"parent": "acme", "deserved": {GPU: "40"}}),
            made(OURS, "Queue", "capped", spec={"parent": "acme", "capability": {GPU: "2"}}),
        ],
        "topologies": [
            made(OURS, "Topology", "acme-net", spec={"levels": [
                {"name": "hall", "nodeLabel": ZONE}, {"name": "row", "nodeLabel": "acme.example/row"},
            ]})],
        "nodes": [
            *(host(number, number + 3) for number in range(7)),
            host(7, 16, taints=[SECRET]),
        ],
        "podgroups": [
            gang("in-one-row", 2, topology={"required": "row"}),
            gang("spread", 2), gang("chosen", 1), gang("tolerant", 1),
            gang("too-much", 2, queue="capped"), gang("nowhere", 1),
            gang("lost", 1, queue="no-such-queue"),
            gang("urgent", 1, priorityClassName="acme-urgent"),
            gang("parts", 2, subGroups=[{"name": "tp", "minMember": 2,
                                          "topology": {"required": "hall"}}]),
        ],
        "pods": [
            *members("in-one-row", 2, 5), *members("spread", 2, 1, affinity=APART),
            *members("chosen", 1, 2, affinity=WANTED), *members("too-much", 2, 2),
            *members("tolerant", 1, 16, tolerations=[{k: SECRET[k] for k in ("key", "value")}]),
            *members("nowhere", 1, 1, nodeSelector={"acme.example/kind": "gen9"}),
            *members("lost", 1, 1), *members("urgent", 1, 4), *members("parts", 2, 2),
        ],
    }  # fmt: skip


def decided(objects: dict[str, list[dict[str, Any]]]) -> Plan:
    """What one session makes of these objects."""
    cache = Cache(DEFAULT.scheduler_names)
    wrong: list[Rejected] = []
    into = make_event_handlers(cache, lambda _kind, rejected: wrong.append(rejected))
    for kind, items in objects.items():
        codec: Any = CODECS[kind]
        page = {"metadata": {"resourceVersion": "1"}, "items": items}
        into[kind].replace(codec.decode_page(msgspec.json.encode(page)).items)
    assert wrong == []
    return decide(
        cache.take_snapshot(1_767_226_000.0),
        load_policy(DEFAULT),
        guard=PluginGuard(SystemClock()),
        session_cache=SessionCache(),
        placement=DEFAULT.placement,
    ).plan


def test_pseudonyms_change_no_decision():
    """Given gangs that hang by labels, levels, taints and queues, the plan is the same, renamed."""
    names = Pseudonyms(KEY)
    shapes = {each.resource.partition(".")[0]: each.shape for each in RECORDED}
    plain = {
        kind: [shapes[kind](item) for item in items] for kind, items in cluster_objects().items()
    }
    hidden = {kind: [names.of_object(item) for item in items] for kind, items in plain.items()}
    text = msgspec.json.encode(hidden)
    for word in (b"acme", b"llm", b"urgent", b"project", b"hall", b"gen2", b"host-", b"research"):
        assert word not in text
    one, other = decided(plain), decided(hidden)

    def binds(plan: Plan, rename: Any) -> set[tuple[str, str, int]]:
        return {
            (rename(bind.key.name), rename(bind.node), bind.slots)
            for gang in plan.binds
            for bind in gang.binds
        }

    assert binds(other, str) == binds(one, names.pseudonym)
    assert len(binds(one, str)) >= 9

    def told(plan: Plan, rename: Any) -> set[tuple[str, str, str, bool]]:
        return {
            (rename(each.gang.name), rename(each.queue), each.scheduled.reason, each.is_admitted)
            for each in plan.gangs
        }

    assert told(other, str) == told(one, names.pseudonym)
    reasons = {reason for _, _, reason, _ in told(one, str)}
    assert {"NoFeasibleNode", "QueueNotFound"} <= reasons
