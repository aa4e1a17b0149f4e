"""Rows and rectangles of the Gantt picture."""

import itertools

import attrs

from benchmarks.report_inputs import Ask, Toy
from gpusched.engine.kept_spans import KeptSpanRecorder
from gpusched.engine.run_record import LifeEnd, NodeLife, NodeSpan, PodLife, RunRecord
from gpusched.lab.report.plots.gantt_layout import ROW, layout_gantt
from gpusched.lab.report.plots.svg import time_axis


def pod(name, *, node="n1", slots=(), gpus=1000, bound=0.0, ended=10.0, job="default/j", **more):
    return PodLife(name=name, namespace="default", uid=name, job=job, queue="q", gpus=gpus, cpu=1000,
                   memory=1, created=0.0, bound=bound, ended=ended, node=node, slots=slots, **more)  # fmt: skip


def run(*pods, gpus=2000, seconds=20.0, spans=None, nodes=("n1",)):
    spans = spans or [(0.0, seconds, True)]
    lives = tuple(
        NodeLife(name=name, labels={}, spans=tuple(
            NodeSpan(since=a, until=b, gpus=gpus, cpu=8000, memory=1, usable=ok) for a, b, ok in spans
        ))
        for name in nodes
    )  # fmt: skip
    return RunRecord(name="r", ground="simulated", seed=1, seconds=seconds, epoch=0.0, pods=pods,
                  nodes=lives)  # fmt: skip


def laid(record, unit="GPUs"):
    return layout_gantt(record, unit, time_axis(record.seconds))


def test_every_gpu_of_a_node_has_its_row_even_when_idle():
    assert laid(run(gpus=8000)).rows == 8


def test_a_gang_on_neighbouring_gpus_is_one_rectangle():
    """Also across nodes that follow each other, in the order of their numbers."""
    record = run(
        pod("a", node="n2", slots=(0, 1)), pod("b", node="n10", slots=(0, 1)), nodes=("n10", "n2")
    )
    picture = laid(record)
    assert [node.name for node in picture.nodes] == ["n2", "n10"]
    assert [(bar.y, bar.h) for bar in picture.bars] == [(0, 4 * ROW)]


def test_runs_that_end_at_other_times_stay_apart():
    picture = laid(run(pod("a", slots=(0,)), pod("b", slots=(1,), ended=9.0)))
    assert len(picture.bars) == 2


def test_shares_of_one_gpu_divide_its_row():
    picture = laid(
        run(pod("a", slots=(0,), gpus=500), pod("b", slots=(0,), gpus=500, job="default/k"))
    )
    assert sorted((bar.y, bar.h) for bar in picture.bars) == [(0, ROW // 2), (ROW // 2, ROW // 2)]


def test_a_pod_takes_no_row_of_one_that_is_still_to_end():
    picture = laid(run(pod("a", ended=10.0), pod("b", bound=9.5, ended=20.0, job="default/k")))
    assert sorted((bar.y, bar.h) for bar in picture.bars) == [(0, ROW), (ROW, ROW)]


def test_pods_that_do_not_tell_their_gpus_take_the_lowest_free_rows():
    picture = laid(run(pod("a", gpus=2000), pod("b", gpus=1000, bound=10.0, ended=None)))
    assert [(bar.y, bar.h) for bar in picture.bars] == [(0, 2 * ROW), (0, ROW)]


def test_of_a_cluster_without_gpus_pods_lie_side_by_side():
    picture = laid(run(pod("a", gpus=0), pod("b", gpus=0, job="default/k"), gpus=0), "cores")
    assert picture.rows == 2


def test_pods_without_gpus_are_counted_not_drawn():
    picture = laid(run(pod("a", gpus=0)))
    assert (len(picture.bars), picture.left_out) == (0, 1)


def test_evictions_are_marked():
    picture = laid(run(pod("a", slots=(0,), end=LifeEnd.EVICTED)))
    assert [bar.evicted for bar in picture.bars] == [True]


def test_times_without_the_node_are_shaded():
    record = run(spans=[(0.0, 5.0, True), (5.0, 8.0, False), (10.0, 15.0, True)])
    axis = time_axis(record.seconds)
    assert [(x / axis.per_s, w / axis.per_s) for x, _, w, _ in laid(record).down] == [
        (5.0, 3.0), (8.0, 2.0), (15.0, 5.0),
    ]  # fmt: skip


def test_jobs_that_follow_each_other_differ_in_shade():
    asks = [
        Ask(name=f"j{turn}", pods=1, gpus=8000, run_s=10.0, created=turn * 1.0) for turn in range(9)
    ]
    bars = laid(Toy(1, 8, 8000).play(asks, name="r", seconds=200.0)).bars
    assert all(one.shade != other.shade for one, other in itertools.pairwise(bars))


def test_a_pod_of_a_job_nobody_knows_is_drawn_too():
    assert [bar.job for bar in laid(run(pod("a", slots=(0,)))).bars] == [-1]


def test_nodes_that_a_reservation_kept_are_marked_as_long_as_it_did():
    """Given a window over one of two nodes, its rows are marked for the time of the window."""
    nodes = KeptSpanRecorder()
    nodes.note_status("r", "Announced", ["n2"], at=0.0)
    nodes.note_status("r", "Active", ["n2"], at=5.0)
    nodes.note_status("r", "Active", ["n2"], at=7.0)
    nodes.note_status("r", "Announced", ["n2"], at=10.0)
    nodes.note_status("r", "Active", ["n2", "gone"], at=15.0)
    record = attrs.evolve(run(nodes=("n1", "n2")), kept=nodes.spans(20.0))
    axis = time_axis(record.seconds)
    assert laid(record).kept == (
        (axis.x(5.0), 2 * ROW, axis.x(10.0) - axis.x(5.0), 2 * ROW),
        (axis.x(15.0), 2 * ROW, axis.x(20.0) - axis.x(15.0), 2 * ROW),
    )
