"""Texts, axes and scales of plots."""

import pytest

from gpusched.engine.run_record import JobLife, WaitReason
from gpusched.lab.report.pages.style import _GROUNDS as GROUNDS
from gpusched.lab.report.pages.style import _TEXTS as TEXTS
from gpusched.lab.report.pages.style import DARK, LIGHT, SHADES, contrast_ratio
from gpusched.lab.report.pages.style import _mixed as mixed
from gpusched.lab.report.plots.svg import (
    duration_text,
    escape_html,
    nice_ticks,
    number_text,
    script_json,
    time_axis,
)
from gpusched.lab.report.plots.waiting_times import WaitSummary, scale_of
from gpusched.lab.report.statistics.series import longest_reason


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.44, "0.4s"), (59.9, "59.9s"), (60, "1m"), (90, "1m30s"), (4500, "1h15m"),
     (3605, "1h"), (187_200, "2d4h"), (-90, "-1m30s")],
)  # fmt: skip
def test_durations_are_written_as_people_do(seconds, text):
    assert duration_text(seconds) == text


def test_numbers_have_no_needless_zeros():
    assert [number_text(each) for each in (0, -0.01, 1234.5, 2.0, 0.25)] == [
        "0",
        "0",
        "1,234.5",
        "2",
        "0.2",
    ]


def test_an_axis_ends_at_a_round_number_not_below_the_largest_value():
    for top in (0.0, 0.003, 1, 7.9, 8, 96, 1000, 123_456):
        ticks = nice_ticks(top)
        assert ticks[0] == 0
        assert ticks[-1] >= top
        assert 2 <= len(ticks) <= 6


@pytest.mark.parametrize("seconds", [0, 0.5, 1, 90, 4500, 86_400, 30 * 86_400])
def test_time_axes_fit_any_length(seconds):
    """Coordinates stay small, and there are few ticks, all inside."""
    axis = time_axis(seconds)
    assert 1 <= axis.wide <= 100_000
    assert 1 <= len(axis.ticks()) <= 9
    assert all(0 <= share <= 1 for share, _ in axis.ticks())
    assert axis.x(-5) == 0
    assert axis.x(seconds + 5) == axis.wide


def test_data_in_scripts_cannot_end_them():
    assert "<" not in script_json({"a": "</script><!--", "b": "\u2028&"})
    assert (
        escape_html("<a href='x'>\x00\ud800")
        == "&lt;a href=&#x27;x&#x27;&gt;\N{REPLACEMENT CHARACTER}?"
    )


def test_waits_that_span_decades_are_on_a_logarithmic_axis():
    short = WaitSummary(name="a", seconds=(1.0,) * 9 + (4000.0,), started=())
    even = WaitSummary(name="a", seconds=(100.0, 200.0, 300.0), started=())
    assert scale_of([short]).log
    assert not scale_of([even]).log
    assert scale_of([]).ticks
    for each in ([short], [even]):
        shares = [share for share, _ in scale_of(each).ticks]
        assert shares == sorted(shares)
        assert shares[0] == 0
        assert shares[-1] == pytest.approx(1)


def test_colours_are_seen_on_their_ground_and_texts_can_be_read_on_them():
    """At least 3 to 1 for areas, and 4.2 to 1 for labels on any shade."""
    for hues, ground in ((LIGHT, GROUNDS[0]), (DARK, GROUNDS[1])):
        for hue in hues:
            assert contrast_ratio(hue, ground) >= 3
            for opacity in SHADES:
                on = mixed(hue, ground, opacity)
                assert max(contrast_ratio(text, on) for text in TEXTS) >= 4.2


def test_waits_of_milliseconds_are_seen_as_what_they_are():
    """Their axis ends at a second, with ticks that differ."""
    scale = scale_of([WaitSummary(name="a", seconds=(0.005, 0.01), started=())])
    assert scale.ticks[-1][1] == "1s"
    assert len({label for _, label in scale.ticks}) == len(scale.ticks)


def test_the_longest_reason_counts_all_its_spans_and_none_after_the_end():
    """Two short waits for quota outweigh a longer one for room; its last sentence is told."""
    told = [(0, "Quota", "a"), (4, "Room", "b"), (9, "Quota", "c"), (13, "", ""), (30, "Late", "d")]
    job = JobLife(
        key="default/j", kind="Job", uid="u", queue="q", klass="job", priority=0, size=1,
        min_member=1, gpus=0, created=0.0, started=13.0, ended=20.0,
        reasons=tuple(WaitReason(at=at, reason=why, sentence=said) for at, why, said in told),
    )  # fmt: skip
    assert longest_reason(job, 100.0) == ("Quota", "c", 8.0)
