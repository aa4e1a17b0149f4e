"""Pages of lists of which everything is known: nothing but what identifies the objects is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusched.api.meta.codec import ListedHead, read_known_page
from gpusched.api.serializer.codecs import CODECS

RECORDED = Path(__file__).parent / "recorded"


def all_known(_head: ListedHead) -> bool:
    return True


@pytest.mark.parametrize("plural", ["jobs", "nodes", "pods"])
def test_a_recorded_list_of_known_objects_is_read_as_heads(plural):
    """Given what a real API server returned, then heads name the objects and versions that decoding them finds."""
    body = (RECORDED / f"{plural}-list.json").read_bytes()
    whole, heads = CODECS[plural].decode_page(body), read_known_page(body, all_known)
    assert heads is not None
    assert [
        (each.namespace, each.name, each.uid, each.resource_version) for each in heads.items
    ] == [
        (getattr(each, "namespace", ""), each.name, each.uid, each.resource_version)
        for each in whole.items
    ]
    assert (heads.resource_version, heads.continue_token) == (
        whole.resource_version,
        whole.continue_token,
    )


def test_a_list_with_one_unknown_object_is_to_be_decoded(wire, pod):
    """Given a list of two pods of which one is known, then there are no heads."""
    other = {**pod, "metadata": {**pod["metadata"], "name": "other"}}
    body = wire.page("pods", pod, other)
    assert read_known_page(body, lambda head: head.name != "other") is None
    assert read_known_page(body, all_known) is not None


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata": {"resourceVersion": "9"}, "items": null}',
        b'{"metadata": {"resourceVersion": "9"}, "items": []}',
        b'{"metadata": {}, "items": [{"metadata": {"name": "a"}}]}',
        b'{"metadata": {"resourceVersion": "9"}, "items": [{"metadata": []}]}',
        b'{"metadata": {"resourceVersion": "9"}, "items": [7]}',
        b"not JSON",
    ],
)
def test_what_is_no_list_of_objects_is_left_to_decoding(body):
    """Given no objects, no version, or what is none, then there are no heads: decoding tells what is wrong."""
    assert read_known_page(body, all_known) is None
