"""Decisions that version 0.1.0 recorded are repeated byte for byte, whatever classes are called now."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpusched.base.clock import SystemClock
from gpusched.io.decisions.decision_file import read_decision
from gpusched.io.decisions.entity_codec import decode, encode
from gpusched.io.decisions.file_names import TAGS, tag_in
from gpusched.lab.recordings.replay import replay_decision

DECISIONS = sorted(Path(__file__).with_name("0.1.0").glob("decisions/*.decision.gz"))
CLOCK = SystemClock()
_MINIMUM_OF_ONE = "needs 1 pod together; 0 pods can run -> no, NotEnoughMembers: needs 1 pod; 0"
"""One pod is not told to be together with others."""
TOLD_SINCE = {
    "affinity-between-pods": (_MINIMUM_OF_ONE,),
    "moves-for-another": (_MINIMUM_OF_ONE,),
    "room-of-a-moved-gang": (_MINIMUM_OF_ONE,),
    # Members of a gang without a PodGroup now carry since when it lacks others.
    "stale-gang": ("gangs[0].lost_members", "gangs[0].told_members"),
    # Unlike pods that find no place beside each other are told how many GPUs they need together.
    # A level that no node is labelled for is told with the labels that make it.
    # A gang whose first start is under way loses no single member: a start of this session is taken back instead.
    "reclaim-and-searches": (
        "together they need",
        "label nodes with gpusched.io/rack",
        "PodGroup/default/g019: room is made",
        "PodGroup/default/g019: scheduled: no, PreemptionInProgress",
        "PodGroup/default/g019: victims: default/g004-0-0 -> nothing",
        "PodGroup/default/g024: ",
        _MINIMUM_OF_ONE,
        # Gangs that wait for quota are counted as not admitted, as each of them is told.
        "queue b: inqueue: 9 -> 2",
        "queue b: pending: 0 -> 8",
        # Gangs that are larger than their queue may ever get have no place in line.
        ": position: ",
    ),
    # Nodes that are too small even when empty are told apart from those that are full.
    # Queues that are frozen are not named to those who look for one.
    "bad-objects": ("have less than 64 nvidia.com/gpu in all", "or name one of: default, good"),
    # One node lacks where several lack.
    "reservation-and-deadline": (
        "1 lack free nvidia.com/gpu; 2 nodes are held",
        "would run for 300 s",
    ),
    # A proof says of how many pods it is, and beside how many that ran.
    "sub-group-replacement": ("proof: optimal -> optimal for 1 pod beside 1",),
    # A pod of priority 0 leaves beside a start that is taken back, where one of priority 1 left.
    "shares-and-preemption": (
        "PodGroup/default/g4-0: ",
        "PodGroup/default/g4-1: victims: default/g3-1-0 -> default/g0-1-3",
        "PodGroup/default/g4-1: room is made",
        "PodGroup/default/g4-1: pod default/g4-1-0: is promised room on n0 -> ",
    ),
}
"""What a plan says that 0.1.0 did not say, by decision."""
SEARCHED_SINCE = {
    # The model of victims is a tighter one: another proof of the same victims.
    "moves-for-another": "search 1 (victim-model) was answered otherwise",
    # Whether a start would last is asked, too: of a claim that is not made after all.
    "shares-and-preemption": "other searches are made",
}
"""Searches that today's models answer in another way, by decision; the plan is the same."""


def lines(path: Path) -> list[Any]:
    """Header, inputs and plan as the file has them."""
    header, inputs, plan, _ = gzip.decompress(path.read_bytes()).split(b"\n")
    return [json.loads(line) for line in (header, inputs, plan)]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.name.partition(".")[0])
def test_an_old_decision_is_repeated_byte_for_byte(path: Path) -> None:
    """The same plan under today's code; every search ends as it did."""
    file = read_decision(path)
    assert file.header.gpusched == "0.1.0"
    again = replay_decision(file, clock=CLOCK)
    told_since = TOLD_SINCE.get(path.name.partition(".")[0], ())
    differences = [str(each) for each in again.differences]
    assert [each for each in differences if not any(new in each for new in told_since)] == []
    assert again.identical is not bool(told_since)
    searched_since = SEARCHED_SINCE.get(path.name.partition(".")[0])
    assert [each.startswith(searched_since or "-") for each in again.notes] == [True] * bool(
        searched_since
    )


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.name.partition(".")[0])
def test_an_old_decision_can_be_written_anew(path: Path) -> None:
    """With tags where paths of modules stood, and nothing lost."""
    inputs = decode(lines(path)[1])
    written = encode(inputs)
    assert all("." not in name for name, _ in written["classes"])
    assert msgspec.json.encode(encode(decode(written))) == msgspec.json.encode(written)


OF_DEVICES = frozenset(
    [
        "devices",
        "device-match-request",
        "resource-slice",
        "device",
        "device-version",
        "capacity-policy",
        "device-capacity",
        "counter-set",
        "device-taint",
        "node-reach",
        "device-taint-rule",
        "device-class",
        "opaque-config",
        "device-toleration",
        "device-request",
        "allocation-mode",
        "device-request-alternatives",
        "device-constraint",
        "device-claim-spec",
        "allocated-device",
        "allocated-config",
        "claim-allocation",
        "claim-consumer",
        "device-condition",
        "resource-claim",
        "resource-claim-template",
        "claim-group",
        "extended-request",
        "pod-claim",
        "device-quota",
        "device-match-request",
    ]
)
"""Tags of dynamic resource allocation, which 0.1.0 did not read."""


def test_the_old_decisions_are_of_many_kinds() -> None:
    """They hold every action that evicts or moves, every search, and most classes that have a tag."""
    tags, jobs, actions, parts = set[str](), set[str](), set[str](), set[str]()
    for path in DECISIONS:
        _, inputs, plan = lines(path)
        tags |= {tag_in(name) for name, _ in inputs["classes"]}
        jobs |= {tag_in(each.job) for each in read_decision(path).inputs.searches}
        actions |= {claim["action"] for claim in plan["claims"]}
        parts |= {name for name, part in plan.items() if part}
    later = {
        "charge",
        "gpu-resources",
        "gpu-resource",
        "limits",
        "client-connection",
        "history",
        "gpu-type-request",
        "turn",
        "eviction-warning",
        "gang-evictions",
        "past-eviction",
        "native-terms",
        "advance-reservation",
        "reservation-window",
        "creator",
        "user-limits",
        "user-limit",
        "budget",
        "budget-record",
        "gpu-hold",
        "start-errors",
        "start-tally",
        "shard",
        "queue-shard-row",
        "waiting-elsewhere",
        "expected-starts",
        "start-estimate",
        "start-known-by",
        *OF_DEVICES,
    }
    assert {*TAGS.values()} - tags - later == {
        "round", "refusal", "admission-job", "several-job", "victim-model"
    }  # fmt: skip
    assert jobs == {"several-job", "admission-job", "victim-model"}
    assert actions == {"allocate", "preempt", "reclaim", "consolidate"}
    assert parts >= {"binds", "claims", "stops", "switches", "gangs", "queues", "topologies"}
