"""The page of a run: whole, safe, self-contained, and true to its record."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import attrs
import pytest

from benchmarks.report_inputs import Ask, Toy, mixed_day, thousand_jobs
from gpusched.engine.run_record import (
    ActDone,
    BrokenInvariant,
    JobLife,
    LifeEnd,
    NodeLife,
    NodeSpan,
    PodLife,
    RunRecord,
    WaitReason,
)
from gpusched.lab.report.pages.run_page import render_page
from gpusched.lab.report.run_report import JudgedExpectation, RunReport
from gpusched.lab.report.statistics.named import StatisticValue
from gpusched.lab.report.statistics.tables import FilledTable, TableCell

VOID = {"meta", "input", "br", "hr", "img", "link"}
EVIL = "<script>alert('x')</script>\"&\x07]]>"


class Tags(HTMLParser):
    """Every element is closed in order; keeps tags, attributes and visible text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.text = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        """Keep it, and expect its end."""
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        """Keep it."""
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        """It is that of the element opened last."""
        assert self.open[-1:] == [tag], (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        """Keep what people see."""
        if not {"script", "style"} & set(self.open):
            self.text.append(data)

    @property
    def words(self):
        """All visible text, with single spaces."""
        return " ".join(" ".join(self.text).split())


def small(**changes):
    """Two jobs on one node, one of which is evicted for the other."""
    asks = [
        Ask(name="low", pods=2, gpus=4000, run_s=100.0, klass="batch"),
        Ask(name="high", queue="b", pods=1, gpus=4000, run_s=30.0, created=20.0, priority=5),
    ]
    made = Toy(1, 8, 8000).play(asks, name="small", seconds=200.0)
    return attrs.evolve(made, **changes)


def svgs(text):
    return [ET.fromstring(each) for each in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


@pytest.fixture(scope="module")
def day():
    return mixed_day(230)


def test_every_element_is_closed_and_every_picture_is_xml(day):
    text = render_page([RunReport(record=day)])
    tags = Tags(text)
    assert len(svgs(text)) >= 10
    idents = [attributes["id"] for _, attributes in tags.seen if "id" in attributes]
    assert len(idents) == len(set(idents))


def test_a_page_asks_for_nothing_from_elsewhere(day):
    """No address of another place in it, and a policy that forbids every request."""
    text = render_page([RunReport(record=day)], files=["data"])
    tags = Tags(text)
    for tag, attributes in tags.seen:
        assert tag not in {"link", "img", "iframe", "object", "embed"}
        assert "src" not in attributes
        assert not re.match(r"[a-z]+:|//", attributes.get("href", ""))
    assert "default-src 'none'" in text
    addresses = set(re.findall(r"https?://[^\s\"'<]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name space, in the script
    assert "url(" not in text
    assert "@import" not in text


def test_foreign_texts_are_shown_and_never_run():
    """Names, reasons, sentences and verdicts are text wherever they come."""
    job = JobLife(
        key=f"default/{EVIL}", kind="Job", uid="u", queue=EVIL, klass=EVIL, priority=0, size=1,
        min_member=1, gpus=8000, created=0.0, started=5.0,
        reasons=(WaitReason(at=0.0, reason=EVIL, sentence=EVIL),),
    )  # fmt: skip
    pod = PodLife(
        name=EVIL, namespace="default", uid="u", job=job.key, queue=EVIL, gpus=8000, cpu=0,
        memory=0, created=0.0, bound=5.0, node=EVIL, slots=tuple(range(8)),
    )  # fmt: skip
    node = NodeSpan(since=0.0, until=60.0, gpus=8000, cpu=1, memory=1, usable=True)
    record = small(
        name=EVIL, jobs=(job,), pods=(pod,), unfinished=EVIL,
        nodes=(NodeLife(name=EVIL, labels={}, spans=(node,)),),
        acts=(ActDone(at=1.0, sentence=EVIL, trouble=EVIL),),
        broken=(BrokenInvariant(at=1.0, invariant="room", sentence=EVIL),),
    )  # fmt: skip
    table = FilledTable(title=EVIL, heads=(EVIL,), rows=((TableCell(text=EVIL),),))
    text = render_page([RunReport(record=record, teaches=EVIL, config=EVIL, tables=(table,),
                          verdicts=(JudgedExpectation(sentence=EVIL, ok=False, seen=EVIL),))])  # fmt: skip
    assert "<script>alert" not in text
    tags = Tags(text)
    assert [tag for tag, _ in tags.seen].count("script") == sum(
        tag == "script" for tag, _ in Tags(render_page([RunReport(record=record)])).seen
    )
    assert tags.words.count("<script>alert('x')</script>") > 10
    assert "\x07" not in text
    assert svgs(text)


def test_the_same_run_gives_the_same_bytes():
    assert render_page([RunReport(record=mixed_day(60))]) == render_page(
        [RunReport(record=mixed_day(60))]
    )


def test_a_run_in_which_nothing_happened_has_a_page():
    """One second, no node, no job: no plot divides by nothing."""
    for seconds in (0.0, 1.0):
        record = RunRecord(name="empty", ground="embedded", seed=1, seconds=seconds, epoch=0.0)
        words = Tags(render_page([RunReport(record=record)])).words
        assert "0 of 0 jobs completed" in words


def test_a_run_whose_jobs_never_start_has_a_page():
    job = JobLife(
        key="default/stuck", kind="Job", uid="u", queue="a", klass="job", priority=0, size=4,
        min_member=4, gpus=32_000, created=0.0,
        reasons=(WaitReason(at=0.0, reason="NotEnoughRoom", sentence="4 pods need 32 GPUs"),),
    )  # fmt: skip
    record = RunRecord(
        name="stuck", ground="embedded", seed=1, seconds=60.0, epoch=0.0, jobs=(job,)
    )
    words = Tags(render_page([RunReport(record=record)])).words
    assert "60 so far" in words
    assert "NotEnoughRoom: 4 pods need 32 GPUs" in words
    assert "1 of 1 of job" in words


def test_head_and_verdicts_say_how_it_went():
    one = RunReport(
        record=small(unfinished="the API server went away"), teaches="Urgent jobs come first.",
        config="greedy.yaml",
        verdicts=(JudgedExpectation(sentence="job high is complete by 2m", ok=True),
                  JudgedExpectation(sentence="job low is never evicted", ok=False, seen="2 evictions")),
    )  # fmt: skip
    words = Tags(render_page([one])).words
    for said in ("Urgent jobs come first.", "greedy.yaml", "1 of 2 expectations do not hold",
                 "job low is never evicted 2 evictions", "Ended before its time: the API server"):  # fmt: skip
        assert said in words


def test_measured_rows_stand_out_among_published_ones():
    row = (TableCell(text="gpusched"), TableCell(text="72.0", figure=StatisticValue(72.0, "s")))
    table = FilledTable(title="M1", heads=("", "wait s"),
                        rows=((TableCell(text="MCAD (published)"), TableCell(text="71.9")), row))  # fmt: skip
    tags = Tags(render_page([RunReport(record=small(), tables=(table,))]))
    assert sum(attributes.get("class") == "own" for _, attributes in tags.seen) == 1
    assert "M1 wait s MCAD (published) 71.9 gpusched 72.0" in tags.words


def test_evictions_are_told_with_their_reason_and_cost():
    words = Tags(render_page([RunReport(record=small())])).words
    assert "Reclaimed 2 0.04" in words  # two pods with 4 GPUs each that ran for 18 s


def test_the_table_of_jobs_tells_wait_run_and_reason():
    text = render_page([RunReport(record=small())])
    rows = re.findall(r'<tr data-j="\d+">(.*?)</tr>', text)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    high = next(row for row in cells if row[0] == "high")
    assert high[:9] == ["high", "b", "training", "1", "4", "20", "0", "32", "52"]
    low = next(row for row in cells if row[0] == "low")
    assert low[9] == LifeEnd.SUCCEEDED.value
    assert low[10] == "2"
    assert low[11] == "Evicted: gave room to default/high"


def test_a_thousand_jobs_make_a_page_under_five_megabytes():
    """The shape of M4: its Gantt is as many rectangles as jobs ran, not one per pod."""
    record = thousand_jobs()
    text = render_page([RunReport(record=record)])
    assert len(record.pods) == 10_000
    assert len(text) < 1_500_000
    assert text.count("data-j=") == 1000


def test_only_the_longest_waiting_of_very_many_jobs_are_listed():
    jobs = tuple(
        JobLife(key=f"default/j{turn}", kind="Job", uid=str(turn), queue="q", klass="job",
                priority=0, size=1, min_member=1, gpus=0, created=0.0, started=float(turn))
        for turn in range(2500)
    )  # fmt: skip
    record = RunRecord(
        name="many", ground="simulated", seed=1, seconds=3000.0, epoch=0.0, jobs=jobs
    )
    text = render_page([RunReport(record=record)])
    assert text.count("data-j=") == 2000
    assert ">j2499<" in text
    assert ">j499<" not in text


def test_acts_are_marked_below_every_axis_of_time_and_told():
    acts = (
        ActDone(at=5.0, sentence="cordon n1"),
        ActDone(at=9.0, sentence="drain", trouble="gone"),
    )
    text = render_page([RunReport(record=small(acts=acts))])
    assert text.count('<div class="marks"') == text.count('class="plot timed')
    assert 'class="act" d="M500 0v1"' in text
    assert 'class="act not" d="M900 0v1"' in text
    words = Tags(text).words
    assert "9s drain not done: gone" in words
    assert "1 acts of the timeline could not be done" not in words
    assert "an act of the timeline could not be done" in words


def test_many_acts_of_one_moment_are_told_as_one():
    acts = tuple(ActDone(at=1.0, sentence=f"submit j{turn}") for turn in range(50))
    assert (
        "1s submit j0 ... submit j49 (48 more)"
        in Tags(render_page([RunReport(record=small(acts=acts))])).words
    )


def test_breaches_of_invariants_stand_at_the_top():
    broken = (BrokenInvariant(at=3.0, invariant="gangs", sentence="1 of 2 pods of low"),)
    words = Tags(render_page([RunReport(record=small(broken=broken))])).words
    assert "1 breach of what must always hold" in words
    assert "3s gangs 1 of 2 pods of low" in words
