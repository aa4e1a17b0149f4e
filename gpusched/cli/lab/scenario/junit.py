"""Runs as JUnit XML: a suite a scenario, a case an expectation, as CI servers read it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from gpusched.cli.lab.scenario.scenario_report import (
    broken,
    expectation_text,
    failed_acts,
    invariants,
)
from gpusched.lab.scenario.play.run import ScenarioRun

_UNPRINTABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd]")
_PLAYED: Final = "it is played to its end"


def write_junit(runs: Sequence[ScenarioRun], file: Path) -> None:
    """Write what came of runs.

    Raises:
        OSError: the file cannot be written.
    """
    suites = ET.Element("testsuites", name="gpusched")
    for run in runs:
        suites.append(_suite(run))
    for key in ("tests", "failures", "skipped"):
        suites.set(key, str(sum(int(suite.get(key, "0")) for suite in suites)))
    suites.set("time", f"{sum(run.real_s for run in runs):.3f}")
    ET.indent(suites)
    text: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    file.write_bytes(text + b"\n")


def _suite(run: ScenarioRun) -> ET.Element:
    name = _clean(run.scenario.name)
    suite = ET.Element("testsuite", name=name, time=f"{run.real_s:.3f}")
    place = str(run.scenario.place)
    for verdict in run.verdicts:
        case = _case(suite, name, expectation_text(verdict.expectation))
        if not verdict.ok:
            _fail(case, [f"{verdict.seen} ({verdict.expectation.place})"])
    if run.record is not None:
        case = _case(suite, name, invariants(run))
        if run.record.broken:
            _fail(case, broken(run))
    case = _case(suite, name, _PLAYED)
    if run.skipped:
        ET.SubElement(case, "skipped", message=_clean(run.skipped))
    elif failed_acts(run):
        _fail(case, [f"{each} ({place})" for each in failed_acts(run)])
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    return suite


def _case(suite: ET.Element, scenario: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=scenario, name=_clean(name), time="0")


def _fail(case: ET.Element, sentences: Sequence[str]) -> None:
    failure = ET.SubElement(case, "failure", message=_clean(sentences[0]))
    failure.text = _clean("\n".join(sentences))


def _clean(text: str) -> str:
    """Without what XML cannot hold."""
    return _UNPRINTABLE.sub("?", text)
