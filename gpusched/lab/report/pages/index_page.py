"""The page that lists the runs of one command, with how each went and a link to its page."""

from __future__ import annotations

from collections.abc import Sequence

from gpusched.lab.report.pages.document import html_document
from gpusched.lab.report.plots.svg import TALL, duration_text, escape_html, step_area, time_axis
from gpusched.lab.report.run_report import RunReport
from gpusched.lab.report.statistics import over_time
from gpusched.lab.report.statistics.named import statistic
from gpusched.lab.report.statistics.series import RESOURCE, align_series, unit_of


def index_page(runs: Sequence[RunReport], links: Sequence[str], *, title: str = "Scenarios") -> str:
    """The list; ``links`` are the addresses of the pages, in the order of the runs."""
    bad = sum(not _fine(one) for one in runs)
    if bad:
        said = (
            f'<span class="badge bad">\N{MULTIPLICATION X} {bad} of {len(runs)} do not hold</span>'
        )
    else:
        said = f'<span class="badge good">\N{CHECK MARK} all {len(runs)} hold</span>'
    heads = "".join(
        f'<th scope="col">{each}</th>'
        for each in ("scenario", "expectations", "simulated time", "in use over time", "jobs",
                     "mean wait", "evictions", "what it teaches")
    )  # fmt: skip
    rows = "".join(_row(one, link) for one, link in zip(runs, links, strict=True))
    body = (
        f'<div class="top"><h1>{escape_html(title)}</h1>{said}</div><main><div class="wide">'
        f'<table class="runs sortable"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        "</div></main>"
    )
    return html_document(title, body, {"wide": 1, "per_s": 1, "seconds": 1, "queues": [], "jobs": [],
                                  "acts": []})  # fmt: skip


def _fine(one: RunReport) -> bool:
    record = one.record
    return all(each.ok for each in one.verdicts) and not record.broken and not record.unfinished


def _row(one: RunReport, link: str) -> str:
    record = one.record
    held = sum(each.ok for each in one.verdicts)
    said = f"{held} of {len(one.verdicts)}" if one.verdicts else "none"
    mark = (
        f'<td class="good">\N{CHECK MARK} {said}</td>' if _fine(one)
        else f'<td class="bad">\N{MULTIPLICATION X} {said}</td>'
    )  # fmt: skip
    wait = statistic(record, "mean(wait)").value
    return (
        f'<tr><td><a href="{escape_html(link)}">{escape_html(record.name)}</a></td>{mark}'
        f'<td class="n" data-v="{record.seconds:.3f}">{duration_text(record.seconds)}</td><td>{_spark(one)}</td>'
        f'<td class="n">{len(record.jobs):,}</td>'
        f'<td class="n" data-v="{wait or 0:.3f}">{"" if wait is None else duration_text(wait)}</td>'
        f'<td class="n">{len(record.evictions):,}</td><td>{escape_html(one.teaches)}</td></tr>'
    )


def _spark(one: RunReport) -> str:
    """What was held over time, small."""
    record = one.record
    unit = unit_of([record])
    axis = time_axis(record.seconds)
    used = align_series([over_time.used_amounts(record, RESOURCE[unit])], axis.seconds, most=120)
    there = float(over_time.offered_amounts(record, RESOURCE[unit]).values.max(initial=0))
    top = max(there, float(used.rows[0].max(initial=0))) or 1.0
    tops = [round(TALL * (1 - value / top)) for value in used.rows[0].tolist()]
    path = step_area([axis.x(at) for at in used.at.tolist()], tops, axis.wide)
    return (
        f'<svg class="spark" viewBox="0 0 {axis.wide} {TALL}" preserveAspectRatio="none" role="img" '
        f'aria-label="{unit} held over time"><path class="f0" d="{path}"/></svg>'
    )
