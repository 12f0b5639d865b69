"""Who printed a line, and what it says without prefixes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.diagnosis.clocks import clock
from supervisor.diagnosis.lines import take_apart

LINES = [
    (
        "(FSDPWorker pid=83, ip=10.0.0.2) [rank7]:[E1130 22:44:10.118420611 ProcessGroupNCCL.cpp:632] [Rank 7] Watchdog",
        "Watchdog",
        7,
        "FSDPWorker",
    ),
    (
        "\x1b[36m(WorkerDict pid=458)\x1b[0m INFO 03-02 11:56:24 config.py:887] Defaulting",
        "Defaulting",
        None,
        "WorkerDict",
    ),
    (
        "(EngineCore pid=68) ERROR 08-03 21:49:23 [core.py:1231] ValueError: too long",
        "ValueError: too long",
        None,
        "EngineCore",
    ),
    (
        "(Gen pid=19) (EngineCore_DP0 pid=20) INFO 01-23 11:15:26 [cumem.py:239] freed",
        "freed",
        None,
        "Gen/EngineCore_DP0",
    ),
    ("ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9)", "failed (exitcode: -9)", None, None),
    (
        "W1129 18:44:18.597000 14320 torch/distributed/elastic/multiprocessing/api.py:1028] Sending",
        "Sending",
        None,
        None,
    ),
    ("[12:00:01] task=/alice/run/0 attempt=0 | [rank3]: KeyError: 'labels'", "KeyError: 'labels'", 3, None),
    ("[2019-09-24T11:10:06.901] [321.0] error: pyxis: no such image", "pyxis: no such image", None, None),
    ("kernel: [257087.812628] NVRM: Xid 64", "NVRM: Xid 64", None, None),
    ("[Sat Jul 04 06:45:40 2026] NVRM: Xid 64", "NVRM: Xid 64", None, None),
    ("(run pid=12) 2026-08-01 12:00:00.123 | INFO     | trainer.core:log:1965 - hello", "hello", None, "run"),
    (
        "[2025-04-09 14:40:22,118] [INFO] [axolotl.train.train:142] [PID:94088] [RANK:2] Starting",
        "Starting",
        None,
        None,
    ),
    ('[rank2]:   File "/opt/x.py", line 3, in f', '  File "/opt/x.py", line 3, in f', 2, None),
    ("[default3]:hello", "hello", 3, None),
    ("5: srun label", "srun label", 5, None),
    ("plain words: with a colon", "plain words: with a colon", None, None),
    ('3:   File "/opt/x.py", line 3, in f', '  File "/opt/x.py", line 3, in f', 3, None),
    ("[1,3]<stderr>:KeyError: 1", "KeyError: 1", 3, None),
    ("node-02: KeyError: 1", "KeyError: 1", None, None),
    ("trainer-launcher: KeyError: 1", "KeyError: 1", None, None),
    ("i.pretrain/0 KeyError: 1", "KeyError: 1", None, None),
    ("vllm-1  |     run()", "    run()", None, "vllm-1"),
    ("May 04 12:00:01 node-4 prog[77]: KeyError: 1", "KeyError: 1", None, None),
    ("2026-05-04T12:00:01+0000 node-4 prog[77]:   a", "  a", None, None),
    ("2026-05-04T12:00:01.123456789Z     run()", "    run()", None, None),
    ("2026-05-04 12:00:01,123 INFO launcher: KeyError: 1", "KeyError: 1", None, None),
    ("2026-05-04 12:00:01,123 INFO launcher:   run()", "  run()", None, None),
    ("2026-05-04 12:00:01,123 - launcher - ERROR - KeyError: 1", "KeyError: 1", None, None),
    ("2026-05-04 12:00:01 ERROR RuntimeError: x", "RuntimeError: x", None, None),
    ("2026-05-04 12:00:01 INFO loss: 3.2", "loss: 3.2", None, None),
    ("2026-05-04 12:00:01 ERROR srun: error: x", "srun: error: x", None, None),
    ("python3: can't open file", "python3: can't open file", None, None),
    ("socket.gaierror: no name", "socket.gaierror: no name", None, None),
    ("libnccl.so.2: cannot open", "libnccl.so.2: cannot open", None, None),
    ("nvidia-container-cli: no devices", "nvidia-container-cli: no devices", None, None),
]


@pytest.mark.parametrize(("line", "message", "rank", "actor"), LINES)
def test_prefixes_name_the_stream_and_are_taken_off(line: str, message: str, rank: int | None, actor: str | None):
    apart = take_apart(line.encode())

    assert (apart.message.decode(), apart.stream.rank, apart.stream.actor) == (message, rank, actor)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_taken_apart(raw: bytes):
    apart = take_apart(raw)

    assert apart.text.endswith(apart.message)


@pytest.mark.parametrize(
    ("line", "day", "time_s"),
    [
        (b"2026-03-02 00:00:10 x", 61, 10),
        (b"INFO 03-02 00:01:00 [x.py:1] y", 61, 60),
        (b"[rank3]:[E302 01:00:00.5 x.cpp:1]", 61, 3600.5),
        (b"[Mon Mar 02 00:00:00 2026] kernel", 61, 0),
    ],
)
def test_clocks_of_different_loggers_meet_on_one_scale(line: bytes, day: int, time_s: float):
    assert clock(line) == day * 86400 + time_s


@pytest.mark.parametrize("line", [b"no time", b"12:00:00 without a date", b"2026-13-02 00:00:00", b"1234-5678 00:00"])
def test_a_line_without_a_date_has_no_clock(line: bytes):
    assert clock(line) is None
