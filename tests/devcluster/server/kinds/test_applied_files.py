"""Files applied at the start: order, definitions before their objects, clear refusals."""

import pytest
import yaml

from gpusched.base.errors import ConfigError
from gpusched.devcluster.cluster import ClusterOptions, start

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gadgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}
GADGET = {
    "apiVersion": "example.com/v1",
    "kind": "Gadget",
    "metadata": {"name": "g", "namespace": "team"},
}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}


def options(folder):
    return ClusterOptions(stages=False, controllers=False, apply=[folder])


async def test_what_others_stand_on_comes_first(tmp_path):
    """A namespace and a definition may stand in files that sort behind their users."""
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(GADGET))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump_all([DEFINITION, NAMESPACE]))
    cluster = await start(options(tmp_path))
    try:
        assert cluster.client.get("gadgets.example.com", "team", "g") is not None
    finally:
        await cluster.close()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kind: [", "is no YAML"),
        ("- 1", "holds something that is no object"),
        ("{apiVersion: x.example.com/v1, kind: Gadget, metadata: {name: g}}", "serves no Gadget"),
        ("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {}}", "spec.containers"),
    ],
)
async def test_a_file_that_cannot_be_applied_is_named(tmp_path, text, sentence):
    """The start fails with one sentence that names the file and the reason."""
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=sentence) as refusal:
        await start(options(tmp_path))
    assert "bad.yaml" in str(refusal.value)


@pytest.mark.parametrize("text", [None, "", "# nothing\n---\n"])
async def test_a_folder_without_an_object_is_named(tmp_path, text):
    """Nothing to apply is a mistake of who names the folder, as for kubectl."""
    if text is not None:
        (tmp_path / "empty.yaml").write_text(text)
    with pytest.raises(ConfigError, match="there is no object in it to apply"):
        await start(options(tmp_path))


@pytest.mark.parametrize(
    ("raw", "why"),
    [(b"a: \xe6\xff", "is no UTF-8 text"), (b"a: [", "is no YAML"), (b"- \x08", "is no YAML")],
)
async def test_files_that_are_something_else(tmp_path, raw, why):
    """Pictures and torn files end the start with one line that names the file."""
    (tmp_path / "odd.yaml").write_bytes(raw)
    with pytest.raises(ConfigError, match=f"odd.yaml {why}") as told:
        await start(options(tmp_path))
    assert "\n" not in str(told.value)
