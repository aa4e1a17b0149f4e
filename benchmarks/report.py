"""How long a page takes to make and how large it is, for the shape of M4."""

from __future__ import annotations

import time

from benchmarks.figures import Figure, middle
from benchmarks.report_inputs import thousand_jobs
from gpusched.lab.report.csv_files import csv_files
from gpusched.lab.report.pages.run_page import render_page
from gpusched.lab.report.run_report import RunReport

RUNS = 3


def measure() -> list[Figure]:
    """CPU seconds and bytes of the page and the CSV files of 1,000 jobs with 10,000 pods."""
    record = thousand_jobs()
    text, spent = "", []
    for _ in range(RUNS):
        began = time.process_time()
        text = render_page([RunReport(record=record)])
        spent.append(time.process_time() - began)
    began = time.process_time()
    csv_files(record)
    csv_s = time.process_time() - began
    seconds, spread = middle(spent)
    size = len(text.encode()) / 1e6
    return [
        Figure(name="report page, 1,000 jobs, 10,000 pods", measured=seconds, unit="CPU s",
               spread=spread, target="under 2", met=seconds < 2),
        Figure(name="its size", measured=size, unit="MB", target="under 5", met=size < 5),
        Figure(name="its CSV files", measured=csv_s, unit="CPU s", target="under 2", met=csv_s < 2),
    ]  # fmt: skip
