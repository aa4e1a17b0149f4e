"""Pages of pods between processes of ours: what comes out is what decoding here would have given."""

from __future__ import annotations

import json

import pytest

from benchmarks.inputs import gang_pod, listed_pods, page
from gpusched.api.meta.identity import NO_CREATOR
from gpusched.api.pod.columns import PodsReader, PodsWriter
from gpusched.api.pod.decode import PODS
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS

from .test_recorded import read as read_recorded


def _gang(index):
    made = gang_pod(index)
    made["metadata"] |= {"uid": f"u{index}", "resourceVersion": "7"}
    made["metadata"]["annotations"] |= {
        "gpusched.io/user": "ada", "gpusched.io/hold": "until noon", "gpusched.io/min-member": "8",
    }  # fmt: skip
    made["metadata"]["labels"]["app.kubernetes.io/name"] = f"name {index}"
    return json.dumps(made).encode()


PAGES = {
    "a cluster's": page(listed_pods(300, seed=3, templates=20, nodes=50), token="on"),
    "of one template": page(listed_pods(40, seed=3, templates=1), token=""),
    "of one pod": page(listed_pods(1, seed=3), token=""),
    "with wishes": page([_gang(index) for index in range(20)], token=""),
    "recorded": read_recorded("pods-list.json"),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_comes_out_as_it_was(name):
    """Given a page, written and read again it is equal in every field, and shares what decoding shares."""
    decoded = PODS.decode_page(PAGES[name])
    again = PodsReader().read(PodsWriter().write(decoded))
    assert again == decoded
    for was, now in zip(decoded.items, again.items, strict=True):
        assert now.pod_class is was.pod_class
        assert type(now.labels) is type(was.labels)
        assert now.labels is was.labels
        assert (now.creator is NO_CREATOR) == (was.creator is NO_CREATOR)
        assert (now.hints is NO_GANG_ANNOTATIONS) == (was.hints is NO_GANG_ANNOTATIONS)


def test_a_class_is_sent_once():
    """Given two pages of one template, the second one names its class and is read in their order only."""
    writer, reader = PodsWriter(), PodsReader()
    bodies = listed_pods(40, seed=3, templates=1)
    pages = [PODS.decode_page(page(each, token="")) for each in (bodies[:20], bodies[20:])]
    first, second = (writer.write(each) for each in pages)
    with pytest.raises(KeyError):
        reader.read(second)
    assert reader.read(first) == pages[0]
    assert reader.read(second) == pages[1]


def test_a_page_with_an_object_that_cannot_be_believed_is_left_to_the_daemon():
    """Given a pod without a UID among others, nothing is written: who reads it has to say why."""
    bodies = listed_pods(3, seed=3)
    bodies.append(b'{"metadata":{"name":"n","namespace":"n"},"spec":{}}')
    assert PodsWriter().write(PODS.decode_page(page(bodies, token=""))) == b""
    assert PodsWriter().write(PODS.decode_page(page([], token=""))) == b""
