"""Parts of a page that are no plots: head, verdicts, tables, key figures, acts and jobs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.engine.run_record import ActDone, JobLife, LifeEnd, RunRecord
from gpusched.lab.report.plots.svg import duration_text, escape_html, html_table, number_text
from gpusched.lab.report.run_report import JudgedExpectation, RunReport
from gpusched.lab.report.statistics.named import StatisticValue, statistic
from gpusched.lab.report.statistics.series import Unit, longest_reason
from gpusched.lab.report.statistics.tables import FilledTable

JOBS_MAX: Final = 2000
"""Jobs in the table of a page, those that waited longest; all are in jobs.csv."""
ACTS_MAX: Final = 2000
SAME_MAX: Final = 4
"""Acts of one moment that are told one by one."""
SAID_MAX: Final = 140
"""Characters of the sentence that tells why a job waited; the whole is in jobs.csv."""
TOLD_S: Final = 1.0
"""A job that had a reason to wait for less started at once, as far as people care."""
TEXT_HEADS: Final = ("job", "queue", "class", "end", "waited longest because")
DASH: Final = "\N{EN DASH}"


def page_head(one: RunReport, *, back: str = "") -> str:
    """Name, what it teaches, how it went and what it was played on."""
    record = one.record
    parts = [f'<p class="back"><a href="{escape_html(back)}">all scenarios</a></p>'] if back else []
    parts.append(f"<h1>{escape_html(record.name)}</h1>")
    if one.teaches:
        parts.append(f'<p class="teaches">{escape_html(one.teaches)}</p>')
    parts += [_badge(one.verdicts), run_errors(record)]
    facts = [("configuration", one.config), ("played on", record.ground), ("seed", record.seed),
             ("simulated time", duration_text(record.seconds)), ("nodes", f"{len(record.nodes):,}"),
             ("jobs", f"{len(record.jobs):,}"), ("pods", f"{len(record.pods):,}"),
             ("history", record.digest[:12])]  # fmt: skip
    meta = "".join(
        f"<li>{name} <b>{escape_html(fact)}</b></li>" for name, fact in facts if fact != ""
    )
    return "".join([*parts, f'<ul class="meta">{meta}</ul>'])


def _badge(verdicts: Sequence[JudgedExpectation]) -> str:
    if not verdicts:
        return ""
    held = sum(each.ok for each in verdicts)
    if held == len(verdicts):
        every = "the one expectation holds" if held == 1 else f"all {held} expectations hold"
        return f'<span class="badge good">\N{CHECK MARK} {every}</span>'
    return (
        f'<span class="badge bad">\N{MULTIPLICATION X} {len(verdicts) - held} of {len(verdicts)} '
        "expectations do not hold</span>"
    )


def run_errors(record: RunRecord) -> str:
    """What went wrong with the run itself: ended early, acts that failed, broken invariants."""
    parts = []
    if record.unfinished:
        parts.append(
            f'<p class="bad"><b>Ended before its time:</b> {escape_html(record.unfinished)}</p>'
        )
    failed = [act for act in record.acts if act.trouble]
    if failed:
        count = "an act" if len(failed) == 1 else f"{len(failed)} acts"
        parts.append(
            f'<p class="bad"><b>{count} of the timeline could not be done;</b> '
            f"the first: {escape_html(failed[0].sentence)}: {escape_html(failed[0].trouble)}</p>"
        )
    if record.broken:
        count = "1 breach" if len(record.broken) == 1 else f"{len(record.broken)} breaches"
        rows = [
            [duration_text(each.at), each.invariant, each.sentence] for each in record.broken[:50]
        ]
        parts.append(
            f'<p class="bad"><b>{count} of what must always hold.</b></p>'
            + html_table(["at", "invariant", "what was seen"], rows)
        )
    return "".join(parts)


def key_figures(record: RunRecord, unit: Unit) -> str:
    """The numbers that people ask for first."""
    of = {name: statistic(record, name) for name in (
        "completed", "failed", "makespan", "mean(wait)", "p95(wait)", "evictions", "lostGpuHours",
        "repeatedEvictions", "fragmentation", "fairness",
    )}  # fmt: skip
    use = "gpuUse" if unit == "GPUs" else "cpuUse"
    busy, whole = statistic(record, f"{use}Busy"), statistic(record, use)
    failed = f", {of['failed']} failed" if of["failed"].value else ""
    cards = [
        (f"{of['completed']} of {len(record.jobs):,}", f"jobs completed{failed}"),
        (_time(of["makespan"]), "makespan: first job made to last job ended"),
        (_time(of["mean(wait)"]), "mean wait"),
        (_time(of["p95(wait)"]), "95 % waited no longer"),
        (str(whole), f"of usable {unit} held" + (
            "" if busy.value is None else f", {busy} while a job waited")),
        (str(of["evictions"]),
         "pods evicted by the scheduler" + (f", {of['lostGpuHours']} of work lost" if of["evictions"].value else "")
         + (f", {of['repeatedEvictions']} times a gang that was evicted before" if of["repeatedEvictions"].value else "")),
    ]  # fmt: skip
    if unit == "GPUs" and of["fragmentation"].value is not None:
        cards.append((str(of["fragmentation"]), "of free GPUs of no use to these jobs"))
    if len({job.queue for job in record.jobs if job.gpus}) > 1:
        cards.append((str(of["fairness"]), "Jain's index of fairness, 1 is even"))
    items = "".join(
        f"<li><b>{escape_html(big)}</b><span>{escape_html(small)}</span></li>"
        for big, small in cards
    )
    return f'<ul class="cards" style="--n:{len(cards)}">{items}</ul>'


def _time(figure: StatisticValue) -> str:
    return DASH if figure.value is None else duration_text(figure.value)


def verdict_list(verdicts: Sequence[JudgedExpectation], *, ident: str = "verdicts") -> str:
    """One line each; those that do not hold first where there are many."""
    if not verdicts:
        return ""
    many = len(verdicts) > 12
    ordered = sorted(verdicts, key=lambda each: each.ok) if many else verdicts
    items = "".join(_verdict(each) for each in ordered)
    lines = f'<ul class="verdicts">{items}</ul>'
    if many and all(each.ok for each in verdicts):
        lines = f"<details><summary>{len(verdicts)} that all hold</summary>{lines}</details>"
    return f"<section{_id(ident)}><h2>What was expected</h2>{lines}</section>"


def _id(ident: str) -> str:
    return f' id="{ident}"' if ident else ""


def _verdict(each: JudgedExpectation) -> str:
    mark = (
        '<b class="good">\N{CHECK MARK} holds</b>' if each.ok
        else '<b class="bad">\N{MULTIPLICATION X} not so</b>'
    )  # fmt: skip
    seen = f"<small>{escape_html(each.seen)}</small>" if each.seen else ""
    return f"<li>{mark}<span>{escape_html(each.sentence)}{seen}</span></li>"


def table_section(tables: Sequence[FilledTable], *, ident: str = "published") -> str:
    """Tables of published numbers beside those of this run, which are bold."""
    if not tables:
        return ""
    parts = "".join(_grid(each) for each in tables)
    return f"<section{_id(ident)}><h2>Numbers side by side</h2>{parts}</section>"


def _grid(grid: FilledTable) -> str:
    heads = "".join(
        f'<th scope="col"{" class=n" if turn else ""}>{escape_html(each)}</th>'
        for turn, each in enumerate(grid.heads)
    )
    rows = "".join(
        f"<tr{' class=own' if any(cell.figure for cell in row) else ''}>"
        + "".join(
            f'<td class="{"n" if turn else ""}">{escape_html(cell.text)}</td>'
            for turn, cell in enumerate(row)
        )
        + "</tr>"
        for row in grid.rows
    )
    return (
        f'<h3>{escape_html(grid.title)}</h3><div class="wide"><table aria-label="{escape_html(grid.title)}">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def act_list(record: RunRecord) -> str:
    """What the timeline did, in order."""
    if not record.acts:
        return ""
    items = "".join(
        f"<li><time>{duration_text(at)}</time><span>{said}</span></li>"
        for at, said in _moments(record.acts[:ACTS_MAX])
    )
    more = len(record.acts) - ACTS_MAX
    left = f'<p class="note">{more:,} later ones are in acts.csv.</p>' if more > 0 else ""
    return (
        f'<section id="acts"><h2>What the timeline did</h2><ul class="acts" tabindex="0">{items}</ul>{left}'
        "</section>"
    )


def _moments(done: Sequence[ActDone]) -> Iterator[tuple[float, str]]:
    """Moments with what was done then; of many acts at one moment the first and last are told."""
    for at, group in itertools.groupby(done, key=lambda act: act.at):
        several = list(group)
        if len(several) <= SAME_MAX or any(act.trouble for act in several):
            yield from ((at, _act(act)) for act in several)
        else:
            left = len(several) - 2
            yield at, f"{_act(several[0])} ... {_act(several[-1])} <i>({left:,} more)</i>"


def _act(act: ActDone) -> str:
    said = escape_html(act.sentence)
    return (
        f'{said} <b class="bad">not done: {escape_html(act.trouble)}</b>' if act.trouble else said
    )


def job_table(record: RunRecord, unit: Unit) -> str:
    """One row per job, sortable where scripts run."""
    if not record.jobs:
        return ""
    order = list(range(len(record.jobs)))
    left = ""
    if len(order) > JOBS_MAX:
        order.sort(key=lambda turn: (-_wait(record.jobs[turn], record), turn))
        order = sorted(order[:JOBS_MAX])
        left = (
            f'<p class="note">The {JOBS_MAX:,} of {len(record.jobs):,} jobs that waited longest; '
            "all are in jobs.csv.</p>"
        )
    evicted: dict[str, int] = {}
    for each in record.evictions:
        evicted[each.job] = evicted.get(each.job, 0) + 1
    heads = ["job", "queue", "class", "pods", "GPUs", "made, s", "wait, s", "run, s", "ended, s",
             "end", "evicted", "waited longest because"]  # fmt: skip
    if unit != "GPUs":
        heads.remove("GPUs")
    head_cells = "".join(
        f'<th scope="col"{"" if each in TEXT_HEADS else " class=n"}>{each}</th>' for each in heads
    )
    rows = "".join(_job(record, turn, evicted, unit) for turn in order)
    return (
        f'<section id="jobs"><h2>Every job</h2>{left}'
        '<p class="filter"><label>Show only rows with <input type="search" '
        'placeholder="name, queue, reason"></label><span id="seen"></span></p>'
        f'<div class="wide tall" tabindex="0"><table class="sortable"><thead><tr>{head_cells}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _wait(job: JobLife, record: RunRecord) -> float:
    over = record.seconds if job.ended is None else job.ended
    return (over if job.started is None else job.started) - job.created


def _job(record: RunRecord, turn: int, evicted: dict[str, int], unit: Unit) -> str:
    job = record.jobs[turn]
    over = record.seconds if job.ended is None else job.ended
    run = DASH if job.started is None else number_text(over - job.started)
    waited = number_text(_wait(job, record)) + ("" if job.started is not None else " so far")
    numbers = [str(job.size), *([number_text(job.gpus / 1000, 3)] if unit == "GPUs" else []),
               number_text(job.created), waited, run, DASH if job.ended is None else number_text(job.ended)]  # fmt: skip
    reason, sentence, total = longest_reason(job, record.seconds)
    if total < TOLD_S:
        reason, sentence = "", ""
    said = (
        sentence
        if len(sentence) <= SAID_MAX
        else f"{sentence[: SAID_MAX - 1]}\N{HORIZONTAL ELLIPSIS}"
    )
    why = f"{reason}: {said}" if said else reason
    end = job.end.value if job.end is not LifeEnd.NONE else "still there"
    name = job.key.removeprefix("default/")
    return (
        f'<tr data-j="{turn}"><td>{escape_html(name)}</td><td>{escape_html(job.queue)}</td><td>{escape_html(job.klass)}</td>'
        + "".join(f'<td class="n">{each}</td>' for each in numbers)
        + f'<td>{end}</td><td class="n">{evicted.get(job.key, 0)}</td><td>{escape_html(why)}</td></tr>'
    )
