"""What a login node printed is believed only whole, and no text in it can pass for structure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.clusters.shell import Ran
from supervisor.clusters.slurm_commands import UNIT
from supervisor.clusters.slurm_text import (
    NOT_STARTED,
    Part,
    group_of,
    id_of,
    read_accounting,
    read_answer,
    read_details,
    read_files,
    read_queue,
    row_of,
    safe_text,
    tasks_in,
    trouble_in,
)
from supervisor.model.errors import AnswerUnusable, CommandFailed
from tests.clusters.slurm.login import NONCE, accounting_rows, answer, detail_rows, queue_rows, sample, titles

ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=300)
NASTY = st.one_of(
    ANY_TEXT,
    st.text(st.sampled_from("\n\x1f|\x1b[;#:, '\"\\$`()0123456789%"), max_size=60),
    st.just("x" * 4000),
    st.just("\nslurm_load_jobs error: Socket timed out on send/recv operation\n"),
    st.sampled_from([f"{UNIT}a" * 20, "\n99\x1fRUNNING", "n0000#", "# whole\n", "\n# end queue 0", ""]),
)
USERS = frozenset({"alice"})


def queue_text(name: str = "poll") -> str:
    part = answer(name).get("queue")
    assert part is not None
    return part.text


# -- the frame ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["poll", "follow", "slurmdbd-down"])
def test_an_answer_cut_off_at_any_byte_is_unusable(name: str) -> None:
    """POLL-1, POLL-2: not one prefix of a real answer passes for a whole one."""
    whole = sample(name)

    for length in range(len(whole)):
        with pytest.raises(AnswerUnusable, match=r"cut off|garbled"):
            read_answer("alpha", "login1", Ran(0, whole[:length], b""), NONCE)


def test_a_dropped_connection_gives_no_answer_even_if_all_bytes_came() -> None:
    """POLL-2: a missing exit status is a failure."""
    with pytest.raises(CommandFailed, match="connection dropped"):
        read_answer("alpha", "login1", Ran(None, sample("poll"), b""), NONCE)


def test_a_shell_that_can_not_fork_gives_no_answer() -> None:
    with pytest.raises(CommandFailed, match="Cannot fork"):
        read_answer("alpha", "login1", Ran(2, b"", b"sh: 1: Cannot fork\n"), NONCE)


def test_an_answer_beyond_the_limit_counts_for_nothing() -> None:
    with pytest.raises(AnswerUnusable, match="more than was allowed"):
        read_answer("alpha", "login1", Ran(None, sample("poll"), b"", truncated=True), NONCE)


def test_a_banner_before_the_answer_is_passed_over() -> None:
    banner = b"*** maintenance on Tuesday ***\nslurm_load_jobs error: just a joke\n"

    parts = read_answer("alpha", "login1", Ran(0, banner + sample("poll"), b""), NONCE).parts

    assert [part.name for part in parts] == ["who", "clock", "queue", "version", "ended", "logs", "clock"]


def test_an_answer_to_another_question_is_unusable() -> None:
    """Marks of an earlier run, replayed into this one, mean nothing."""
    with pytest.raises(AnswerUnusable):
        read_answer("alpha", "login1", Ran(0, sample("poll").replace(b"n0123", b"n9999"), b""), NONCE)


@pytest.mark.parametrize(
    ("said", "status", "failure"),
    [
        ("", 0, None),
        ("squeue: error: Ignoring obsolete FastSchedule=1 option", 0, None),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", 1, "Unable to contact"),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", 0, "Socket timed out"),
        ("slurm_load_jobs error: Zero Bytes were transmitted or received", 0, "Zero Bytes"),
        ("bash: fork: retry: Resource temporarily unavailable", 0, "Resource temporarily"),
        ("/usr/bin/squeue: fork: Cannot allocate memory", 0, "Cannot allocate"),
        ("squeue: error: Invalid job format specification: RestartCnt", 0, "Invalid job format"),
        ("", 1, "exit status 1"),
        ("", 124, "no answer in time"),
        ("sh: 1: squeue: not found", 127, "not found"),
        ("", 137, "ended by signal 9"),
        ("", 139, "ended by signal 11"),
    ],
)
def test_words_of_trouble_fail_a_part_whatever_its_exit_status(said: str, status: int, failure: str | None) -> None:
    """POLL-2"""
    found = Part("queue", status, b"", said).failure

    assert found is None if failure is None else found is not None and failure in found


def test_trouble_is_quoted_by_its_line() -> None:
    assert (
        trouble_in("a\nsqueue: error: Munge encode failed\nslurm_load_jobs error: x \nb") == "slurm_load_jobs error: x"
    )


@given(st.binary(max_size=200))
def test_any_bytes_become_text_that_stores_and_json_take(data: bytes) -> None:
    text = safe_text(data)

    assert "\0" not in text
    assert text.encode("utf-8").decode("utf-8") == text


# -- the queue ---------------------------------------------------------------------------------------------------------


def test_a_real_queue_gives_one_line_for_each_job() -> None:
    queue = read_queue(queue_text(), NONCE, {}, USERS)

    assert len(queue.lines) == len(queue.fresh) == 19
    assert {"12", "12_0", "12_1", "15", "16+0", "16+1", "18"} <= queue.lines.keys()
    assert row_of(queue.lines["18"]).name == "pipe|quote'\"; $(id) `id`\nJobId=99 JobState=FAILED\n\x1f\x1b[31mred"


def test_lines_that_are_known_are_not_taken_apart_again() -> None:
    known = read_queue(queue_text(), NONCE, {}, USERS).lines

    again = read_queue(queue_text(), NONCE, known, USERS)

    assert again.fresh == []
    assert again.lines == known


def test_the_expected_start_of_a_waiting_job_is_no_change() -> None:
    """Its estimate moves with every round of the scheduler."""
    known = read_queue(queue_text(), NONCE, {}, USERS).lines
    assert known["11"].startswith(NOT_STARTED)

    moved = queue_text().replace("1795988990\x1f1795989590", "1795998990\x1f1795999590")

    assert moved != queue_text()
    assert read_queue(moved, NONCE, known, USERS).fresh == []


def test_a_job_that_started_is_a_change() -> None:
    known = read_queue(queue_text(), NONCE, {}, USERS).lines

    fresh = read_queue(queue_text("poll-later"), NONCE, known, USERS).fresh

    assert [(row.id, row.state) for row in fresh] == [("11", "RUNNING")]


def test_another_users_job_is_not_listed_as_ours() -> None:
    """POLL-8: whatever the login node prints."""
    text = queue_text().replace("\x1falice\x1f9\x1f", "\x1fbob\x1f9\x1f")

    assert "9" not in read_queue(text, NONCE, {}, USERS).lines


@given(name=NASTY, other=NASTY)
def test_no_job_name_can_pass_for_a_record(name: str, other: str) -> None:
    row = queue_rows()["9"]
    named = [row._replace(name=name), row._replace(shown_id="77", raw_id="77", name=other)]
    text = titles("queue") + "".join(UNIT.join(one) + NONCE.end + "\n" for one in named)

    queue = read_queue(text, NONCE, {}, USERS)

    assert [one.name for one in queue.fresh] == [name, other]
    assert list(queue.lines) == ["9", "77"]


@pytest.mark.parametrize(
    "spoilt",
    [
        "slurm_load_jobs error: Unable to contact slurm controller\n",
        "\n",
        f"N/A{UNIT}N/A{UNIT}5{UNIT}RUNNING{NONCE.end}\n",
        f"{UNIT.join(['x'] * 17)}{NONCE.end}\n",
    ],
)
def test_what_is_no_whole_record_spoils_the_queue(spoilt: str) -> None:
    """POLL-2: an error text on standard output is not a shorter queue."""
    for text in (queue_text() + spoilt, spoilt + queue_text()):
        with pytest.raises(ValueError, match="squeue"):
            read_queue(text, NONCE, {}, USERS | {"x"})


def test_an_empty_queue_is_its_titles_and_nothing_else() -> None:
    """POLL-2: a program that printed nothing did not say that there is no job."""
    assert read_queue(titles("queue"), NONCE, {}, USERS).lines == {}
    for other in ("", f"{NONCE.end}\n", f"{UNIT * 16}{NONCE.end}\n", queue_text().removeprefix(titles("queue"))):
        with pytest.raises(ValueError, match="titles"):
            read_queue(other, NONCE, {}, USERS)


def test_an_error_printed_in_place_of_the_queue_is_the_reason() -> None:
    for end in ("\n", f"{NONCE.end}\n"):
        with pytest.raises(ValueError, match="slurm_load_jobs error: Zero Bytes were transmitted"):
            read_queue(f"slurm_load_jobs error: Zero Bytes were transmitted or received{end}", NONCE, {}, USERS)


def test_a_queue_cut_off_inside_its_part_is_spoilt() -> None:
    text = queue_text()

    for length in range(1, len(text)):
        if not text[:length].endswith(f"{NONCE.end}\n"):
            with pytest.raises(ValueError, match="whole record"):
                read_queue(text[:length], NONCE, {}, USERS)


@pytest.mark.parametrize(
    ("shown", "ours", "group", "tasks"),
    [
        ("123", "123", None, 1),
        ("6_3", "6_3", "6", 1),
        ("6_[2-3%2]", "6", "6", 2),
        ("23_[1-5000]", "23", "23", 5000),
        ("9_[1,5,10-12,20-29:3%4]", "9", "9", 9),
        ("9_[1-...]", "9", "9", 1),
        ("35+1", "35+1", "35", 1),
    ],
)
def test_ids_as_slurm_shows_them(shown: str, ours: str, group: str | None, tasks: int) -> None:
    """POLL-11: tasks and components are jobs of their own, grouped; an array's waiting rest is one."""
    assert (id_of(shown), group_of(shown), tasks_in(shown)) == (ours, group, tasks)


@given(st.text(max_size=20))
def test_anything_else_is_no_id(text: str) -> None:
    try:
        ours = id_of(text)
    except ValueError:
        return
    assert ours[0].isdecimal()
    assert ours == text or text.startswith(f"{ours}_[")


# -- accounting, details, files ----------------------------------------------------------------------------------------


def test_real_accounting_gives_each_attempt() -> None:
    rows = accounting_rows("follow", "found")

    assert [(row.id, row.state) for row in rows] == [
        ("1", "COMPLETED"),
        ("6", "CANCELLED by 1005"),
        ("11", "REQUEUED"),
        ("11", "PENDING"),
    ]


@given(st.lists(st.tuples(NASTY, NASTY), min_size=1, max_size=4))
def test_no_name_or_folder_can_pass_for_an_attempt(texts: list[tuple[str, str]]) -> None:
    row = accounting_rows("poll", "ended")[0]
    rows = [row._replace(workdir=folder, name=name) for folder, name in texts]
    text = titles("ended") + "".join(NONCE.gap.join((*one, one.raw_id)) + "\n" for one in rows)

    assert read_accounting(text, NONCE) == rows


def test_accounting_that_is_not_whole_is_refused() -> None:
    part = answer("poll").get("ended")
    assert part is not None
    text = part.text

    assert len(read_accounting(text, NONCE)) == 9
    assert read_accounting(titles("ended"), NONCE) == []
    below = text.removeprefix(titles("ended"))
    broken = (text[:-1], text[: len(text) // 2] + "\n", text + "sacct: error: x\n" + text)
    for spoilt in ("", below, "sacct: error: x\n", *broken):
        with pytest.raises(ValueError, match=r"sacct|id belongs"):
            read_accounting(spoilt, NONCE)


@given(out=NASTY, workdir=NASTY, name=NASTY)
def test_no_path_can_pass_for_a_detail(out: str, workdir: str, name: str) -> None:
    row = detail_rows()["19"]._replace(out=out, workdir=workdir, name=name)
    text = NONCE.gap.join(row) + NONCE.end + "\n"

    assert read_details(titles("details", of="follow") + text * 2, NONCE) == [row, row]


def test_files_are_there_absent_or_unspoken_of() -> None:
    part = answer("poll").get("logs")
    assert part is not None

    rows = {row.path: row for row in read_files(part.text, NONCE)}

    assert rows["/home/alice/slurm-11.out"].size == 109
    assert rows["/home/alice/nothing.out"].seconds is None
    assert "/home/alice/no/dir.out" not in rows
    assert rows["/home/alice/slurm-11.out"].trouble is None
