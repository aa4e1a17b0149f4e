"""``get reservations`` and ``explain reservation``, over real HTTP against canned answers."""

from __future__ import annotations

import json

import pytest

from gpusched.cli.main import main
from tests.cli.canned_objects import API

FIRMWARE = {
    "metadata": {"name": "firmware", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {
        "purpose": "Maintenance",
        "from": "2026-12-01T18:00:00Z",
        "duration": "2h",
        "nodeNames": ["n1", "n2"],
        "recurring": {"every": "168h"},
    },
    "status": {
        "phase": "Announced",
        "from": "2026-12-08T18:00:00Z",
        "to": "2026-12-08T20:00:00Z",
        "nodes": ["n1", "n2"],
        "nodeCount": 2,
        "gangsInTheWay": 1,
        "conditions": [
            {"type": "Ready", "status": "True", "message": "2 nodes are kept; 1 gang is evicted"}
        ],
    },
}
COURSE = {
    "metadata": {"name": "course"},
    "spec": {"from": "2026-12-01T18:00:00Z", "duration": "2h", "nodes": 2, "queues": ["q"]},
}
ODD = {"metadata": {"name": "odd\x1b[31m"}, "spec": "nonsense", "status": []}


@pytest.fixture
def reserved(cluster):
    """A cluster with three Reservations, of which one cannot be read and one was not looked at."""
    cluster.objects[f"{API}/reservations"] = [FIRMWARE, ODD, COURSE]
    cluster.objects["/api/v1/pods"] = []
    return cluster


def test_reservations_are_listed_by_name_with_what_a_daemon_said(reserved, capsys):
    """Given three of them, each has a line, and what nobody has said is empty."""
    assert main(["get", "reservations", "-o", "wide"]) == 0
    header, course, firmware, odd = capsys.readouterr().out.splitlines()
    assert header.split()[:8] == [
        "NAME", "PURPOSE", "PHASE", "FROM", "TO", "NODES", "FOR", "GANGS",
    ]  # fmt: skip
    assert course.split() == ["course", "Reserved", "q", "<unknown>"]
    assert firmware.split()[:6] == [
        "firmware", "Maintenance", "Announced", "2026-12-08T18:00:00Z", "2026-12-08T20:00:00Z", "2",
    ]  # fmt: skip
    assert "n1,n2" in firmware
    assert firmware.endswith("2 nodes are kept; 1 gang is evicted")
    assert "\x1b" not in odd


def test_reservations_are_listed_as_names_and_as_json(reserved, capsys):
    """Given -o, then what scripts read is what the API has."""
    assert main(["get", "gres", "-o", "name"]) == 0
    assert "reservation.scheduling.gpusched.io/firmware" in capsys.readouterr().out.splitlines()
    assert main(["get", "reservation", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["metadata"]["name"] for each in listed["items"]][:2] == ["course", "firmware"]


def test_a_cluster_without_the_kind_is_told_how_to_get_it(cluster, capsys):
    """Given no CRD, one sentence says which file brings it."""
    assert main(["get", "reservations"]) != 0
    assert "kubectl apply -f manifests/crds/reservations.yaml" in capsys.readouterr().err


def test_a_reservation_is_explained(reserved, capsys):
    """Given one with windows that recur, the daemon's sentence comes first, then window and nodes."""
    reserved.objects[f"{API}/reservations/firmware"] = FIRMWARE
    assert main(["explain", "reservation", "firmware"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Reservation firmware: Announced (Maintenance)",
        "  why      2 nodes are kept; 1 gang is evicted",
        "  window   2026-12-08T18:00:00Z to 2026-12-08T20:00:00Z",
        "  again    every 168h",
        "  for      nobody",
        "  nodes    n1, n2",
    ]


def test_windows_on_weekdays_are_explained_in_their_zone(reserved, capsys):
    """Given weekdays in a zone, the line has their time of day there; an unknown zone is not guessed."""
    recurring = {"weekdays": ["Mon", "Tue"], "timeZone": "Europe/Berlin"}
    ends = {"until": "2027-06-30T00:00:00Z"}
    for more, expected in (
        ({}, "on Mon, Tue at 19:00 Europe/Berlin"),
        (ends, "on Mon, Tue at 19:00 Europe/Berlin until 2027-06-30T00:00:00Z"),
        ({"timeZone": "Berlin"}, "on Mon, Tue"),
    ):
        spec = {**FIRMWARE["spec"], "recurring": {**recurring, **more}}
        reserved.objects[f"{API}/reservations/firmware"] = {**FIRMWARE, "spec": spec}
        assert main(["explain", "reservation", "firmware"]) == 0
        assert f"  again    {expected}\n" in capsys.readouterr().out


def test_a_reservation_that_is_not_there_is_said_to_be_none(reserved, capsys):
    """Given an unknown name, it says which command lists those that are there."""
    assert main(["explain", "gres/other"]) != 0
    assert "there is no reservation other: gpusched get reservations lists them" in (
        capsys.readouterr().err
    )
