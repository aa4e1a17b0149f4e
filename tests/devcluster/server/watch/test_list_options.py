"""Queries of lists, watches and writes: every refusal in the API server's words."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        (
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("(", "found '(', expected: !, identifier, or 'end of string'"),
        (
            "a>x",
            (
                'unable to parse requirement: values[0]: Invalid value: "x": '
                "for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
    ],
)
async def test_bad_label_selectors(http, selector, why):
    """A selector that cannot be read is a 400 with the parser's sentence."""
    reply = await http.get(f"{PODS}?labelSelector={quote(selector)}")
    assert (reply.code, reply.message) == (400, why)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("a in (x, z)", ["p-x"]),
        ("a in ()", ["p-empty"]),
        ("a in (x,)", ["p-empty", "p-x"]),
        ("a notin ( x , y )", ["p-empty", "p-none"]),
        (" a = x ", ["p-x"]),
        ("a=", ["p-empty"]),
        ("!a", ["p-none"]),
        ("n>2", ["p-y"]),
        ("n<3,a", ["p-x"]),
    ],
)
async def test_label_selectors_with_spaces_and_empty_values(http, selector, names):
    """White space means nothing; an empty set stands for the empty value."""
    labels = {"x": {"a": "x", "n": "2"}, "y": {"a": "y", "n": "3"}, "empty": {"a": ""}, "none": {}}
    for name, those in labels.items():
        await http.create_pod(f"p-{name}", labels=those)
    reply = await http.get(f"{PODS}?labelSelector={quote(selector)}")
    assert [p["metadata"]["name"] for p in reply.body["items"]] == names


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("metadata.name=\\x", "invalid field selector: invalid escape sequence: \\x"),
        ("metadata.uid=x", "field label not supported: metadata.uid"),
    ],
)
async def test_bad_field_selectors(http, selector, why):
    """A field selector that cannot be read, or names a field nobody indexes, is a 400."""
    reply = await http.get(f"{PODS}?fieldSelector={quote(selector)}")
    assert (reply.code, reply.message) == (400, why)


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("resourceVersionMatch=Exact", ["Forbidden: resourceVersionMatch is forbidden unless"]),
        (
            "resourceVersionMatch=Odd&resourceVersion=1",
            ['Unsupported value: "Odd": supported values: "Exact", "NotOlderThan", ""'],
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0&sendInitialEvents=true",
            [
                'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
                "Forbidden: sendInitialEvents is forbidden for list",
            ],
        ),
        (
            "resourceVersionMatch=Exact&continue=abc",
            [
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                "Forbidden: resourceVersionMatch is forbidden when continue is provided",
            ],
        ),
        (
            "watch=1&resourceVersionMatch=Exact&resourceVersion=1",
            [
                "Forbidden: resourceVersionMatch is forbidden for watch unless",
                'Unsupported value: "Exact": supported values: "NotOlderThan"',
            ],
        ),
        (
            "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact",
            [
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to",
                'Unsupported value: "Exact": supported values: "NotOlderThan"',
            ],
        ),
    ],
)
async def test_options_that_do_not_go_together(http, query, fields):
    """Every forbidden combination is told, in the order of the checks."""
    reply = await http.get(f"{PODS}?{query}")
    assert reply.code == 422
    assert reply.message.startswith('ListOptions.meta.k8s.io "" is invalid: ')
    causes = [c["message"] for c in reply.body["details"]["causes"]]
    assert len(causes) == len(fields)
    assert all(have.startswith(want) for have, want in zip(causes, fields, strict=True))


async def test_a_page_token_excludes_a_version(http):
    """Pages know their version; asking for another is refused, zero is not."""
    for i in range(3):
        await http.create_pod(f"p-{i}")
    first = (await http.get(f"{PODS}?limit=1")).body["metadata"]
    token = first["continue"]
    reply = await http.get(f"{PODS}?limit=1&continue={token}&resourceVersion=5")
    assert reply.code == 400
    assert reply.message == "specifying resource version is not allowed when using continue"
    assert (await http.get(f"{PODS}?limit=1&continue={token}&resourceVersion=0")).code == 200


async def test_pages_of_a_past_version_are_exact(http):
    """With a limit, a version alone means exactly that version."""
    made = await http.create_pod("p-0")
    version = made["metadata"]["resourceVersion"]
    await http.create_pod("p-1")
    paged = await http.get(f"{PODS}?limit=5&resourceVersion={version}")
    assert [p["metadata"]["name"] for p in paged.body["items"]] == ["p-0"]
    whole = await http.get(f"{PODS}?resourceVersion={version}")
    assert len(whole.body["items"]) == 2


async def test_an_expired_page_token_brings_a_way_on(http, monkeypatch):
    """The 410 of a page carries a token that goes on with what is there now."""
    await http.create_pod("p-0")
    await http.create_pod("p-1")
    token = (await http.get(f"{PODS}?limit=1")).body["metadata"]["continue"]
    pods = http.cluster.core.store.collection("pods")
    monkeypatch.setattr(pods, "trimmed_version", 10**6)
    reply = await http.get(f"{PODS}?limit=1&continue={token}")
    assert reply.code == 410
    assert reply.message.startswith("The provided continue parameter is too old to display")
    onward = reply.body["metadata"]["continue"]
    padded = onward + "=" * (-len(onward) % 4)
    assert json.loads(base64.urlsafe_b64decode(padded))["rv"] == -1
    exact = await http.get(f"{PODS}?resourceVersion=2&resourceVersionMatch=Exact")
    assert exact.code == 410
    assert exact.message == "The resourceVersion for the provided list is too old."


async def test_a_watch_of_no_version_names_the_resource(http):
    """A watch refuses a version that is no number as invalid, a list as a bad request."""
    reply = await http.get(f"{PODS}?watch=1&resourceVersion=abc")
    assert reply.code == 422
    assert reply.message == (
        'pods "" is invalid: resourceVersion: Invalid value: "abc": strconv.ParseUint: '
        'parsing "abc": invalid syntax'
    )


async def test_old_watch_paths(http):
    """The paths under /watch/ still watch: all, one namespace, one name."""
    await http.create_pod("p-0")
    await http.create_pod("p-1")
    assert len(await http.watch("/api/v1/watch/pods", 2)) == 2
    [event] = await http.watch("/api/v1/watch/namespaces/default/pods/p-1", 1)
    assert event["object"]["metadata"]["name"] == "p-1"
    assert (await http.post("/api/v1/watch/pods", {})).code == 405


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("dryRun=Some", 'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
        (
            "fieldValidation=Odd",
            (
                'fieldValidation: Unsupported value: "Odd": '
                'supported values: "", "Ignore", "Strict", "Warn"'
            ),
        ),
        ("fieldManager=" + "x" * 129, "fieldManager: Too long: may not be more than 128 bytes"),
    ],
)
async def test_options_of_writes(http, query, why):
    """Options are checked before the body, under the kind of the verb's options."""
    made = await http.post(f"{PODS}?{query}", {})
    assert (made.code, made.message) == (422, f'CreateOptions.meta.k8s.io "" is invalid: {why}')
    put = await http.put(f"{PODS}/x?{query}", {})
    assert put.message == f'UpdateOptions.meta.k8s.io "" is invalid: {why}'
    patch = await http.patch(f"{PODS}/x?{query}", {})
    assert patch.message == f'PatchOptions.meta.k8s.io "" is invalid: {why}'


async def test_only_applies_are_forced(http):
    """Force belongs to applies."""
    reply = await http.patch(f"{PODS}/x?force=true", {})
    assert reply.message.endswith("force: Forbidden: may not be specified for non-apply patch")
