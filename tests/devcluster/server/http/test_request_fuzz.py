"""Whatever is sent to any served kind, the server blames the client or nobody, and goes on."""

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.devcluster.apimachinery.status import StatusError

from .request_fuzz import Fuzz

RECORDED = ("target.", "failed to create typed patch object", "declared merge key")
"""Beginnings of what a real server calls its own fault: bindings (B6) apply typing, merge keys."""


def outcome(fuzz, request):
    try:
        return fuzz.endpoints.serve(request).code, ""
    except StatusError as refusal:
        json.dumps(refusal.body)
        return refusal.code, refusal.message


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_no_request_is_a_fault_of_the_server(seed):
    """No exception, no 5xx but the recorded ones, 501 and 504; afterwards a list is answered."""
    fuzz, rng = Fuzz(seed), random.Random(seed)
    for _ in range(250):
        request = fuzz.request(rng)
        code, message = outcome(fuzz, request)
        known = any(text in message for text in RECORDED)
        assert code < 500 or code in {501, 504} or known, (request, message)
    namespaces = fuzz.request(random.Random(0))
    assert fuzz.access is namespaces.access
    assert len(fuzz.api.core.store.collection("namespaces")) >= 4
