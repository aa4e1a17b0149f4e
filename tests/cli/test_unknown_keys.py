"""A label or annotation that nothing reads is told where its author asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gpusched
from gpusched.base.known_keys import KNOWN_KEYS
from gpusched.cli.inspect.explaining.unknown_keys import unknown_keys
from gpusched.cli.main import main
from tests.cli.canned_objects import pod

KEY = re.compile(r'"(gpusched\.io/[a-z][a-z-]*[a-z])"')


def test_every_key_in_the_code_is_known():
    """Given a new key somewhere, then it is not called misspelt."""
    files = Path(gpusched.__file__).parent.rglob("*.py")
    found = {key for file in files for key in KEY.findall(file.read_text())}
    assert len(found) > 40
    assert found - KNOWN_KEYS == set()


def test_every_key_that_is_written_down_is_known():
    """Given a key in the manifests, the scenarios or their pages, then its users are not told otherwise."""
    root = Path(__file__).parents[2]
    files = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("manifests/**/*.yaml")]
    files += [*root.glob("kwok-scenarios/**/*.yaml"), *root.glob("kwok-scenarios/*.md")]
    written = re.compile(r"(?<![\w./-])gpusched\.io/[a-z][a-z-]*[a-z]\b")
    found = {key for file in files for key in written.findall(file.read_text())}
    assert len(found) > 40
    assert found - KNOWN_KEYS == {"gpusched.io/min-membr"}  # the example of a misspelt one


@pytest.mark.parametrize(
    ("kind", "key", "says"),
    [
        ("annotations", "gpusched.io/min-membr", "did you mean gpusched.io/min-member?"),
        ("labels", "gpusched.io/podgroup", "did you mean gpusched.io/pod-group?"),
        ("labels", "gpusched.io/zzz", "label gpusched.io/zzz means nothing to gpusched"),
    ],
)
def test_a_key_that_means_nothing_is_told_with_the_one_that_was_meant(kind, key, says):
    """Known keys, and keys of others, are passed over."""
    metadata = {kind: {key: "2", "gpusched.io/queue": "a", "example.com/min-membr": "1"}}
    (told,) = unknown_keys([{"metadata": metadata}, {"metadata": None}, {}])
    assert told.startswith(f"{kind.removesuffix('s')} {key} means nothing to gpusched")
    assert says in told


def test_explain_tells_of_misspelt_keys(cluster, capsys):
    """Given a pod that should have been a gang of two, then the key that was meant is told."""
    made = pod("x")
    made["metadata"]["annotations"] = {"gpusched.io/min-membr": "2"}
    cluster.objects |= {
        "/api/v1/namespaces/team-a/pods/x": made,
        "/api/v1/namespaces/team-a/events": [],
    }
    assert main(["explain", "pod", "x"]) == 0
    assert "did you mean gpusched.io/min-member?" in capsys.readouterr().out
