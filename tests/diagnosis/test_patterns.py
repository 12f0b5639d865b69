"""Which patterns a pack may hold, and what engines are given of them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.diagnosis.patterns import PatternRefused, parse


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"(?=foobar)x", "look-around"),
        (r"(foobar)\1", "back-references"),
        (r"(?>foobar)x", "atomic"),
        (r"foobar++", "possessive"),
        (r"(a+)+foobar", "for ever"),
        (r"(?:a{1,50}){1,50}foobar.*", "for ever"),
        (r"(?:\d+\.)+foobar", ""),
        (r"foo.*bar1.*bar2.*bar3.*bar4.*baz", "unbounded"),
        (r"ab", "plain text"),
        (r"foobar|ab", "plain text"),
        (r"foobar{500}", "counts higher"),
        (r"foo^barbaz", "first"),
        (r"foobar(", "no regular expression"),
        (r"foob[é]r foobar", "non-ASCII"),
        (r"(?m)foobar", "flag"),
    ],
)
def test_a_pattern_outside_the_common_subset_is_refused_with_a_sentence(pattern: str, said: str):
    if not said:
        parse(pattern)
        return
    with pytest.raises(PatternRefused, match=re.escape(said)):
        parse(pattern)


def test_trailing_repeats_are_left_to_the_verifier():
    """A scan engine reports a match at each possible end: one callback per byte of `.*`."""
    assert parse(r"AssertionError: .+").engine == "AssertionError: [^\\n]"
    assert parse(r"died (?P<code>\d+)").engine == "died (?:[0-9])"
    assert parse(r"exit code \d*").engine == "exit code "


def test_anchors_are_left_to_the_verifier():
    pattern = parse("^Killed$")

    assert (pattern.engine, pattern.at_start, pattern.at_end) == ("Killed", True, True)
    assert pattern.verifier().match(b"Killed")
    assert not pattern.verifier().match(b"Killed by hand")


def test_no_class_of_the_engines_spelling_matches_a_newline():
    """Else a match could reach into the next line."""
    engine = parse(r"failed\s+with[^x]\W\D\S.code").engine

    assert "\\n" in engine
    assert re.compile(engine).search("failed with\n!a!acode") is None


def test_anchors_for_quick_tests_stand_in_every_match():
    pattern = parse(r"(?:Training done!|training finished) in \d+")

    assert pattern.may_match(b"training finished in 3 s")
    assert not pattern.may_match(b"nothing of the kind")


@given(
    st.sampled_from(["fail", "fail.*", r"fail \d+ of \w+", r"(?i)fail: [^,]{1,5},", "fail(?:ed|ure)"]),
    st.text(max_size=30),
)
def test_what_the_verifier_finds_the_engines_spelling_finds(pattern: str, text: str):
    """The engine's spelling may match more, never less."""
    parsed = parse(pattern)
    line = text.replace("\n", " ").encode("utf-8", "replace")
    flags = re.IGNORECASE if parsed.caseless else 0

    if parsed.verifier().search(line):
        assert re.search(parsed.engine.encode("latin-1"), line, flags)
        assert parsed.may_match(line)
