"""Several runs on one page: what differs, which is best, and the same pictures of each."""

import attrs
import pytest

from benchmarks.report_inputs import Ask, Toy, mixed_day
from gpusched.lab.report.pages.run_page import render_page
from gpusched.lab.report.run_report import JudgedExpectation, RunReport
from gpusched.lab.report.statistics.comparison import (
    changed_jobs,
    compare_runs,
    difference_text,
)
from gpusched.lab.report.statistics.named import StatisticValue
from tests.lab.report.test_page import EVIL, Tags, svgs


def run(name, *, nodes=1, **changes):
    """Four jobs of one node each, on so many nodes."""
    asks = [Ask(name=f"j{turn}", pods=1, gpus=8000, run_s=60.0) for turn in range(4)]
    made = Toy(nodes, 8, 8000).play(asks, name=name, seconds=600.0)
    return attrs.evolve(made, **changes)


def row(records, name):
    return next(each for each in compare_runs(records, "GPUs") if each.name == name).cells


def test_the_best_of_each_statistic_is_marked_and_differences_are_to_the_first():
    """With two nodes instead of one, jobs wait 31 s instead of 93 s in the mean."""
    first, second = row([run("one"), run("two", nodes=2)], "wait, mean")
    assert (first.text, second.text) == ("93.0 s", "31.0 s")
    assert (first.change, second.change) == ("", "\N{MINUS SIGN}62.0 s (\N{MINUS SIGN}66.7 %)")
    assert (first.best, second.best) == (False, True)


def test_more_use_is_better():
    first, second = row([run("one"), run("two", nodes=2)], "GPUs in use while a job waited")
    assert (first.text, second.text, second.change) == ("100.0 %", "100.0 %", "same")


def test_equal_runs_have_no_best():
    rows = compare_runs([run("one"), run("other")], "GPUs")
    assert rows
    assert not any(cell.best for each in rows for cell in each.cells)


def test_jobs_are_listed_by_how_much_their_wait_differs():
    rows = changed_jobs([run("one"), run("two", nodes=2)], most=2)
    assert [(each.name, each.waits, each.spread) for each in rows] == [
        ("j3", (186.0, 62.0), 124.0),
        ("j1", (62.0, 0.0), 62.0),
    ]


def test_a_job_that_only_one_run_has_is_not_compared():
    one = run("one")
    assert changed_jobs([one, attrs.evolve(one, jobs=())], most=9) == []


def test_the_page_is_whole_and_safe():
    runs = [RunReport(record=mixed_day(60, name=name)) for name in ("a", "b", EVIL)]
    text = render_page(runs, title="Three ways", files=["data/a", "data/b"])
    tags = Tags(text)
    assert svgs(text)
    assert "<script>alert" not in text
    idents = [attributes["id"] for _, attributes in tags.seen if "id" in attributes]
    assert len(idents) == len(set(idents))
    assert "Three ways" in tags.words


def test_verdicts_of_each_configuration_are_shown():
    verdict = JudgedExpectation(sentence="nobody is evicted", ok=False, seen="3 evictions")
    runs = [RunReport(record=run("a")), RunReport(record=run("b"), verdicts=(verdict,))]
    assert "nobody is evicted 3 evictions" in Tags(render_page(runs)).words


def test_runs_of_different_length_and_empty_ones_are_compared():
    short = attrs.evolve(run("short"), seconds=300.0)
    empty = attrs.evolve(run("empty"), jobs=(), pods=(), queues=(), nodes=())
    assert svgs(render_page([RunReport(record=each) for each in (run("long"), short, empty)]))


@pytest.mark.parametrize("names", [[], ["a", "a"], list("abcdefg")])
def test_what_cannot_be_compared_is_refused(names):
    with pytest.raises(ValueError, match=r"compar|names of their own"):
        render_page([RunReport(record=run(name)) for name in names])


@pytest.mark.parametrize(
    ("first", "then", "unit", "told"),
    [
        (10.0, 12.5, "s", "+2.50 s (+25.0 %)"),
        (1e-4, 19.3, "GPU-h", "+19.3 GPU-h"),
        (0.0, 19.3, "GPU-h", "+19.3 GPU-h"),
        (1.0, 1.0 - 1e-9, "x", "same"),
        (4.0, 3.0, "", "\N{MINUS SIGN}1 (\N{MINUS SIGN}25.0 %)"),
    ],
)
def test_a_difference_is_told_as_far_as_it_says_something(first, then, unit, told):
    assert difference_text(StatisticValue(then, unit), StatisticValue(first, unit)) == told
