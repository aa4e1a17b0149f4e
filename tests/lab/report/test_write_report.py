"""Reports in a folder."""

import re

import pytest

from benchmarks.report_inputs import Ask, Toy
from gpusched.base.errors import UsageError
from gpusched.lab.report.run_report import JudgedExpectation, RunReport
from gpusched.lab.report.write_report import file_names, write_compared, write_report


def reported(name, *, ok=True):
    run = Toy(1, 8, 8000).play([Ask(name="j", gpus=8000)], name=name, seconds=100.0)
    return RunReport(
        record=run, verdicts=(JudgedExpectation(sentence="j is complete", ok=ok),), teaches="How."
    )


def test_one_run_is_one_page_with_its_numbers(tmp_path):
    index = write_report(tmp_path / "report", [reported("first")])
    assert index == tmp_path / "report" / "index.html"
    text = index.read_text()
    links = list(re.findall(r'href="([^"]+)"', text))
    assert links
    assert all((index.parent / link).is_file() for link in links)


def test_several_runs_have_a_list_with_a_page_each(tmp_path):
    runs = [reported("first"), reported("second", ok=False), reported("../first")]
    index = write_report(tmp_path, runs)
    text = index.read_text()
    assert "1 of 3 do not hold" in text
    links = re.findall(r'href="([^"]+)"', text)
    assert len(links) == 3
    for link in links:
        page = tmp_path / link
        assert page.parent == tmp_path
        for inner in re.findall(r'href="([^"]+)"', page.read_text()):
            assert (tmp_path / inner).is_file()


def test_names_of_scenarios_make_safe_and_unique_file_names():
    """Foreign names neither leave the folder nor cover each other, whatever the file system."""
    names = file_names(
        ["a", "A", "../../etc/passwd", "..", "", "index", "x" * 300, "x" * 300 + "y"]
    )
    assert names == [
        "a", "A-2", "-..-etc-passwd", "run", "run-2", "index-2", "x" * 80, "x" * 80 + "-2",
    ]  # fmt: skip


def test_a_folder_that_cannot_be_written_is_told_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="the report cannot be written to"):
        write_report(tmp_path / "file", [reported("first")])


def test_a_comparison_is_one_page_with_the_numbers_of_each(tmp_path):
    index = write_compared(tmp_path, [reported("greedy"), reported("solver")], title="Two ways")
    assert "Two ways" in index.read_text()
    for link in re.findall(r'href="([^"]+)"', index.read_text()):
        assert (tmp_path / link).is_file()
    assert (tmp_path / "data" / "solver" / "jobs.csv").is_file()


def test_what_a_page_cannot_compare_is_told_in_a_sentence(tmp_path):
    for runs in ([reported("a")], [reported("a"), reported("a")], [reported(n) for n in "abcdefg"]):
        with pytest.raises(UsageError, match="configurations"):
            write_compared(tmp_path, runs, title="")
    assert not list(tmp_path.iterdir())
