"""Texts that are no CEL expression are refused in the words of the API server's parser."""

import pytest

from gpusched.cel.compilation import compile_expression

OPERATORS = "'==', '!=', 'in', '<', '<=', '>=', '>', '&&', '||', '['"
START = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, "
    "STRING, BYTES, IDENTIFIER}"
)
REST = "'+', '*', '/', '%'}"


def complaints(text):
    """Place and message of each issue, without the quoted line and its mark."""
    run, _, why = compile_expression(text, {"a": "dyn", "b": "dyn"})
    assert run is None
    assert why.startswith("compilation failed: ")
    return [
        line.removeprefix("ERROR: <input>:")
        for line in why.removeprefix("compilation failed: ").split("\n")
        if line.startswith("ERROR")
    ]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a ==", [f"1:5: Syntax error: mismatched input '<EOF>' expecting {START}"]),
        ("1 +* 2", [f"1:4: Syntax error: extraneous input '*' expecting {START}"]),
        ("!)", [f"1:2: Syntax error: extraneous input ')' expecting {START}"]),
        (
            "-",
            [
                "1:2: Syntax error: no viable alternative at input '-'",
                f"1:2: Syntax error: mismatched input '<EOF>' expecting {START}",
            ],
        ),
        ("a b", ["1:3: Syntax error: extraneous input 'b' expecting <EOF>"]),
        (
            "a.b c d",
            [
                ("1:5: Syntax error: mismatched input 'c' expecting "
                f"{{<EOF>, {OPERATORS}, '.', '-', '?', {REST}")
            ],
        ),
        ("(1", ["1:3: Syntax error: missing ')' at '<EOF>'"]),
        ("(1 2)", ["1:4: Syntax error: extraneous input '2' expecting ')'"]),
        (
            "(a b c)",
            [
                ("1:4: Syntax error: mismatched input 'b' expecting "
                f"{{{OPERATORS}, ')', '.', '-', '?', {REST}")
            ],
        ),
        (
            "size(",
            [
                "1:6: Syntax error: mismatched input '<EOF>' expecting "
                + START.replace("'(', ", "'(', ')', ")
            ],
        ),
        ("size(a,)", [f"1:8: Syntax error: mismatched input ')' expecting {START}"]),
        ("[1 2", ["1:4: Syntax error: mismatched input '2' expecting {']', ','}"]),
        ("[1,", ["1:4: Syntax error: missing ']' at '<EOF>'"]),
        ("[1,,2]", ["1:4: Syntax error: mismatched input ',' expecting ']'"]),
        ("{1 2}", ["1:4: Syntax error: missing ':' at '2'"]),
        ("{1:2 3}", ["1:6: Syntax error: extraneous input '3' expecting {'}', ','}"]),
        ("a[1", ["1:4: Syntax error: missing ']' at '<EOF>'"]),
        ("a ? b c", ["1:7: Syntax error: missing ':' at 'c'"]),
        ("a.", ["1:3: Syntax error: no viable alternative at input '.'"]),
        ("a..b", ["1:3: Syntax error: no viable alternative at input '..'"]),
        (
            "a = b",
            [
                "1:3: Syntax error: token recognition error at: '= '",
                "1:5: Syntax error: extraneous input 'b' expecting <EOF>",
            ],
        ),
        (
            "a == 'x",
            [
                "1:6: Syntax error: token recognition error at: ''x'",
                f"1:8: Syntax error: mismatched input '<EOF>' expecting {START}",
            ],
        ),
        ("a &&& b", ["1:5: Syntax error: token recognition error at: '& '"]),
        ("a\n # b", [
            "2:2: Syntax error: token recognition error at: '#'",
            "2:4: Syntax error: extraneous input 'b' expecting <EOF>",
        ]),
        ("a == '\\q'", [
            "1:6: Syntax error: token recognition error at: ''\\q'",
            "1:9: Syntax error: token recognition error at: '''",
            f"1:10: Syntax error: mismatched input '<EOF>' expecting {START}",
        ]),
        ("if", ["1:1: reserved identifier: if"]),
    ],
)  # fmt: skip
def test_each_kind_of_mistake_is_worded_as_on_a_real_server(text, want):
    assert complaints(text) == want


def test_the_place_is_marked_below_the_line():
    _, _, why = compile_expression("a ==\n  b c", {"a": "dyn", "b": "dyn"})
    assert why.endswith("\n |   b c\n | ....^")


@pytest.mark.parametrize("text", ["(" * 300 + "1" + ")" * 300, "!" * 300 + "a"])
def test_nesting_without_end_is_refused(text):
    assert complaints(text) == [
        f"1:{len(text) + 1}: Syntax error: expression recursion limit exceeded"
    ]
