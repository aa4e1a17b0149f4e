"""Schemas of built-in kinds: decoding, pruning, validation subset, quantities."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.cel.quantities import (
    PATTERN_TEXT,
    QuantityFormatError,
    canonical_quantity,
    parse_quantity,
)
from gpusched.devcluster.schema.schema import NoSchema, load_builtin

POD = load_builtin("", "v1", "Pod")


def pod(**spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def test_strict_errors_name_the_path():
    """P5: unknown fields are told with their paths, in the order of the object."""
    body = pod(nonsense=1)
    body["spec"]["containers"][0]["foo"] = 1
    body["metadata"]["labels"] = {"any": "thing"}
    assert POD.strict_errors(body) == [
        'unknown field "spec.containers[0].foo"',
        'unknown field "spec.nonsense"',
    ]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (pod(), None),
        (
            pod(priority="high"),
            (
                "json: cannot unmarshal string into Go struct field PodSpec.spec.priority "
                "of type int32"
            ),
        ),
        (
            pod(containers="x"),
            (
                "json: cannot unmarshal string into Go struct field PodSpec.spec.containers "
                "of type []v1.Container"
            ),
        ),
        (
            pod(containers=[{"name": "c", "env": [{"name": "A", "value": 1}]}]),
            (
                "json: cannot unmarshal number into Go struct field "
                "EnvVar.spec.containers.env.value of type string"
            ),
        ),
        (
            pod(priority=2**40),
            (
                "json: cannot unmarshal number 1099511627776 into Go struct field "
                "PodSpec.spec.priority of type int32"
            ),
        ),
        (
            {**pod(), "metadata": {"labels": {"a": 1}}},
            (
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels "
                "of type string"
            ),
        ),
        (
            pod(containers=[{"name": "c", "resources": {"limits": {"cpu": "many"}}}]),
            PATTERN_TEXT,
        ),
        (
            {**pod(), "metadata": {"creationTimestamp": "soon"}},
            'parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"',
        ),
    ],
)
def test_decode_errors(body, told):
    """P4, P5: the first value of a wrong type is told in the decoder's words."""
    assert POD.decode_error(body) == told


def test_pruning_gives_the_stored_form():
    """Unknown fields, nulls and empty optional collections go; structures and zeros stay."""
    body = pod(nonsense=1, tolerations=[], nodeSelector={}, securityContext={}, priority=0)
    body["metadata"] |= {"creationTimestamp": None, "labels": {}, "annotations": {"a": ""}}
    body["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1000m", "memory": 1024}}
    kept = copy.deepcopy(body)
    pruned = POD.prune(body)
    assert body == kept
    assert pruned["metadata"] == {"name": "p", "annotations": {"a": ""}}
    assert pruned["spec"] == {
        "containers": [
            {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1024"}}}
        ],
        "securityContext": {},
        "priority": 0,
        "volumes": [{"name": "v", "emptyDir": {}}],
    }


def test_the_few_defaults_of_the_documents():
    """A port's protocol is TCP; zero defaults are not written out."""
    body = pod(containers=[{"name": "c", "ports": [{"containerPort": 80}]}])
    assert POD.apply_defaults(body)["spec"]["containers"] == [
        {"name": "c", "ports": [{"containerPort": 80, "protocol": "TCP"}]}
    ]


def test_validation_subset():
    """P3: required and enumerated fields outside metadata and status."""
    errors = [
        f"{e.field}: {e.text}"
        for e in POD.validate({"spec": {"containers": [], "restartPolicy": "Often"}, "status": {}})
    ]
    assert errors == [
        "spec.containers: Required value",
        (
            'spec.restartPolicy: Unsupported value: "Often": '
            'supported values: "Always", "Never", "OnFailure"'
        ),
    ]


def test_lookup_of_nested_fields():
    """Lists are stepped through; merge keys are there."""
    containers = POD.at("spec", "containers")
    assert containers is not None
    assert (containers.merge_key, containers.map_keys) == ("name", ("name",))
    assert POD.at("spec", "containers", "image").type == "string"
    assert POD.at("spec", "nonsense", "image") is None


@pytest.mark.parametrize("args", [("", "v1", "Nope"), ("nope.io", "v1", "Nope")])
def test_unknown_kinds(args):
    """A kind that is not shipped is refused, not invented."""
    with pytest.raises(NoSchema):
        load_builtin(*args)


def test_recursive_schemas_can_be_walked():
    """A CRD holds schemas of schemas."""
    crd = load_builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    deep = {"type": "object", "properties": {"a": {"not": {"type": "string", "zzz": 1}}}}
    body = {"spec": {"versions": [{"schema": {"openAPIV3Schema": deep}}]}}
    place = "spec.versions[0].schema.openAPIV3Schema.properties.a.not.zzz"
    assert crd.strict_errors(body) == [f'unknown field "{place}"']


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        (1, "1"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1000Ki", "1000Ki"),
        ("1e3", "1e3"),
        ("100k", "100k"),
        ("1000k", "1M"),
        ("0.5Mi", "512Ki"),
        ("512", "512"),
        ("0.5Ki", "512"),
        ("-1", "-1"),
        ("+2", "2"),
        ("0Gi", "0"),
        ("1E", "1E"),
        ("1E3", "1e3"),
        ("0.0000000001", "1n"),
        ("99999999999999999999", "99999999999999999999"),
    ],
)
def test_canonical_quantities(text, same):
    """Quantities print with the largest suffix that leaves no fraction."""
    assert canonical_quantity(text) == same


@pytest.mark.parametrize("text", ["many", "", "1.2.3", "Gi", "1 Gi", "1e", "0x1", "1e99999999"])
def test_unreadable_quantities(text):
    """What is not a quantity says so in the server's words."""
    with pytest.raises(QuantityFormatError, match="quantities must match"):
        parse_quantity(text)


@given(st.integers(-(10**30), 10**30), st.sampled_from(["", "m", "k", "Ki", "Gi", "e3", "n"]))
def test_canonical_form_keeps_the_value(number, suffix):
    """Printing a quantity loses nothing and is stable."""
    text = f"{number}{suffix}"
    assert parse_quantity(canonical_quantity(text)) == parse_quantity(text)
    assert canonical_quantity(canonical_quantity(text)) == canonical_quantity(text)
