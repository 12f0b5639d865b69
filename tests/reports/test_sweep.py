"""The sweep's entry: tables, what was done, what is flagged, what waits for a person (SAY-2, SAY-5)."""

from __future__ import annotations

from supervisor.model.job import Outcome
from supervisor.model.lifecycle import Lifecycle, Phase, Sign, SignRead, Transition
from supervisor.reports.sweep import Said, entry
from tests.reports.rows import a_cluster, a_hold, a_job, a_summary
from tests.some import NOON, some_key


def an_entry(*, clusters=(), jobs=(), said=(), holds=(), trouble=None):
    return entry(a_summary(*(clusters or [a_cluster()])), jobs, [], said, holds, 9, NOON, 0.4, trouble)


def test_an_entry_has_its_four_parts_in_order():
    text = an_entry(jobs=[a_job()], said=[Said("alpha/4711", "LIVE-2 silent", "watch", "new")], holds=[a_hold()])

    assert text.startswith("## 2026-07-01 12:00:00Z tick 9 (0.4 s)\n")
    order = ["- alpha: read 2 s ago", "```text", "│ rl__gsm8k_a", "**Done**", "- nothing moved", "**Flagged**"]
    order += ["- new: alpha/4711: LIVE-2 silent", "**Waiting for you**", "- hold 3 on alpha: maintenance"]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert text.endswith("\n\n")


def test_no_jobs_is_said_only_where_every_cluster_was_read():
    """SAY-4"""
    assert "\nNo jobs.\n" in an_entry()
    unread = an_entry(clusters=[a_cluster(state="unknown", reason="no answer")])
    assert "\nNo jobs.\n" not in unread
    assert "No jobs are known; alpha could not be read, so there may be some." in unread


def test_a_fault_of_the_monitor_itself_stands_at_the_top():
    """LIVE-8"""
    assert an_entry(trouble="only 3 MiB\x1b[1m free").splitlines()[2] == "⚠ only 3 MiB\\x1b[1m free"


def test_no_name_ends_the_fenced_block():
    """A job called ``` must not turn the rest of the table into Markdown of its own."""
    text = an_entry(jobs=[a_job(name="```\n# headline")])

    assert [line for line in text.splitlines() if line.startswith("```")] == ["```text", "```"]
    assert not any(line.startswith("# ") for line in text.splitlines())


def test_what_moved_is_said_with_its_reason_and_what_stood_still_is_not():
    """SAY-2"""
    live = Lifecycle(phase=Phase.RUNNING, since=NOON)
    ended = Lifecycle(phase=Phase.TERMINAL, since=NOON, outcome=Outcome.FAILED)
    because, quiet = SignRead(Sign.FAILED, "exit code 1\x1b[1m"), SignRead(Sign.QUIET, "quiet")
    moved = Transition(job=some_key(), before=live, after=ended, read=because, at=NOON)
    stood = Transition(job=some_key("43"), before=live, after=live, read=quiet, at=NOON)

    text = entry(a_summary(a_cluster()), [], [moved, stood], [], [], 9, NOON, 0.4, None)

    assert "- cluster-a/42: running → terminal (failed): exit code 1\\x1b[1m\n" in text
    assert "cluster-a/43" not in text
