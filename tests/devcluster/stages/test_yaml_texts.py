"""Cutting values out of a text before it is parsed changes nothing of what it says."""

from __future__ import annotations

import pytest
import yaml

from gpusched.devcluster.stages.rendering import TemplateYamlLoader, parse_rendered
from gpusched.devcluster.stages.templates.parser import TemplateError

TEXTS = [
    'a: "1"\nb: "true"\nc: 10.0.0.1\nd: node-1\ne: "2026-01-01T00:00:00Z"',
    "a: yes\nb: no-1\nc: 1.2.3\nd: 1.2.3.4.5\ne: 2026-01-01T00:00:00Z\nf: 1-2",
    'a: "@@0"\nb: "@@1"\nc: "x"',
    'a: |\n  b: "x"\n  c: 1.2.3.4\nd: "y"',
    'a: >-\n  b: "x"\nd: node-1',
    'a: "x" # b: "y"\n# c: "z"\nd: "w"',
    'a: &one "x"\nb: *one\nc: "y"',
    'a: "x"\na: "y"',
    "a: node-1\n  and more\nb: 2",
    'a: \'b: "c"\n  d: "e"\'\nf: "g"',
    'a: !!str "5"\nb: ! "6"',
    'a: "tab\\there"\nb: "x\\"y"\nc: ""\nd: " spaced "',
    '- a: "x"\n- b: [node-1, "y"]\n- "z"',
    'a:\n- ip: "10.0.0.1"\n- ip: "10.0.0.1"',
    "a: null-1\nb: ~\nc: null\nd:",
    '? "k": "v"\n: "w"',
    "<<: {a: node-1}\nb: x-1",
    "",
    "text",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_says_what_a_parser_reads_in_it(text: str) -> None:
    """Values come back where they stood, as texts where the parser takes them for texts."""
    try:
        want = yaml.load(text, Loader=TemplateYamlLoader)
    except yaml.YAMLError:
        with pytest.raises(TemplateError):
            parse_rendered(text)
        return
    assert parse_rendered(text) == want


@pytest.mark.parametrize("value", ["x", "y", "@@0", "true", "1", " ", "a: b", "#", "- &x *y"])
def test_texts_of_one_form_keep_their_own_values(value: str) -> None:
    """What was parsed for one text is not what another says."""
    text = f'a: "{value}"\nb:\n- c: "{value}"\n  d: fixed'
    assert parse_rendered(text) == {"a": value, "b": [{"c": value, "d": "fixed"}]}
