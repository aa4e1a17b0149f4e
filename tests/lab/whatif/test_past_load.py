"""What arrives again and how long it runs, from the history; and more of a tenant's load."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gpusched.api.meta.identity import UID, GangKey
from gpusched.base.errors import UsageError
from gpusched.cli.main import main
from gpusched.io.history.gang_run import GangRun, run_as_row
from gpusched.io.history.history_store import HistoryStore
from gpusched.io.history.past_runs import run_as_json
from gpusched.lab.whatif.arrivals import (
    LoadJob,
    apply_load_factors,
    read_load_factor,
    repeat_load,
)
from gpusched.lab.whatif.past_load import (
    RunTimeGuesses,
    covered_window,
    gangs_of_history,
    past_load,
)
from tests.advice.clusters import NOW, queue
from tests.lab.whatif.cases import answer_of, write_example

HOUR_S = 3600.0


def run(
    name,
    *,
    made,
    started=0.0,
    ended=None,
    queue="research",
    user="",
    uid="",
    gpus=8,
    outcome="Succeeded",
):
    """A run of the history; hours before now."""
    times = {
        "created": NOW - made * HOUR_S,
        "since": NOW - made * HOUR_S,
        "seen": NOW - made * HOUR_S,
    }
    if started:
        times["started"] = NOW - started * HOUR_S
    if ended is not None:
        times |= {"ended": NOW - ended * HOUR_S, "outcome": outcome}
    return GangRun(
        gang=GangKey("Job", "team", name), uid=UID(uid or f"uid-{name}"), queue=queue, priority=0,
        min_member=1, members=1, gpus=gpus * 1000, user=user, **times,
    )  # fmt: skip


def gangs(*runs):
    """The gangs of these runs."""
    return gangs_of_history([run_as_json(each, NOW) for each in runs])


def test_what_came_comes_again_with_its_run_time():
    # Given three gangs of the last six hours, of which one runs still and one waits
    past = gangs(
        run("one", made=6, started=5, ended=3),
        run("two", made=4, started=4),
        run("three", made=1),
    )
    # When the load is made again, nothing tells how long the second and the third run
    guesses = RunTimeGuesses(past, now=NOW)
    load = past_load(past, guesses, now=NOW, window_s=6 * HOUR_S)
    # Then only the first comes again, at its time of the window
    assert [(job.name, job.at, job.run_s, job.pod_gpus) for job in load.jobs] == [
        ("one", 0.0, 7200, 8000)
    ]
    assert (load.guessed, load.left_out) == (0, 2)


def test_a_gang_that_was_evicted_comes_once():
    past = gangs(
        run("one", made=6, started=5, ended=4, outcome="Preempted"),
        run("one", made=6, started=3, ended=1),
    )
    (gang,) = past
    assert gang.run_s == 2 * HOUR_S


def test_run_times_are_guessed_from_the_user_then_the_queue_then_all():
    past = gangs(
        *(run(f"a{n}", made=30, started=20, ended=20 - n, user="ann") for n in (1, 2, 3)),
        *(run(f"b{n}", made=30, started=20, ended=10, user="bob") for n in range(3)),
        *(run(f"c{n}", made=30, started=20, ended=16, queue="prod") for n in range(3)),
    )
    guesses = RunTimeGuesses(past, now=NOW)
    assert guesses.guess_run("research", "ann") == 2 * HOUR_S
    assert guesses.guess_run("research", "carl") == 6.5 * HOUR_S
    assert guesses.guess_run("prod", "") == 4 * HOUR_S
    assert guesses.guess_run("other", "") == 4 * HOUR_S
    # What has run for longer than most is compared with those that ran longer, too.
    assert guesses.guess_run("research", "ann", ran_s=5 * HOUR_S) == 10 * HOUR_S
    assert guesses.guess_run("research", "ann", ran_s=11 * HOUR_S) is None


def test_a_young_history_is_repeated_as_a_whole():
    past = gangs(run("one", made=3, started=3, ended=2))
    assert covered_window(past, now=NOW, wanted_s=24 * HOUR_S) == 3 * HOUR_S
    assert covered_window((), now=NOW, wanted_s=24 * HOUR_S) == HOUR_S


def job(at, queue="a", run_s=60):
    """A job of a load."""
    return LoadJob(
        name="j", namespace="team", queue=queue, at=at, run_s=run_s, pods=1, pod_gpus=1000
    )


TIMES = st.lists(st.floats(0, 3599), min_size=1, max_size=30)


@given(TIMES, st.integers(1, 5))
def test_repeated_loads_have_names_of_their_own_and_the_same_rhythm(times, rounds):
    jobs = [job(at) for at in sorted(times)]
    made = repeat_load(jobs, window_s=HOUR_S, until=rounds * HOUR_S)
    assert len(made) == rounds * len(jobs)
    assert len({each.name for each in made}) == len(made)
    assert [each.at for each in made] == sorted(each.at for each in made)


@given(TIMES, st.floats(0, 5))
def test_a_factor_makes_so_many_more_jobs_of_one_tenant_alone(times, factor):
    jobs = repeat_load(
        [job(at, queue="ab"[n % 2]) for n, at in enumerate(sorted(times))],
        window_s=None,
        until=HOUR_S,
    )
    queues = [queue("a"), queue("b")]
    text = f"queue/a*{factor:.6f}"
    scaled = apply_load_factors(jobs, [read_load_factor(text, queues, jobs)])
    mine = [each for each in jobs if each.queue == "a"]
    assert (
        abs(len([each for each in scaled if each.queue == "a"]) - len(mine) * float(text[8:])) <= 1
    )
    assert [each for each in scaled if each.queue == "b"] == [
        each for each in jobs if each.queue == "b"
    ]
    assert len({each.name for each in scaled}) == len(scaled)
    assert [each.at for each in scaled] == sorted(each.at for each in scaled)


def test_a_queue_means_the_queues_below_it():
    jobs = [job(1, "child"), job(2, "other")]
    queues = [queue("top"), queue("child", parent="top"), queue("other")]
    assert read_load_factor("queue/top*3", queues, jobs).names == {"top", "child"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("queue/a", "takes queue/NAME"), ("a*2", "takes queue/NAME"), ("queue/a*1000", "at most 100 times"),
        ("queue/c*2", 'nothing of queue "c" arrives'), ("pod/a*2", "takes queue/NAME"),
    ],
)  # fmt: skip
def test_loads_that_mean_nothing_are_refused(text, why):
    with pytest.raises(UsageError, match=why.replace("*", r"\*")):
        read_load_factor(text, [queue("a")], [job(1)])


def test_a_load_where_no_job_arrives_is_refused_with_why():
    """Given a history without a job in its time, then it is said that there is none, and no list of nothing."""
    with pytest.raises(UsageError, match="no job arrives that could come more often"):
        read_load_factor("queue/a*2", [queue("a")], ())


def test_absurdly_many_jobs_are_refused():
    with pytest.raises(UsageError, match="more than the 500,000"):
        repeat_load([job(0)], window_s=1.0, until=1e6)


def test_the_history_of_a_file_is_played_again(tmp_path, capsys, monkeypatch):
    """From the file of the daemon to the answer: arrivals, learned run times, twice the load."""
    # Given a cluster, and a history of a day in which a Job of eight GPUs came every two hours
    monkeypatch.chdir(tmp_path)
    write_example(tmp_path / "cluster.json")
    store = HistoryStore(tmp_path / "history.db")
    store.put(
        [
            run_as_row(run(f"day{n}", made=24 - 2 * n, started=24 - 2 * n, ended=23 - 2 * n))
            for n in range(12)
        ]
    )
    store.close()
    # When the tenant's load is doubled for a day
    words = ["--history", "history.db", "--load", "queue/research*2", "-o", "json"]
    assert main(["what-if", "--snapshot", "cluster.json", *words]) == 0
    # Then twelve come as it is, 24 where it is changed, and it is said
    told = answer_of(capsys)
    assert told["arrivals"] == {"asItIs": 12, "changed": 24}
    assert (
        "the 12 gangs that came in the 24h before come again every 24h and run as long"
        in told["assumptions"]
    )
