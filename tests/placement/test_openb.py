"""The openb experiment on an excerpt of its trace: 18 nodes and some hundred pods, unchanged rows.

The trace was published with Fragmentation Gradient Descent (USENIX ATC 2023) under Apache-2.0.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gpusched_plugins.nodes.nodeorder.fragmentation import (
    FragmentationTables,
    FreeGpus,
    RequestShape,
)

from benchmarks.placement import openb_daemon
from benchmarks.placement.openb_fill import NEVER, Field, Fill, fill
from benchmarks.placement.openb_ours import ByTables, Window, fill_by_windows
from benchmarks.placement.openb_policies import (
    BestFit,
    Clustering,
    Definition,
    DotProduct,
    Fgd,
    Packing,
    Random,
)
from benchmarks.placement.openb_traces import (
    WHOLE,
    TraceMissing,
    TracePod,
    pod_arrivals,
    read_hosts,
    read_requests,
    typical_pods,
)

pytestmark = pytest.mark.long

EXCERPT = Path(__file__).parent / "openb"
HOSTS = read_hosts(EXCERPT)
PODS = read_requests("gpuspec33", EXCERPT)
CAPACITY = sum(host.gpus for host in HOSTS) * WHOLE
TYPICAL = typical_pods(PODS)


def arriving(seed: int, pods: list[TracePod] = PODS) -> list[TracePod]:
    return pod_arrivals(pods, capacity=CAPACITY, rng=random.Random(seed))


def at_random(seed: int) -> Field:
    """Hosts filled half way by chance."""
    field, rng = Field(HOSTS), random.Random(seed)
    for request in arriving(seed)[: 20 + 5 * seed]:
        rows = np.flatnonzero(field.holds(request)).tolist()
        if rows:
            row = rng.choice(rows)
            slots = np.flatnonzero(field.parts[row] >= request.part).tolist()
            field.place(request, row, rng.choice(slots) if request.gpus else -1)
    return field


def test_only_hosts_with_gpus_are_read():
    """Two of the excerpt's nodes have none."""
    assert all(host.gpus for host in HOSTS)
    assert [host.name for host in HOSTS] == sorted(host.name for host in HOSTS)


def test_a_missing_trace_is_one_sentence(tmp_path):
    """It names the file, and how to say where it is."""
    with pytest.raises(TraceMissing, match=r"openb_nodes.csv.gz .*OPENB_TRACES"):
        read_hosts(tmp_path)


def test_the_benchmark_says_that_the_trace_is_missing(tmp_path):
    """One line on stderr and exit status 1, no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--only", "placement-openb"],
        env={"OPENB_TRACES": str(tmp_path), "PATH": ""},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "OPENB_TRACES" in done.stderr


def test_arrivals_reach_so_much_demand_and_no_more():
    """The last request is the one that reaches it; a list too short is continued, one too long cut."""
    for pods in (PODS[:20], PODS * 3):
        requests = arriving(1, pods)
        demand = sum(request.demand for request in requests)
        assert demand - requests[-1].demand < CAPACITY * 1.3 <= demand
        assert requests == arriving(1, pods)
        shuffled = sorted(requests[: len(pods)])
        assert len(requests) < len(pods) or shuffled == sorted(pods)


def test_typical_shapes_are_the_most_frequent():
    """They make up 95 %, and without the last they would not."""
    counts = [count for _, count in TYPICAL]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) >= 0.95 * len(PODS) > sum(counts[:-1])
    assert all(shape.memory == 0 for shape, _ in TYPICAL)


@pytest.mark.parametrize("seed", range(8))
def test_tables_and_definition_agree_on_fragmentation(seed):
    """Two programs that share nothing: the daemon's tables and the published definition."""
    field = at_random(seed)
    tables = ByTables(TYPICAL, field, look_ahead=0)
    wanted = Definition(TYPICAL, field).wasted(slice(None), field.cpu, field.parts)
    total = sum(count for _, count in TYPICAL)
    found = [tables.waste(field, row) / total for row in range(len(field))]
    assert found == pytest.approx(wanted.tolist(), abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_the_published_policy_and_the_daemons_score_classes_agree(seed):
    """FGD's hundred steps, host by host; for a part, on the GPU that a part takes."""
    field = at_random(seed)
    tables, published = ByTables(TYPICAL, field, look_ahead=0), Fgd(Definition(TYPICAL, field))
    for request in sorted(set(PODS)):
        fits = field.holds(request)
        ours = tables.score(field, request, slice(None)) // 10_000
        theirs = published.scores(field, request, slice(None))
        for row in np.flatnonzero(fits).tolist():
            slot = max(0, tables.slot(field, request, row))
            assert ours[row] == theirs[row, slot]


@pytest.mark.parametrize("policy", [DotProduct(), Clustering(), Packing(), BestFit()])
def test_every_policy_fills_hosts_and_never_more_than_they_hold(policy):
    """Nothing fits any more of what was dropped, and F is a part of the GPUs."""
    field = Field(HOSTS)
    done = fill(HOSTS, arriving(2), policy, Definition(TYPICAL, field))
    assert 50 < done.allocated[130] <= 100
    assert all(0 <= share <= 100 for share in done.wasted.values())
    assert sorted(done.allocated) == list(range(10, 131, 10))


def test_the_same_seed_fills_the_same_way():
    """Also at random."""
    measure = Definition(TYPICAL, Field(HOSTS))
    first, second = (fill(HOSTS, arriving(2), Random(random.Random(7)), measure) for _ in range(2))
    assert first == second


def windows(seed: int, *, size: int, rounds: int) -> Fill:
    field = Field(HOSTS)
    window = Window(
        size=size,
        rounds=rounds,
        first=ByTables(TYPICAL, field, look_ahead=4),
        then=ByTables(TYPICAL, field, look_ahead=4, exact=True),
    )
    return fill_by_windows(HOSTS, arriving(seed), window, Definition(TYPICAL, field))


def test_windows_without_a_second_look_are_pod_by_pod():
    """Whatever their size."""
    field = Field(HOSTS)
    policy = ByTables(TYPICAL, field, look_ahead=4)
    alone = fill(HOSTS, arriving(3), policy, Definition(TYPICAL, field))
    done = windows(3, size=16, rounds=0)
    assert (done.rows, done.allocated) == (alone.rows, alone.allocated)


def test_windows_end_where_every_place_is_accounted_for():
    """Places taken back and given again leave the hosts as their pods say."""
    done = windows(3, size=16, rounds=8)
    field = Field(HOSTS)
    for request, row in zip(arriving(3), done.rows, strict=True):
        if row >= 0:
            assert field.cpu[row] >= request.cpu
            field.cpu[row] -= request.cpu
    placed = sum(r.demand for r, row in zip(arriving(3), done.rows, strict=True) if row >= 0)
    assert done.allocated[130] == pytest.approx(100 * placed / CAPACITY)


def daemon_pods(seed: int) -> list[TracePod]:
    """Shares, whole GPUs and none, each of some kinds equally often, so that all are typical."""
    shares = sorted({pod for pod in PODS if 0 < pod.part < WHOLE})[:5]
    others = sorted({pod for pod in PODS if pod.part in {0, WHOLE}})[:6]
    pods = [*shares, *others] * 14
    random.Random(seed).shuffle(pods)
    return pods


@pytest.mark.parametrize("look_ahead", [0, 12])
def test_the_daemon_and_the_tables_choose_the_same_hosts(look_ahead):
    """Sessions, seats, boards and statements end where the bare score ends, pod by pod."""
    pods = daemon_pods(1)
    field = Field(HOSTS)
    kinds = typical_pods(pods, percent=100)
    measure = Definition(kinds, field)
    bare = fill(HOSTS, pods, ByTables(kinds, field, look_ahead=look_ahead), measure)
    arguments = {"strategy": "fragmentation", "lookAhead": look_ahead}
    done = openb_daemon.fill(HOSTS, pods, arguments, measure)
    assert done.rows == bare.rows
    assert -1 in done.rows


def test_scores_of_hosts_that_hold_nothing_are_never_best():
    """A pod that fits nowhere is dropped."""
    giant = TracePod(10**9, 0, 1, WHOLE)
    field = Field(HOSTS)
    assert not field.holds(giant).any()
    done = fill(HOSTS, [giant], BestFit(), Definition(TYPICAL, field))
    assert done.rows == (-1,)
    assert NEVER < 0


def test_measures_of_one_mix_are_built_from_plain_ints():
    """A host that no typical request accepts wastes all that is free."""
    measure = FragmentationTables(
        [RequestShape(0, 1, 500)],
        [3],
        accepts=np.zeros((1, 1), dtype=np.bool_),
        gpus=2,
        lookahead=12,
    )
    spots = FreeGpus(np.array([0]), np.array([1000]), np.array([[1000, 300]]))
    assert measure.wasted(spots).tolist() == [3 * 1300]
