"""Every recorded exchange with a real API server is answered as it was recorded."""

from __future__ import annotations

from typing import Any, Final

import aiohttp
import pytest

from gpusched.devcluster.cluster import ClusterOptions, start
from gpusched.devcluster.registry.gangs.features import all_gates

from .wire_compare import Tokens, differences, trimmed_differences
from .wire_player import ORDER, Player, Report

EXPECTED: Final = {}
"""Each answer that differs, and why; docs/devcluster.md has the same list."""

TOPICS_ANSWERS: Final = 241
GANG_ANSWERS: Final = 96


async def _play() -> Report:
    cluster = await start(ClusterOptions(stages=False))
    users = {"": cluster.token, "unprivileged user": "usertoken", "bad token": "garbage"}
    try:
        async with aiohttp.ClientSession() as session:
            player = Player(session, cluster.url, users)
            for topic in ORDER:
                await player.play(topic)
            cluster.core.store.open_window()  # as a restart does: old versions are forgotten
            await player.play("expired-versions")
            return player.report
    finally:
        await cluster.close()


@pytest.mark.early
async def test_recorded_exchanges_are_answered_as_recorded():
    """All recordings agree in status, media type and body, but for the listed differences.

    A listed difference that is none any more fails too: the list says what is.
    """
    report = await _play()
    assert report.answers == TOPICS_ANSWERS
    unexpected = {
        f"{name} {report.steps.get(name, '')}": found
        for name, found in report.disagreeing.items()
        if name not in EXPECTED
    }
    assert unexpected == {}
    assert [name for name in EXPECTED if name not in report.disagreeing] == []


async def _play_gangs() -> Report:
    cluster = await start(ClusterOptions(stages=False, gangs=all_gates("1.36")))
    users = {"": cluster.token, "unprivileged user": "usertoken"}
    try:
        async with aiohttp.ClientSession() as session:
            player = Player(session, cluster.url, users)
            await player.play("native-gangs")
            return player.report
    finally:
        await cluster.close()


async def test_gangs_of_kubernetes_are_answered_as_recorded():
    """The kinds, the pod field and the Job controller answer as with their gates open."""
    report = await _play_gangs()
    assert report.answers == GANG_ANSWERS
    named = {
        f"{name} {report.steps.get(name, '')}": found for name, found in report.disagreeing.items()
    }
    assert named == {}


def versioned(version: str) -> Any:
    return {"metadata": {"resourceVersion": version}}


def a_list(version: str, *versions: str) -> Any:
    return {"kind": "PodList", **versioned(version), "items": [versioned(v) for v in versions]}


def a_bookmark(version: str) -> Any:
    return {"type": "BOOKMARK", "object": versioned(version)}


@pytest.mark.parametrize(
    ("recorded", "served"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {}),
        ({}, {"a": 1}),
        ({"a": None}, {}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": [1]}, {"a": [1, 1]}),
        ({"a": "<uid:1>", "b": "<uid:1>"}, {"a": "x", "b": "y"}),
        ({"a": "<uid:1>", "b": "<uid:2>"}, {"a": "x", "b": "x"}),
        ({"a": "<time>"}, {"a": "yesterday"}),
        ({"a": 'pods "<name:1>" of <rv:1>'}, {"a": 'pods "x"'}),
        ({"message": "Invalid value: {1}: field is immutable"}, {"message": "field is immutable"}),
        (a_list("<rv:1>", "<rv:1>"), a_list("6", "7")),
        (a_list("<rv:1>", "<rv:1>"), a_list("x", "7")),
        (a_list("<rv:1>", "<rv:1>"), {"kind": "PodList", "items": [versioned("7")]}),
        (a_list("<rv:1>", "<rv:1>", "<rv:1>"), a_list("7", "7", "6")),
        (a_bookmark("<rv:1>"), a_bookmark("")),
        (a_bookmark("<rv:1>"), {"type": "BOOKMARK", "object": {}}),
    ],
)
def test_the_comparison_sees_a_difference(recorded: Any, served: Any):
    """Values, absence, surplus, order, types, tokens and texts count."""
    assert list(differences(recorded, served, Tokens()))


@pytest.mark.parametrize(
    ("recorded", "served"),
    [
        ({"kind": "L", "items": 2}, {"kind": "L", "items": [{}]}),
        ({"kind": "L", "items": ["a"]}, {"kind": "L", "items": [{"metadata": {"name": "b"}}]}),
        ({"active": 2}, {"status": {"active": 1}}),
        ({"active": 2}, {"status": {"active": 2, "failed": 1}}),
        (True, {"spec": {"suspend": False}}),
        ({"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}),
        ({"rows": 3}, {"kind": "Table", "rows": [{}]}),
    ],
)
def test_the_comparison_of_trimmed_bodies_sees_a_difference(recorded: Any, served: Any):
    """Counts, names, parts and named fields count."""
    assert trimmed_differences(recorded, served, Tokens())


def test_the_comparison_takes_what_only_the_server_decides():
    """Tokens, times, build texts, ages and managed fields may have any fitting value."""
    recorded = {
        "uid": "<uid:1>",
        "again": "<uid:1>/<time>",
        "gitVersion": "v1",
        "message": "too old resource version: 1 (507)",
        "kind": "Table",
        "rows": [{"cells": ["a", "5s"]}],
    }
    served = {
        "uid": "x",
        "again": "x/2026-01-01T00:00:00.5Z",
        "gitVersion": "v2",
        "message": "too old resource version: 1 (9)",
        "kind": "Table",
        "rows": [{"cells": ["a", "<unknown>"]}],
        "managedFields": [],
    }
    assert list(differences(recorded, served, Tokens())) == []


def test_writes_of_the_server_itself_may_stand_between_an_object_and_a_list():
    """A list is as new as its objects or newer, and what it learns is the version of the object."""
    tokens = Tokens()
    assert list(differences(a_list("<rv:7>", "<rv:7>"), a_list("165", "164"), tokens)) == []
    assert list(differences(versioned("<rv:7>"), versioned("164"), tokens)) == []
    assert list(differences(a_bookmark("<rv:7>"), a_bookmark("170"), tokens)) == []
    assert tokens.fill("<rv:7>") == "164"
