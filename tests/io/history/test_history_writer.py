"""Trouble with the file of the history: it stops, says so once, loses no more than it says, and comes back."""

from __future__ import annotations

import resource
import signal
import sqlite3
import threading

import attrs
import pytest

from gpusched.io.history.gang_run import run_as_row
from gpusched.io.history.history_query import HistoryQuery, query_history, sum_history
from gpusched.io.history.history_store import (
    ADDED_COLUMNS,
    HistoryStore,
    HistoryUnavailable,
)
from gpusched.io.history.history_writer import HistoryOptions, HistoryWriter

from .conftest import DAY, NOW

LATER = 31.0
"""Seconds after which the file is tried again."""


@pytest.fixture
def file(tmp_path):
    """Where runs go."""
    return tmp_path / "history.db"


@pytest.fixture
def new_writer(clock):
    """Makes writers that write when they are told to, and leave no file open."""
    made = []

    def make(options, **how):
        made.append(HistoryWriter(options, clock, inline=True, **how))
        return made[-1]

    yield make
    for each in made:
        each.stop(5.0)


@pytest.fixture
def writer(file, new_writer):
    """One whose file is written when it is told to."""
    return new_writer(
        HistoryOptions(file=file, keep_s=30 * DAY, rows_max=1_000), rows_waiting_max=3
    )


def begin(writer):
    """As a term begins."""
    writer.ask_open_runs()
    writer.flush()
    return writer.take_open_runs()


def names(file):
    """Of the gangs in the file."""
    return sorted(run.gang.name for run in query_history(file, HistoryQuery()).runs)


def stops(caplog):
    """What was said about a history that stopped."""
    return [vars(each)["gpusched_facts"]["why"] for each in caplog.records
            if "the history stops" in each.message]  # fmt: skip


def test_a_run_that_changes_is_one_row(writer, file, make_run):
    """Given a run put three times, then the file has its last state once."""
    begin(writer)
    for evictions in range(3):
        writer.put(make_run(1, evictions=evictions))
        writer.flush()
    (run,) = query_history(file, HistoryQuery()).runs
    assert run.evictions == 2
    assert writer.written == 3


def test_a_run_that_has_ended_is_not_opened_again(writer, file, make_run):
    """Given another process that tells late that a run goes on, then its end and the sums stay."""
    begin(writer)
    for run in (make_run(1, ended_ago=10), make_run(1), make_run(1, ended_ago=5)):
        writer.put(run)
        writer.flush()
    (run,) = query_history(file, HistoryQuery()).runs
    assert run.ended == NOW - 10
    (total,) = sum_history(file, HistoryQuery(), "queue", NOW)
    assert total.runs == 1


def test_open_runs_are_handed_out_as_they_were_written(writer, clock, make_run, new_writer):
    """Given another process later, then it gets what has not ended, whole."""
    begin(writer)
    wanted = make_run(1, gpu_seconds={"A": 5.0, "B": 7.0}, counted_until=NOW, started=NOW - 9)
    writer.put(wanted)
    writer.put(make_run(2, ended_ago=10))
    writer.stop(1.0)
    again = new_writer(writer._options)
    (run,) = begin(again)
    assert (run.gang, run.gpu_seconds, run.seen, run.started) == (
        wanted.gang, wanted.gpu_seconds, wanted.seen, wanted.started,
    )  # fmt: skip


def test_what_finds_no_place_is_counted_and_said(writer, file, make_run, caplog):
    """Given three places and five runs, then two are lost, and one line says so."""
    begin(writer)
    for number in range(5):
        writer.put(make_run(number))
    writer.flush()
    assert names(file) == ["g0", "g1", "g2"]
    assert writer.lost == 2
    (line,) = [each for each in caplog.records if "were lost" in each.message]
    assert vars(line)["gpusched_facts"] == {"lost": 2}


def test_a_locked_file_is_tried_again(writer, file, clock, make_run, caplog):
    """Given another process that holds the file, then rows wait and are written when it lets go."""
    HistoryStore(file).close()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    begin(writer)
    writer.put(make_run(1))
    for _ in range(3):
        clock.at += LATER
        writer.flush()
    assert [each.partition(": ")[2] for each in stops(caplog)] == [
        "another process is writing to it"
    ]
    assert not writer.is_well
    other.execute("ROLLBACK")
    other.close()
    clock.at += LATER
    writer.flush()
    assert writer.take_open_runs() == []
    writer.flush()
    assert names(file) == ["g1"]
    assert writer.is_well


def test_a_damaged_file_is_set_aside_and_a_new_one_begins(writer, file, clock, make_run, caplog):
    """Given rubbish where the file should be, then it is kept under another name."""
    file.write_bytes(b"this is no database, it is a letter" * 100)
    begin(writer)
    assert "was damaged" in stops(caplog)[0]
    assert file.with_name("history.db.damaged").read_bytes().startswith(b"this is no database")
    clock.at += LATER
    writer.flush()
    assert writer.take_open_runs() == []
    writer.put(make_run(1))
    writer.flush()
    assert names(file) == ["g1"]


def test_a_file_damaged_while_it_is_open_is_set_aside(writer, file, clock, make_run, new_writer):
    """Given pages that are overwritten, then writing ends in a new file, without a fault."""
    begin(writer)
    for number in range(3):
        writer.put(make_run(number))
    writer.stop(1.0)
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)
    again = new_writer(writer._options)
    for _ in range(3):
        begin(again)
        again.put(make_run(7))
        again.flush()
        clock.at += LATER
    assert again.is_well
    assert names(file) == ["g7"]
    assert file.with_name("history.db.damaged").exists()


def test_a_file_without_owners_is_read_and_gets_them_when_it_is_written(writer, file, make_run):
    """Given a file of format 1, then its runs are shown as they are, and the next run has an owner."""
    begin(writer)
    writer.put(make_run(1))
    writer.stop(5.0)
    with sqlite3.connect(file) as old:
        for column in ("owner", *ADDED_COLUMNS[3], *ADDED_COLUMNS[4]):
            old.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        old.execute("PRAGMA user_version = 1")
    old.close()
    assert [run.owner for run in query_history(file, HistoryQuery()).runs] == [""]
    store = HistoryStore(file)
    store.put([run_as_row(attrs.evolve(make_run(2), owner="ReplicaSet serve-7f"))])
    store.close()
    owners = {run.gang.name: run.owner for run in query_history(file, HistoryQuery()).runs}
    assert owners == {"g1": "", "g2": "ReplicaSet serve-7f"}


def test_a_file_without_estimates_is_read_and_gets_them_when_it_is_written(writer, file, make_run):
    """Given a file of format 2, then its runs are shown without estimates, and the next run has one."""
    begin(writer)
    writer.put(attrs.evolve(make_run(1), owner="ReplicaSet serve-7f"))
    writer.stop(5.0)
    with sqlite3.connect(file) as old:
        for column in (*ADDED_COLUMNS[3], *ADDED_COLUMNS[4]):
            old.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        old.execute("PRAGMA user_version = 2")
    old.close()
    (before,) = query_history(file, HistoryQuery()).runs
    assert (before.owner, before.half_start, before.known_by) == ("ReplicaSet serve-7f", 0.0, "")
    store = HistoryStore(file)
    told = attrs.evolve(make_run(2), half_start=1e9, known_by="Announced", estimate_moves=2)
    store.put([run_as_row(told)])
    store.close()
    runs = {run.gang.name: run for run in query_history(file, HistoryQuery()).runs}
    assert (runs["g2"].half_start, runs["g2"].known_by) == (1e9, "Announced")
    assert (runs["g2"].estimate_moves, runs["g1"].estimate_moves) == (2, 0)


def test_a_file_without_repeated_evictions_gets_them_when_it_is_written(writer, file, make_run):
    """Given a file of format 3, then its runs are shown with none, and the next run has its own."""
    begin(writer)
    writer.put(make_run(1))
    writer.stop(5.0)
    with sqlite3.connect(file) as old:
        old.execute("ALTER TABLE runs DROP COLUMN repeated_evictions")
        old.execute("PRAGMA user_version = 3")
    old.close()
    assert [run.repeated_evictions for run in query_history(file, HistoryQuery()).runs] == [0]
    store = HistoryStore(file)
    store.put([run_as_row(attrs.evolve(make_run(2), repeated_evictions=2))])
    store.close()
    runs = {run.gang.name: run for run in query_history(file, HistoryQuery()).runs}
    assert [runs[name].repeated_evictions for name in ("g1", "g2")] == [0, 2]


def test_a_file_of_a_later_version_is_not_touched(writer, file, clock, caplog):
    """Given a file of format 99, then it is said once, and stays as it is."""
    HistoryStore(file).close()
    with sqlite3.connect(file) as later:
        later.execute("PRAGMA user_version = 99")
    later.close()
    before = file.read_bytes()
    for _ in range(3):
        begin(writer)
        clock.at += LATER
    (why,) = stops(caplog)
    assert "was written by a later version of gpusched (its format is 99, this" in why
    assert file.read_bytes() == before
    with pytest.raises(HistoryUnavailable, match="later version"):
        query_history(file, HistoryQuery())


def test_a_folder_that_cannot_be_written_is_said(tmp_path, clock, caplog, new_writer):
    """Given a file where the folder should be, then one sentence says what is wrong."""
    (tmp_path / "no-folder").write_text("")
    options = HistoryOptions(file=tmp_path / "no-folder" / "h.db", keep_s=DAY, rows_max=1_000)
    begin(new_writer(options))
    assert stops(caplog) == [f"{options.file}: File exists"]


def test_a_full_disk_loses_nothing_that_has_a_place(writer, file, clock, make_run, caplog):
    """Given no room for the file to grow, then rows wait, and are written when there is."""
    begin(writer)
    writer.put(make_run(1, reason="x" * 1_000_000))
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, usual[1]))
    try:
        writer.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        signal.signal(signal.SIGXFSZ, handler)
    assert len(stops(caplog)) == 1
    assert names(file) == []
    clock.at += LATER
    writer.flush()
    writer.take_open_runs()
    writer.flush()
    assert names(file) == ["g1"]
    assert writer.lost == 0


def test_a_file_that_was_removed_is_begun_anew(writer, file, clock, make_run):
    """Given somebody who removes the file, then rows do not go where nobody finds them."""
    begin(writer)
    writer.put(make_run(1))
    writer.flush()
    file.unlink()
    writer.put(make_run(2))
    writer.flush()
    clock.at += LATER
    writer.flush()
    writer.take_open_runs()
    writer.flush()
    assert names(file) == ["g2"]


def test_old_runs_are_forgotten_and_too_many_are(file, clock, make_run, new_writer):
    """Given runs of forty days and a bound, then what ended first goes, open ones stay."""
    options = HistoryOptions(file=file, keep_s=30 * DAY, rows_max=4)
    writer = new_writer(options)
    begin(writer)
    writer.put(make_run(0))
    writer.put(make_run(1, ended_ago=40 * DAY, started=0.0))
    for number in range(2, 8):
        writer.put(make_run(number, ended_ago=100.0 - number))
    writer.flush()
    clock.at += 601.0
    writer.flush()
    assert names(file) == ["g0", "g5", "g6", "g7"]


def test_a_thread_writes_while_nobody_waits(file, clock, make_run):
    """Given a writer with a thread of its own, then all is in the file when it has stopped."""
    options = HistoryOptions(file=file, keep_s=30 * DAY, rows_max=1_000)
    writer = HistoryWriter(options, clock)
    assert "history" in {each.name for each in threading.enumerate()}
    writer.ask_open_runs()
    writer.put(make_run(1))
    writer.stop(30.0)
    assert names(file) == ["g1"]
