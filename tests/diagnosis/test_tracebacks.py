"""Tracebacks are put together from their own stream's lines; chains keep their beginning; quoted ones don't count."""

import pytest

from tests.diagnosis.conftest import Ask

CHAINED = """Traceback (most recent call last):
  File "/home/alice/run/data.py", line 7, in load
    return rows[key]
KeyError: 'labels'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/alice/run/train.py", line 3, in main
    load("labels")
RuntimeError: loading failed
"""


def test_the_first_exception_of_a_chain_is_the_cause(ask: Ask):
    answer = ask(CHAINED)

    assert answer.cause is not None
    assert answer.cause.text == b"KeyError: 'labels'"
    assert answer.category == "rank-crash"


def test_an_exception_handled_in_a_chain_is_its_beginning_too(ask: Ask):
    answer = ask(
        CHAINED.replace(
            "The above exception was the direct cause of the following exception:",
            "During handling of the above exception, another exception occurred:",
        )
    )

    assert answer.cause is not None
    assert answer.cause.line == 4


def test_a_named_fault_within_a_chain_goes_before_an_unnamed_beginning(ask: Ask):
    answer = ask(CHAINED.replace("RuntimeError: loading failed", "torch.OutOfMemoryError: CUDA out of memory."))

    assert answer.category == "gpu-oom"


def test_an_original_traceback_is_deeper_than_its_wrapper(ask: Ask):
    answer = ask("""Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/_utils.py", line 803, in reraise
    raise exception
ValueError: Caught ValueError in DataLoader worker process 1.
Original Traceback (most recent call last):
  File "/home/alice/run/collate.py", line 9, in collate
    return stack(rows)
ValueError: expected sequence of length 64
""")

    assert answer.cause is not None
    assert answer.cause.line == 8
    assert answer.exception is not None
    assert answer.exception.own_frame is not None
    assert answer.exception.own_frame.function == "collate"


def test_interleaved_tracebacks_of_two_ranks_are_put_together_again(ask: Ask):
    answer = ask("""[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "/home/alice/a.py", line 1, in first
[rank0]:   File "/home/alice/b.py", line 2, in second
[rank0]:     work.wait()
[rank1]:     d["x"]
[rank1]: KeyError: 'x'
[rank0]: RuntimeError: peer closed
""")

    assert answer.exception is not None
    assert [frame.function for frame in answer.exception.frames] == ["first"]
    assert answer.cause is not None
    assert answer.cause.rank == 1


def test_lines_of_other_processes_may_stand_inside_a_traceback(ask: Ask):
    answer = ask("""Traceback (most recent call last):
  File "/home/alice/a.py", line 1, in main
(Worker pid=7) memory 3 GiB
    d["x"]
[rank3]:[W1130 00:00:00.1 Module.cpp:187] symbolizing
KeyError: 'x'
""")

    assert answer.exception is not None
    assert answer.exception.has_header
    assert answer.exception.own_frame is not None
    assert answer.exception.own_frame.path == "/home/alice/a.py"


def test_the_users_own_top_frame_is_told_from_library_frames(ask: Ask):
    answer = ask("""Traceback (most recent call last):
  File "/home/alice/train.py", line 12, in step
    loss.backward()
  File "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", line 1, in backward
    engine()
RuntimeError: element 0 of tensors does not require grad
""")

    assert answer.exception is not None
    assert answer.exception.own_frame is not None
    assert (answer.exception.own_frame.path, answer.exception.own_frame.line) == ("/home/alice/train.py", 12)
    assert "step (/home/alice/train.py:12)" in answer.summary


def test_an_exception_whose_name_does_not_tell_is_found_below_its_header(ask: Ask):
    answer = ask("""Traceback (most recent call last):
  File "/home/alice/train.py", line 12, in step
    take()
alice.queue.NothingLeft: no more rows
""")

    assert answer.exception is not None
    assert answer.exception.type == "alice.queue.NothingLeft"


def test_exception_groups_are_the_programs_own(ask: Ask):
    answer = ask("""  + Exception Group Traceback (most recent call last):
  |   File "/home/alice/t.py", line 5, in main
  |     raise ExceptionGroup("two failed", errors)
  | ExceptionGroup: two failed (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/alice/t.py", line 2, in one
    |     d["x"]
    | KeyError: 'x'
    +------------------------------------
""")

    assert answer.category == "rank-crash"


QUOTED = {
    "a rollout set off by bars": """(Coordinator pid=3) 2026-08-01 12:00:00.1 | DEBUG | trial:step:2 - observation:
(Coordinator pid=3)  | Traceback (most recent call last):
(Coordinator pid=3)  |   File "/testbed/test_mem.py", line 9, in test_oom
(Coordinator pid=3)  | RuntimeError: CUDA out of memory
""",
    "a string in JSON": r"""{"role": "tool", "content": "Traceback:\n  File \"a.py\", line 1\nRuntimeError: CUDA out of memory"}
""",
    "a code block": """observation:
```
Traceback (most recent call last):
  File "/testbed/a.py", line 9, in f
RuntimeError: CUDA out of memory
```
next turn
""",
    "the output of a test": "E       RuntimeError: CUDA out of memory\n",
}


def test_tracebacks_quoted_in_data_are_not_the_programs_own(ask: Ask):
    """FIND-7: only the first real traceback is a cause."""
    for what, log in QUOTED.items():
        answer = ask(log)

        assert answer.category == "none", what


def test_quoted_errors_are_listed_as_ruled_out(ask: Ask):
    answer = ask(QUOTED["a code block"])

    assert [out.why for out in answer.ruled_out] == ["it stands in a code block"]


def test_one_fence_alone_quotes_nothing(ask: Ask):
    answer = ask("```\nRuntimeError: CUDA out of memory\n")

    assert answer.category == "gpu-oom"


def test_a_structured_log_of_level_error_is_the_programs_own(ask: Ask):
    answer = ask(r'{"level": "error", "msg": "Traceback:\n  File \"a.py\"\nRuntimeError: CUDA out of memory"}' + "\n")

    assert answer.category == "gpu-oom"


@pytest.mark.parametrize(
    "prefix",
    [
        "node-02: ",
        "trainer-launcher: ",
        "i.pretrain/0 ",
        "[1,3]<stderr>:",
        "vllm-1  | ",
        "May 04 12:00:01 node-4 prog[77]: ",
        "2026-05-04T12:00:01+0000 node-4 prog[77]: ",
        "2026-05-04T12:00:01.123456789Z ",
        "2026-05-04 12:00:01,123 INFO launcher: ",
        "2026-05-04 12:00:01,123 - launcher - ERROR - ",
        "3: ",
        " 3: ",
        "3: node-02: ",
    ],
)
def test_an_exception_behind_a_launchers_prefix_is_put_together(ask: Ask, prefix: str):
    """FIND-7: whoever relays the lines, and with other streams' lines in between where the prefix names a stream."""
    between = "" if prefix.startswith("2026") and "node" not in prefix else "some other line\n"
    traceback = (
        "Traceback (most recent call last):",
        '  File "/home/alice/train.py", line 40, in main',
        "    run(config)",
        '  File "/home/alice/data.py", line 7, in run',
        "    raise RowsMissing(name)",
        "RowsMissing: shard 4",
    )
    answer = ask("srun: job 5 queued\n" + "".join(f"{prefix}{line}\n{between}" for line in traceback))

    assert (answer.category, answer.exception and answer.exception.type) == ("rank-crash", "RowsMissing")
    assert answer.exception is not None
    assert [frame.function for frame in answer.exception.frames] == ["main", "run"]
