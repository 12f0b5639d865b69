"""Packs are checked when they are loaded, and errors name file, entry and what is allowed."""

import pytest

from supervisor.diagnosis.catalogue import Catalogue, PackError, load
from supervisor.diagnosis.examples import check

ENTRY = """
[[signature]]
code = "one"
role = "cause"
category = "disk-full"
pattern = 'No space left on device'
why = "Full."
matches = ["OSError: [Errno 28] No space left on device"]
"""


def with_line(line: str) -> str:
    key = line.split(" = ")[0]
    kept = [old for old in ENTRY.splitlines() if not old.startswith(f"{key} =")]
    return "\n".join([*kept, line])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('role = "reason"', "allowed: cause, echo"),
        ('category = "disc-full"', "not in the taxonomy"),
        ('category = "none"', "names a fault"),
        ('pattern = "(?=x)foobar"', "look-around"),
        ('confidence = "sure"', "allowed: high, medium, low"),
        ('with = ["two"]', "unknown entries: two"),
        ("window = -1", "number of lines"),
        ('where = { free = "< 1" }', "does not capture"),
        ("matches = []", "`matches` is needed"),
        ("survives = 1", "true or false"),
        ('surprise = "x"', "unknown keys: surprise"),
        ('code = "Two Words"', "lower-case"),
    ],
)
def test_a_mistake_is_reported_with_file_entry_and_what_is_allowed(line: str, said: str):
    with pytest.raises(PackError) as caught:
        load([("mine.toml", with_line(line))])

    assert str(caught.value).startswith("mine.toml: ")
    assert said in str(caught.value)


def test_two_entries_may_not_share_a_code():
    with pytest.raises(PackError, match=r"other.toml: one: the code is taken by mine.toml"):
        load([("mine.toml", ENTRY), ("other.toml", ENTRY)])


def test_a_pack_that_is_no_toml_is_named():
    with pytest.raises(PackError, match=r"mine.toml: is not valid TOML"):
        load([("mine.toml", "[[signature]")])


def test_a_pack_may_bring_a_category_of_its_own():
    text = '[pack]\ncategories = ["licence-lost"]\n' + with_line('category = "licence-lost"')

    assert "licence-lost" in load([("mine.toml", text)]).categories


def test_an_entry_takes_the_categorys_usual_transience_and_advice():
    signature = load([("mine.toml", ENTRY)]).by_code["one"]

    assert signature.transience == "deterministic"
    assert "prune checkpoints" in signature.action


def test_an_entry_can_be_switched_off(small: Catalogue):
    assert "gpu_oom" not in small.without(["gpu_oom"]).by_code


def test_switching_off_what_is_not_there_is_said(small: Catalogue):
    with pytest.raises(KeyError, match="no signature is called gpu_ohm"):
        small.without(["gpu_ohm"])


def test_check_finds_entries_that_miss_their_own_examples():
    catalogue = load([("mine.toml", with_line('matches = ["all is well"]'))])

    assert [problem.text for problem in check(catalogue)] == ["does not match its own example 'all is well'"]


def test_check_finds_entries_that_match_what_they_should_spare():
    catalogue = load([("mine.toml", ENTRY + 'spares = ["No space left on device, said nobody"]')])

    assert "matches what it should spare" in next(iter(check(catalogue))).text


def test_check_finds_entries_that_take_anothers_example():
    other = with_line('code = "two"').replace("No space left on device", "space left on device")
    problems = list(check(load([("mine.toml", with_line('confidence = "low"')), ("other.toml", other)])))

    assert [(problem.code, problem.is_crosstalk) for problem in problems if problem.code == "one"] == [("one", True)]
