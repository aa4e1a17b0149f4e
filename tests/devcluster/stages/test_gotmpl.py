"""The Go-template engine on what stages use of the language."""

from __future__ import annotations

from typing import Any

import pytest

from gpusched.devcluster.stages.templates import execution
from gpusched.devcluster.stages.templates.functions import SPRIG
from gpusched.devcluster.stages.templates.parser import TemplateError

DATA: dict[str, Any] = {"a": {"b": "x", "n": 3, "f": 1.5}, "l": ["p", "q"], "none": None}


def render(source: str, data: Any = DATA) -> str:
    return execution.render_template(source, data, SPRIG)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ .a.b }}", "x"),
        ("{{ .a.n }} {{ .a.f }}", "3 1.5"),
        ("a  {{- .a.b -}}  b", "axb"),
        ("{{/* nothing */}}ok", "ok"),
        ("{{ .missing.deeper }}", "<no value>"),
        ('{{ eq nil "x" }} {{ eq .missing nil }}', "false true"),
        ("{{ if .missing }}y{{ else }}n{{ end }}", "n"),
        ("{{ if .missing }}1{{ else if .a }}2{{ else }}3{{ end }}", "2"),
        ("{{ with .a }}{{ .b }}{{ $.a.n }}{{ end }}", "x3"),
        ("{{ with .missing }}y{{ else with .a.b }}{{ . }}{{ end }}", "x"),
        ("{{ range $i, $x := .l }}{{ $i }}{{ $x }}{{ end }}", "0p1q"),
        ("{{ range $k, $v := .a }}{{ $k }}={{ $v }};{{ end }}", "b=x;f=1.5;n=3;"),
        ("{{ range .missing }}y{{ else }}none{{ end }}", "none"),
        ('{{ range .l }}{{ if eq . "q" }}{{ break }}{{ end }}{{ . }}{{ end }}', "p"),
        ('{{ range .l }}{{ if eq . "p" }}{{ continue }}{{ end }}{{ . }}{{ end }}', "q"),
        ("{{ range 3 }}{{ . }}{{ end }}", "012"),
        ("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2"),
        ("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ end }}{{ $x }}", "1"),
        ("{{ or .missing .a.b }} {{ and .a.b .a.n }} {{ not .missing }}", "x 3 true"),
        ("{{ index .l 1 }} {{ index .a `b` }} {{ len .l }}", "q x 2"),
        ("{{ (index .l 0) }} {{ (dict `k` 1).k }}", "p 1"),
        ("{{ slice `abcdef` 1 3 }}", "bc"),
        ("{{ lt 1 2 }} {{ ge 2 2 }} {{ ne `a` `b` }} {{ eq 1 2 1 }}", "true true true true"),
        ('{{ printf "%s-%d %05d %q %v %%" "a" 7 42 "z" .l }}', 'a-7 00042 "z" [p q] %'),
        ('{{ printf "%d" "a" }}', "%!d(str=a)"),
        ('{{ define "t" }}<{{ . }}>{{ end }}{{ template "t" .a.b }}', "<x>"),
        ("{{ .a.b | upper | printf `%s!` }}", "X!"),
        ('{{ `}}` }}{{ "}}" }}', "}}}}"),
        ("{{ default `d` .missing }} {{ ternary 1 2 true }} {{ add 1 `2` }}", "d 1 3"),
    ],
)
def test_renders_as_go_does(source: str, text: str) -> None:
    """The same text comes out as from Go's own engine."""
    assert render(source) == text


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ if .a }}", "not closed with end"),
        ("{{ end }}", "without a block"),
        ("{{ .a", "not closed with }}"),
        ("{{ nope 1 }}", "nope"),
        ("{{ $x }}", "not declared"),
        ("{{ index .l 9 }}", "out of range"),
        ("{{ index .missing 0 }}", "has no items"),
        ("{{ .a.b.c }}", "has no field 'c'"),
        ('{{ eq 1 "a" }}', "different kinds"),
        ("{{ div 1 0 }}", "div"),
        ("{{ ( .a }}", "not closed"),
        ('{{ define "t" }}{{ template "t" . }}{{ end }}{{ template "t" . }}', "without end"),
    ],
)
def test_faults_are_named(source: str, why: str) -> None:
    """What cannot be rendered is refused with a sentence that names it."""
    with pytest.raises(TemplateError, match=why):
        render(source)
