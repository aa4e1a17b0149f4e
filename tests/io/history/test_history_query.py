"""Questions to the file: pages, spans, namespaces, and sums that are the sums of what the lists show."""

from __future__ import annotations

import random
import sqlite3

import attrs
import pytest

from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES, gpu_resources_in_force
from gpusched.io.history.gang_run import run_as_row
from gpusched.io.history.history_query import (
    SUM_KEYS,
    BadHistoryQuery,
    HistoryQuery,
    query_history,
    sum_history,
)
from gpusched.io.history.history_store import HistoryStore, HistoryUnavailable
from gpusched.io.history.past_runs import run_state

from .conftest import DAY, NOW


@pytest.fixture
def file(tmp_path, make_run):
    """Two hundred runs of three teams that ended in the last ten days, and two that did not."""
    draw = random.Random(7)
    store = HistoryStore(tmp_path / "h.db")
    rows = []
    for number in range(200):
        ended_ago = draw.uniform(0, 10 * DAY)
        run = make_run(number, ended_ago=ended_ago, team="abc"[number % 3])
        run.since = run.ended - draw.uniform(10, DAY)
        run.started = run.since + draw.uniform(0, run.ended - run.since) if number % 5 else 0.0
        run.evictions, run.lost_gpu_seconds = number % 2, 10.0 * (number % 2)
        run.gpu_seconds = (
            {"A": 3.0 * number} if number % 4 else {"A": 1.0 * number, "B": 2.0 * number}
        )
        rows.append(run_as_row(run))
    rows += [run_as_row(make_run(900)), run_as_row(make_run(901, started=NOW - 600))]
    store.put(rows)
    store.close()
    return tmp_path / "h.db"


def everything(file, **query):
    """All runs of a query, page by page."""
    found, after = [], ""
    while True:
        page = query_history(file, HistoryQuery(after=after, limit=7, **query))
        found += page.runs
        after = page.after
        if not after:
            return found


def test_pages_hold_every_run_once_from_the_latest_end_to_the_earliest(file):
    """Given pages of seven, then 202 runs in order, those that go on first."""
    found = everything(file)
    assert len({run.name for run in found}) == len(found) == 202
    assert [run.ended for run in found] == sorted((run.ended for run in found), reverse=True)
    assert {run_state(run) for run in found[:2]} == {"Waiting", "Running"}


def test_a_span_has_what_was_open_in_it(file):
    """Given two days of ten, then runs that ended before or began after are left out."""
    since, until = NOW - 5 * DAY, NOW - 3 * DAY
    wanted = {run.name for run in everything(file) if run.ended >= since and run.since < until}
    assert {run.name for run in everything(file, since=since, until=until)} == wanted
    assert 0 < len(wanted) < 202


def test_nothing_of_other_namespaces_is_seen(file):
    """Given rights on two namespaces or on none, then runs and sums are of these alone."""
    two = everything(file, namespaces=("team-a", "team-c"))
    assert {run.gang.namespace for run in two} == {"team-a", "team-c"}
    query = HistoryQuery(namespaces=("team-b",))
    assert [each.key for each in sum_history(file, query, "namespace", NOW)] == ["team-b"]
    nobody = HistoryQuery(namespaces=())
    assert query_history(file, nobody).runs == ()
    assert sum_history(file, nobody, "queue", NOW) == ()


@pytest.mark.parametrize("state", ["Waiting", "Running", "Succeeded"])
def test_states_select(file, state):
    """Given a state, then exactly its runs, in lists and in sums."""
    wanted = [run for run in everything(file) if run_state(run) == state]
    assert len(everything(file, state=state)) == len(wanted) > 0
    sums = sum_history(file, HistoryQuery(state=state), "queue", NOW)
    assert sum(each.runs for each in sums) == len(wanted)


def keys_of(run, by):
    """What a run counts for, with its part of the GPU time."""
    if by == "gpu-type":
        return sorted(run.gpu_seconds.items()) or [("", 0.0)]
    key = {
        "queue": run.queue, "namespace": run.gang.namespace, "user": "",
        "day": "" if run.ended > NOW else str(int(run.ended // DAY)),
    }[by]  # fmt: skip
    return [(key, run.total_gpu_seconds)]


@pytest.mark.parametrize("by", SUM_KEYS)
@pytest.mark.parametrize(
    ("since", "until"),
    [
        (0.0, 1e12),
        (NOW - 6.3 * DAY, 1e12),
        (NOW - 6.3 * DAY, NOW - 2.2 * DAY),
        (NOW - 2.9 * DAY, NOW - 2.6 * DAY),
        (NOW - 3000, 1e12),
    ],
)
def test_sums_are_those_of_the_runs(file, by, since, until):
    """Given spans with and without whole days, then sums of days and of runs come to the same."""
    rows: dict[str, list[float]] = {}
    for run in everything(file):
        goes_on = run.ended > NOW
        if not (since <= run.ended < until or (goes_on and until > NOW and run.since < until)):
            continue
        end = min(run.ended, NOW)
        waited = (run.started or end) - run.since
        ran = end - run.started if run.started else 0.0
        for key, gpu_seconds in keys_of(run, by):
            row = rows.setdefault(key, [0, 0, 0.0, 0.0, 0.0, 0, 0.0, 0.0])
            row[0] += 1
            row[1] += run.started > 0
            row[2] += waited
            row[3] = max(row[3], waited)
            row[4] += ran
            row[5] += run.evictions
            row[6] += gpu_seconds
            row[7] += run.lost_gpu_seconds
    sums = sum_history(file, HistoryQuery(since=since, until=until), by, NOW)
    found = [
        [each.runs, each.started, each.waited_s, each.longest_wait_s, each.ran_s, each.evictions,
         each.gpu_seconds, each.lost_gpu_seconds]
        for each in sums
    ]  # fmt: skip
    if by != "day":
        assert [each.key for each in sums] == sorted(rows)
    assert len(found) == len(rows)
    for told, wanted in zip(found, [rows[key] for key in sorted(rows)], strict=True):
        assert told == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("by", SUM_KEYS)
@pytest.mark.parametrize("since", [0.0, NOW - 6.3 * DAY, NOW - 3000])
def test_cost_is_the_time_of_each_type_times_its_price(file, by, since):
    """Given prices of two types, then sums cost what their runs cost, whole days or not."""
    prices = {"A": 3.0, "B": 0.5}
    resources = attrs.evolve(
        DEFAULT_GPU_RESOURCES, prices=(("a", 3_000), ("b", 500)), other_price=9_000
    )
    wanted: dict[str, float] = {}
    for run in everything(file):
        if run.ended < since:
            continue
        for name, seconds in run.gpu_seconds.items():
            key = name if by == "gpu-type" else keys_of(run, by)[0][0]
            wanted[key] = wanted.get(key, 0.0) + seconds * prices[name]
    with gpu_resources_in_force(resources):
        sums = sum_history(file, HistoryQuery(since=since), by, NOW)
    costs = [each.cost for each in sums if each.gpu_seconds]
    assert len(costs) == len([cost for cost in wanted.values() if cost])
    assert sum(costs) == pytest.approx(sum(wanted.values()), abs=1e-3)
    if by != "day":
        told = {each.key: each.cost for each in sums if each.gpu_seconds}
        assert told == pytest.approx({k: v for k, v in wanted.items() if v}, abs=1e-3)


def test_sums_outlast_runs_that_were_too_many(file):
    """Given a bound on rows, then the runs of before count in sums still."""
    before = sum_history(file, HistoryQuery(), "queue", NOW)
    store = HistoryStore(file)
    store.forget_old(NOW - 30 * DAY, 50)
    store.close()
    assert len(everything(file)) == 50
    assert sum_history(file, HistoryQuery(), "queue", NOW) == before


def test_a_file_in_a_folder_that_is_read_only_can_be_asked(file, monkeypatch):
    """Given a file that nobody writes, then nothing is made beside it."""
    file.chmod(0o444)
    assert len(everything(file)) == 202


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"limit": 0}, "limit must be from 1 to 10000, not 0"),
        ({"after": "<script>"}, "continue '<script>' is none that an answer gave"),
    ],
)
def test_bad_questions_are_one_sentence(file, query, sentence):
    """Given what means nothing, then the sentence says what would."""
    with pytest.raises(BadHistoryQuery, match=sentence):
        query_history(file, HistoryQuery(**query))


def test_a_file_that_is_not_there_is_not_made(tmp_path):
    """Given a wrong path, then it is said, and the path stays free."""
    with pytest.raises(HistoryUnavailable, match="gpusched run --history"):
        query_history(tmp_path / "none.db", HistoryQuery())
    assert not (tmp_path / "none.db").exists()


def test_a_damaged_file_is_closed_when_it_has_been_refused(tmp_path, monkeypatch):
    """Given a file that is none, then it is told, and the query leaves no file open."""
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"this is no database" * 100)
    opened = []

    def noted(*where, **how):
        opened.append(connect(*where, **how))
        return opened[-1]

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", noted)
    with pytest.raises(HistoryUnavailable, match="cannot be read: file is not a database"):
        query_history(damaged, HistoryQuery())
    (one,) = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        one.execute("SELECT 1")
