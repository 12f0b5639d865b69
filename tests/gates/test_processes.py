"""Processes as captured: columns by their titles, what each is for, and whether it positively does nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gates import processes
from supervisor.gates.processes import Part, part_of
from tests.gates.cases import assert_quotes_stand, some_case

NODE = """\
# sample 1 at 1796000186
PID PPID PGID STAT NLWP CPUTIMES ETIMES RSS WCHAN COMMAND
20474 20473 20474 S 1 0.00 1 3132 do_wait bash -c python3 train.py & python3 -c 'while True: pass' & wait
20475 20474 20474 S 4 0.04 1 14064 futex_do_wait /usr/bin/python3 /home/alice/train.py
20476 20474 20474 R 1 0.60 1 13484 0 /usr/bin/python3 -c while True: pass
# sample 2 at 1796000190
PID PPID PGID STAT NLWP CPUTIMES ETIMES RSS WCHAN COMMAND
20474 20473 20474 S 1 0.00 5 3132 do_wait bash -c python3 train.py & python3 -c 'while True: pass' & wait
20475 20474 20474 S 4 0.04 5 14064 futex_do_wait /usr/bin/python3 /home/alice/train.py
20476 20474 20474 R 1 3.20 5 13484 0 /usr/bin/python3 -c while True: pass
"""
"""As the script for nodes printed it on a machine with /proc."""


def of(text: str, **files: str) -> dict[int, processes.Process]:
    case = some_case({"processes-n1.txt": text, **files})
    found = processes.everyone(processes.of(case))
    assert_quotes_stand(case, [each.quote for each in found])
    return {each.pid: each for each in found}


def test_every_rule_knows_its_own_examples_and_spares_its_counter_examples():
    """The table of names is data, and carries its own test: rules before it must not take its examples either."""
    for row in processes.table():
        for command in row["matches"]:  # type: ignore[attr-defined]
            assert part_of(command) == row["part"], command
        for command in row.get("spares", ()):  # type: ignore[attr-defined]
            assert part_of(command) != row["part"], command


def test_two_samples_tell_who_works_and_who_does_nothing():
    found = of(NODE)

    trainer, loop, shell = found[20475], found[20476], found[20474]
    assert (trainer.part, shell.part, loop.part) == (Part.TRAINER, Part.LAUNCHER, Part.OTHER)
    assert trainer.idle(0.05) is True
    assert loop.idle(0.05) is False
    assert loop.cpu_share == pytest.approx(0.65)
    assert (trainer.state, trainer.threads, trainer.wchan, trainer.rss_kib, trainer.age_s) == (
        "S",
        4,
        "futex_do_wait",
        14064,
        5.0,
    )
    assert (trainer.node, trainer.line, loop.wchan) == ("n1", 9, "")


def test_one_sample_says_nothing_of_activity():
    trainer = of(NODE.split("# sample 2")[0])[20475]

    assert (trainer.cpu_share, trainer.idle(0.05)) == (None, None)


def test_processor_time_in_whole_seconds_never_proves_that_a_process_is_idle():
    """What is told too coarsely is no evidence (LIVE-5): up to a second may hide."""
    text = "\n".join(line.replace("0.04", "3").replace("0.00", "0") for line in NODE.splitlines())

    trainer = of(text)[20475]

    assert trainer.cpu_share == 0.0
    assert trainer.idle(0.05) is None


PS = """\
# sample 1 at 100
  PID  PPID  PGID STAT NLWP     TIME ELAPSED   RSS WCHAN                            COMMAND
10710 10707 10707 Sl      4 01:02:03 1-00:00:01 14696 futex_do_wait                    python3 -u -m torchtitan.train
10711 10707 10707 Dl      4    00:03    01:01 14696 nfs_wait_bit_killable            python3 -u -m torchtitan.train
# sample 2 at 110.5
  PID  PPID  PGID STAT NLWP     TIME ELAPSED   RSS WCHAN                            COMMAND
10710 10707 10707 Sl      4 01:02:13 1-00:00:11 14696 futex_do_wait                    python3 -u -m torchtitan.train
10711 10707 10707 Dl      4    00:03    01:11 14696 nfs_wait_bit_killable            python3 -u -m torchtitan.train
"""


def test_a_table_by_ps_itself_reads_the_same():
    """Its own titles, padded columns, times with colons and days."""
    found = of(PS)

    assert found[10710].cpu_share == pytest.approx(10 / 10.5)
    assert found[10710].age_s == 86_411
    assert found[10711].uninterruptible
    assert not found[10710].uninterruptible


def test_who_ended_and_who_began_between_the_samples_is_told():
    text = NODE.replace("20476 20474 20474 R 1 3.20 5", "20999 20474 20474 R 1 0.20 1")

    found = of(text)

    assert (found[20476].gone, found[20476].new) == (True, False)
    assert (found[20999].gone, found[20999].new) == (False, True)
    assert (found[20475].gone, found[20475].new) == (False, False)
    assert found[20999].idle(0.05) is None


def test_a_process_number_that_was_given_to_another_process_is_not_compared_with_itself():
    text = NODE.replace("20476 20474 20474 R 1 0.60 1 13484", "20476 20474 20474 R 1 9.60 900 13484")

    assert of(text)[20476].cpu_share is None


def test_the_dead_are_idle_and_zombies_keep_their_part():
    text = NODE.replace("20475 20474 20474 S 4", "20475 20474 20474 Z 4").replace(
        "/usr/bin/python3 /home/alice/train.py", "[pt_main_thread] <defunct>"
    )

    zombie = of(text)[20475]

    assert zombie.zombie
    assert (zombie.part, zombie.idle(0.05)) == (Part.TRAINER, True)


def table(*rows: tuple[int, int, str]) -> str:
    """Two samples of processes (number, parent, command) that use no time."""
    head = "PID PPID PGID STAT NLWP CPUTIMES ETIMES RSS WCHAN COMMAND"
    lines = [f"{pid} {parent} 1 S 1 0.00 9 100 - {command}" for pid, parent, command in rows]
    return "\n".join(["# sample 1 at 100", head, *lines, "# sample 2 at 104", head, *lines]) + "\n"


def test_ranks_under_a_launcher_are_trainers_and_their_forks_are_data_workers():
    """A data loader's workers bear their parent's command line."""
    found = of(
        table(
            (10, 1, "/opt/venv/bin/python /opt/venv/bin/torchrun --nproc_per_node=2 train.py"),
            (11, 10, "/opt/venv/bin/python -u train.py"),
            (12, 10, "/opt/venv/bin/python -u train.py"),
            (21, 11, "/opt/venv/bin/python -u train.py"),
            (22, 11, "/opt/venv/bin/python -u train.py"),
        )
    )

    assert {pid: each.part for pid, each in found.items()} == {
        10: Part.LAUNCHER, 11: Part.TRAINER, 12: Part.TRAINER, 21: Part.DATA, 22: Part.DATA,
    }  # fmt: skip


def test_spawned_processes_are_what_their_parent_is():
    spawned = (
        "/opt/venv/bin/python -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)"
    )
    found = of(
        table(
            (11, 1, "python train.py"),
            (12, 11, spawned),
            (13, 1, "VLLM::EngineCore"),
            (14, 13, spawned),
            (15, 1, spawned),
        )
    )

    assert [found[pid].part for pid in (12, 14, 15)] == [Part.TRAINER, Part.ENGINE, Part.OTHER]


def test_policy_engine_and_coordinator_are_told_apart_by_ray_names():
    """PROBE-8: each is asked another question."""
    found = of(
        table(
            (1, 0, "ray::FSDPPolicyWorkerBase.ppo_train"), (2, 0, "ray::FSDPRefWorkerBase"), (3, 0, "ray::AsyncVLLMInferenceEngine.generate"),
            (4, 0, "VLLM::EngineCore"), (5, 0, "ray::RolloutCoordinator.submit_batch"), (6, 0, "ray::skyrl_entrypoint"), (7, 0, "ray::IDLE"),
        )
    )  # fmt: skip

    assert [found[pid].part for pid in range(1, 8)] == [
        Part.TRAINER, Part.REFERENCE, Part.ENGINE, Part.ENGINE, Part.COORDINATOR, Part.DRIVER, Part.LAUNCHER,
    ]  # fmt: skip


def trainers(text: str) -> set[int]:
    return {each.pid for each in processes.trainers(processes.of(some_case({"processes-n1.txt": text})))}


def test_whose_progress_is_the_jobs_includes_unknown_programs_that_a_trainer_started():
    """Else a rank that works would not be asked, and the job called idle."""
    text = table(
        (11, 1, "python train.py"),
        (12, 11, "bash -c ./step"),
        (13, 12, "./step"),
        (14, 1, "VLLM::EngineCore"),
        (15, 1, "perl x.pl"),
    )

    assert trainers(text) == {11, 13}


def test_where_no_name_is_known_the_programs_that_are_no_launchers_count():
    assert trainers(table((10, 1, "bash run.sh"), (11, 10, "python simulate.py"), (12, 11, "./solver"))) == {11, 12}


def test_a_job_of_shells_alone_is_judged_by_all_its_processes():
    assert trainers(table((10, 1, "bash run.sh"), (11, 10, "sleep 100000"))) == {10, 11}


@given(st.lists(st.text(max_size=60), max_size=30))
def test_no_text_is_too_strange_to_be_read(lines):
    for process in processes.read(lines, "p").processes:
        assert process.line <= len(lines)


@given(
    st.lists(
        st.sampled_from([*NODE.splitlines(), *PS.splitlines(), "", "# 7 more processes are left out", "x"]), max_size=40
    )
)
def test_lines_in_any_order_give_each_number_once(lines):
    found = processes.read(lines, "p").processes

    assert len({each.pid for each in found}) == len(found)
    for process in found:
        assert process.cpu_share is None or process.cpu_share >= 0
        assert lines[process.line - 1] == process.text


@given(st.text(max_size=300))
def test_any_command_line_has_a_part(command):
    assert part_of(command) in Part


@pytest.mark.parametrize(
    "command", ["python " + "a_" * 3000 + "train", "ray::" + "a" * 4000, "_" * 4000, "python " + "train-_" * 600]
)
def test_a_command_line_made_to_be_slow_is_read_at_once(command):
    """Names are matched against bounded text, by patterns without nested repeats."""
    assert part_of(command) in Part
