"""Stacks as py-spy, gdb and the kernel give them: who waits for what, who moves, and whether nothing changed between two probes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gates import stacks
from supervisor.gates.stacks import ProcessStack, Wait
from tests.gates.cases import Failed, assert_quotes_stand, some_case

SPY = """\
# process 4711 python3
# by py-spy dump
Process 4711: /usr/bin/python3 t.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4711 (idle): "MainThread"
    train_step (t.py:11)
    <module> (t.py:12)
Thread 20263 (idle): "Thread-1 (worker_loop)"
    Condition.wait (threading.py:327)
    Queue.get (queue.py:171)
    worker_loop (t.py:4)
    Thread.run (threading.py:982)
    Thread._bootstrap_inner (threading.py:1045)
    Thread._bootstrap (threading.py:1002)
Thread 20264 (idle): "Thread-2 (sleeper)"
    sleeper (t.py:6)
    Thread.run (threading.py:982)
    Thread._bootstrap_inner (threading.py:1045)
    Thread._bootstrap (threading.py:1002)
Thread 20265 (idle): "Thread-3 (serve)"
    socket.accept (socket.py:294)
    serve (t.py:8)
    Thread.run (threading.py:982)
    Thread._bootstrap_inner (threading.py:1045)
    Thread._bootstrap (threading.py:1002)
"""
"""As py-spy 0.4 printed it."""

GDB = """\
# process 4711 python3
# not by py-spy: it is neither in our PATH nor in the process's own
# by gdb
[Thread debugging using libthread_db enabled]
Using host libthread_db library "/lib/x86_64-linux-gnu/libthread_db.so.1".
__futex_abstimed_wait_common64 (private=<optimized out>, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x5568eacdbf90) at ./nptl/futex-internal.c:57
57	./nptl/futex-internal.c: No such file or directory.

Thread 4 (Thread 0x7f68b29526c0 (LWP 20265) "python3"):
#0  0x00007f68b4128fa8 in accept4 (fd=3, addr=..., addr@entry=..., addr_len=addr_len@entry=0x7f68b2951a04, flags=flags@entry=524288) at ../sysdeps/unix/sysv/linux/accept4.c:31
#1  0x00007f68b397f0c8 in sock_accept_impl (data=<synthetic pointer>, s=0x7f68b3a50580) at /build/Python-3.11.7/Modules/socketmodule.c:2717
#2  sock_call_ex (err=0x0, timeout=-1000000000, connect=0, data=<synthetic pointer>, sock_func=<optimized out>, writing=0, s=0x7f68b3a50580) at /build/Python-3.11.7/Modules/socketmodule.c:920
#3  sock_call (data=<synthetic pointer>, func=<optimized out>, writing=0, s=0x7f68b3a50580) at /build/Python-3.11.7/Modules/socketmodule.c:972
#4  sock_accept (s=0x7f68b3a50580, _unused_ignored=<optimized out>) at /build/Python-3.11.7/Modules/socketmodule.c:2759
#5  0x00007f68b4365072 in method_vectorcall_NOARGS (func=0x7f68b3a66700, args=0x7f68b214e260, nargsf=<optimized out>, kwnames=0x0) at Objects/descrobject.c:453
#6  0x00007f68b4358ba3 in _PyObject_VectorcallTstate (kwnames=0x3, nargsf=<optimized out>, args=0x7f68b214e260, callable=0x7f68b3a66700, tstate=0x5568eadaa660) at ./Include/internal/pycore_call.h:92
#7  PyObject_Vectorcall (callable=callable@entry=0x7f68b3a66700, args=args@entry=0x7f68b214e260, nargsf=<optimized out>, kwnames=kwnames@entry=0x0) at Objects/call.c:299
#8  0x00007f68b42fd9c3 in _PyEval_EvalFrameDefault (tstate=<optimized out>, frame=<optimized out>, throwflag=<optimized out>) at Python/ceval.c:4769
#9  0x00007f68b4450a40 in _PyEval_EvalFrame (throwflag=0, frame=0x7f68b214e188, tstate=0x5568eadaa660) at ./Include/internal/pycore_ceval.h:73

Thread 3 (Thread 0x7f68b31576c0 (LWP 20264) "python3"):
#0  0x00007f68b40ed545 in __GI___clock_nanosleep (clock_id=clock_id@entry=1, flags=flags@entry=1, req=req@entry=0x7f68b3156ab0, rem=rem@entry=0x0) at ../sysdeps/unix/sysv/linux/clock_nanosleep.c:48
#1  0x00007f68b4515ada in pysleep (timeout=<optimized out>) at ./Modules/timemodule.c:2159
#2  time_sleep (self=<optimized out>, timeout_obj=<optimized out>) at ./Modules/timemodule.c:383
#3  0x00007f68b43a6ee2 in cfunction_vectorcall_O (func=0x7f68b3e8f6a0, args=0x7f68b29531e0, nargsf=<optimized out>, kwnames=<optimized out>) at Objects/methodobject.c:514
#4  0x00007f68b4358ba3 in _PyObject_VectorcallTstate (kwnames=0x0, nargsf=<optimized out>, args=0x7f68b29531e0, callable=0x7f68b3e8f6a0, tstate=0x5568ead7c330) at ./Include/internal/pycore_call.h:92
#5  PyObject_Vectorcall (callable=callable@entry=0x7f68b3e8f6a0, args=args@entry=0x7f68b29531e0, nargsf=<optimized out>, kwnames=kwnames@entry=0x0) at Objects/call.c:299
#6  0x00007f68b42fd9c3 in _PyEval_EvalFrameDefault (tstate=<optimized out>, frame=<optimized out>, throwflag=<optimized out>) at Python/ceval.c:4769
#7  0x00007f68b4450a40 in _PyEval_EvalFrame (throwflag=0, frame=0x7f68b2953188, tstate=0x5568ead7c330) at ./Include/internal/pycore_ceval.h:73
#8  _PyEval_Vector (tstate=0x5568ead7c330, func=<optimized out>, locals=<optimized out>, args=<optimized out>, argcount=<optimized out>, kwnames=<optimized out>) at Python/ceval.c:6434
#9  0x00007f68b42fe108 in do_call_core (use_tracing=<optimized out>, kwdict=0x7f68b3a7ad80, callargs=0x7f68b475cb58 <_PyRuntime+58904>, func=0x7f68b3c9c7c0, tstate=0x5568ead7c330) at Python/ceval.c:7352

Thread 2 (Thread 0x7f68b395c6c0 (LWP 20263) "python3"):
#0  __futex_abstimed_wait_common64 (private=<optimized out>, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x7f68ac000ba0) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x7f68ac000ba0, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=<optimized out>, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007f68b40a3f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x7f68ac000ba0, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=<optimized out>) at ./nptl/futex-internal.c:139
#3  0x00007f68b40aecff in do_futex_wait (sem=sem@entry=0x7f68ac000ba0, abstime=0x0, clockid=0) at ./nptl/sem_waitcommon.c:111
#4  0x00007f68b40aed90 in __new_sem_wait_slow64 (sem=sem@entry=0x7f68ac000ba0, abstime=0x0, clockid=0) at ./nptl/sem_waitcommon.c:183
#5  0x00007f68b40aedf9 in __new_sem_wait (sem=sem@entry=0x7f68ac000ba0) at ./nptl/sem_wait.c:42
#6  0x00007f68b44a9370 in PyThread_acquire_lock_timed (lock=lock@entry=0x7f68ac000ba0, microseconds=microseconds@entry=-1000000, intr_flag=intr_flag@entry=1) at Python/thread_pthread.h:497
#7  0x00007f68b45130a2 in acquire_timed (lock=0x7f68ac000ba0, timeout=-1000000000) at ./Modules/_threadmodule.c:98
#8  0x00007f68b45147b7 in lock_PyThread_acquire_lock (self=0x7f68b3ed7fc0, args=0x7f68b475cb58 <_PyRuntime+58904>, kwds=0x0) at ./Modules/_threadmodule.c:179
#9  0x00007f68b4364cef in method_vectorcall_VARARGS_KEYWORDS (func=0x7f68b3e72f20, args=0x7f68b3158300, nargsf=<optimized out>, kwnames=<optimized out>) at Objects/descrobject.c:364

Thread 1 (Thread 0x7f68b47d2b80 (LWP 4711) "python3"):
#0  __futex_abstimed_wait_common64 (private=<optimized out>, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x5568eacdbf90) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x5568eacdbf90, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=<optimized out>, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007f68b40a3f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x5568eacdbf90, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=<optimized out>) at ./nptl/futex-internal.c:139
#3  0x00007f68b40aecff in do_futex_wait (sem=sem@entry=0x5568eacdbf90, abstime=0x0, clockid=0) at ./nptl/sem_waitcommon.c:111
#4  0x00007f68b40aed90 in __new_sem_wait_slow64 (sem=sem@entry=0x5568eacdbf90, abstime=0x0, clockid=0) at ./nptl/sem_waitcommon.c:183
#5  0x00007f68b40aedf9 in __new_sem_wait (sem=sem@entry=0x5568eacdbf90) at ./nptl/sem_wait.c:42
#6  0x00007f68b44a9370 in PyThread_acquire_lock_timed (lock=lock@entry=0x5568eacdbf90, microseconds=microseconds@entry=-1000000, intr_flag=intr_flag@entry=1) at Python/thread_pthread.h:497
#7  0x00007f68b45130a2 in acquire_timed (lock=0x5568eacdbf90, timeout=-1000000000) at ./Modules/_threadmodule.c:98
#8  0x00007f68b45147b7 in lock_PyThread_acquire_lock (self=0x7f68b3a57b00, args=0x7f68b475cb58 <_PyRuntime+58904>, kwds=0x0) at ./Modules/_threadmodule.c:179
#9  0x00007f68b4364cef in method_vectorcall_VARARGS_KEYWORDS (func=0x7f68b3e72f20, args=0x7f68b47ce0e0, nargsf=<optimized out>, kwnames=<optimized out>) at Objects/descrobject.c:364
[Inferior 1 (process 20221) detached]
"""
"""As gdb 13 printed it, each thread cut after ten frames."""

KERNEL = """\
# process 4711 python3
# not by py-spy: Error: Permission Denied: Try running again with elevated permissions
# not by gdb: Could not attach to process.  If your uid matches the uid of the target
# by /proc
thread 4711 S futex_do_wait 812 90 python3
thread 4712 S ep_poll 3 1200 pt_nccl_watchdg
thread 4713 D nfs_wait_bit_killable 40 7 python3
thread 4714 R - 99000 4 python3
# again after 2 s
thread 4711 S futex_do_wait 812 90 python3
thread 4712 S ep_poll 3 1202 pt_nccl_watchdg
thread 4713 D nfs_wait_bit_killable 40 7 python3
thread 4714 R - 99200 4 python3
"""


def of(text: str) -> tuple[ProcessStack, ...]:
    case = some_case({"stack-n1.txt": text})
    found = stacks.everyone(stacks.of(case))
    assert_quotes_stand(case, [each.quote for each in found])
    return found


def spy(*frames: str, name: str = "MainThread", state: str = "idle", pid: int = 4711) -> str:
    """A dump of one thread, innermost frame first."""
    lines = [
        f"# process {pid} python3",
        "# by py-spy dump",
        f"Process {pid}: python train.py",
        "Python v3.11.7 (/usr/bin/python3.11)",
        "",
    ]
    return "\n".join([*lines, f'Thread {pid} ({state}): "{name}"', *(f"    {frame}" for frame in frames)]) + "\n"


def test_every_rule_knows_its_own_examples_and_spares_its_counter_examples():
    """The table of waits is data, and carries its own test."""
    table = stacks.table()
    for row in table["frame"]:
        for frame in row["matches"]:  # type: ignore[attr-defined]
            assert stacks._wait_of(frame) == (row["wait"], row.get("near", False)), frame
        for frame in row.get("spares", ()):  # type: ignore[attr-defined]
            assert stacks._wait_of(frame)[0] != row["wait"], frame
    for row in table["kernel"]:
        for name in row["matches"]:  # type: ignore[attr-defined]
            assert stacks._kernel_wait(name) == row["wait"], name


def test_py_spys_dump_names_the_functions_of_each_thread():
    (found,) = of(SPY)

    assert (found.pid, found.comm, found.how, found.named, found.failure) == (4711, "python3", "py-spy", True, "")
    assert [thread.name for thread in found.threads] == [
        "MainThread",
        "Thread-1 (worker_loop)",
        "Thread-2 (sleeper)",
        "Thread-3 (serve)",
    ]
    assert found.main is not None
    assert found.main.frames == ("train_step (t.py:11)", "<module> (t.py:12)")
    assert [thread.wait for thread in found.threads[1:]] == [Wait.LOCK, None, Wait.QUEUE]
    assert found.moving is None


def test_gdbs_backtrace_names_native_functions_without_arguments_and_addresses():
    (found,) = of(GDB)

    assert (found.how, found.named) == ("gdb", True)
    assert [thread.wait for thread in found.threads] == [Wait.QUEUE, Wait.SLEEP, Wait.LOCK, Wait.LOCK]
    assert found.main is found.threads[-1]
    assert found.main.frames[6] == "PyThread_acquire_lock_timed (thread_pthread.h:497)"
    assert "0x5568" not in "".join(found.main.frames)


def test_the_kernels_view_tells_states_waits_and_who_moved_and_names_no_function():
    (found,) = of(KERNEL)

    assert (found.how, found.named) == ("proc", False)
    assert [(thread.wait, thread.moving) for thread in found.threads] == [
        (Wait.LOCK, False), (Wait.QUEUE, True), (Wait.FILE, False), (None, True),
    ]  # fmt: skip
    assert (found.main.state, found.moving) == ("S", False)  # type: ignore[union-attr]
    assert (found.threads[3].ticks, found.threads[1].switches) == (200, 2)


@pytest.mark.parametrize(
    ("frames", "wait"),
    [
        (
            (
                "all_reduce (torch/distributed/distributed_c10d.py:2501)",
                "wrapper (torch/distributed/c10d_logger.py:83)",
                "step (train.py:40)",
            ),
            Wait.COLLECTIVE,
        ),
        (
            ("wait (threading.py:320)", "_get_data (torch/utils/data/dataloader.py:1290)", "train (train.py:9)"),
            Wait.DATA,
        ),
        (("wait (threading.py:320)", "get (queue.py:171)", "loop (train.py:9)"), Wait.LOCK),
        (
            (
                "get (ray/_private/worker.py:2720)",
                "wrapper (ray/_private/client_mode_hook.py:104)",
                "fit (skyrl_train/trainer.py:300)",
            ),
            Wait.QUEUE,
        ),
        (
            (
                "write (torch/serialization.py:778)",
                "_save (torch/serialization.py:1002)",
                "save (torch/serialization.py:850)",
            ),
            Wait.CHECKPOINT,
        ),
        (
            ("poll (selectors.py:415)", "_compile (torch/_dynamo/convert_frame.py:900)", "train (train.py:9)"),
            Wait.COMPILE,
        ),
        (
            ("read (ssl.py:1166)", "readinto (socket.py:706)", "_receive_event (httpcore/_sync/http11.py:217)"),
            Wait.NETWORK,
        ),
        (("synchronize (torch/cuda/__init__.py:1040)", "train (train.py:9)"), Wait.DEVICE),
        (("load_file (safetensors/torch.py:315)", "load_model (model.py:4)"), Wait.FILE),
        (("forward (model.py:20)", "train (train.py:9)"), None),
        (("matmul (model.py:20)", "a (m.py:1)", "b (m.py:2)", "c (m.py:3)", "wait (threading.py:320)"), None),
    ],
)
def test_the_innermost_frame_that_tells_says_what_a_thread_waits_for(frames: tuple[str, ...], wait: Wait | None):
    """A lock or a poll tells only near the innermost end; a collective, a save, a data loader from anywhere above it."""
    (found,) = of(spy(*frames))

    assert found.wait is wait


def test_a_barrier_within_a_save_is_both():
    """A save that waits for other ranks is a save under way: who looks for benign explanations sees it."""
    (found,) = of(
        spy(
            "barrier (torch/distributed/distributed_c10d.py:4159)",
            "save_checkpoint (megatron/training/checkpointing.py:600)",
            "train (a.py:1)",
        )
    )

    assert found.wait is Wait.COLLECTIVE
    assert Wait.CHECKPOINT in found.within
    assert found.quote.text == "    barrier (torch/distributed/distributed_c10d.py:4159)"


def test_native_collectives_count_also_while_they_spin():
    text = GDB.replace("__futex_abstimed_wait_common64 (private", "ncclGroupEnd (private")

    assert of(text)[0].wait is Wait.COLLECTIVE


def test_a_watchdog_is_housekeeping_and_no_wait_of_the_work():
    (found,) = of(spy("c10d::ProcessGroupNCCL::heartbeatMonitor() (libtorch_cuda.so)", name="pt_nccl_heartbt"))

    assert found.wait is Wait.HOUSEKEEPING


def test_gradient_checkpointing_is_no_save():
    (found,) = of(
        spy(
            "forward (model.py:20)",
            "backward (torch/utils/checkpoint.py:320)",
            "backward (deepspeed/runtime/activation_checkpointing/checkpointing.py:640)",
        )
    )

    assert Wait.CHECKPOINT not in found.within


def test_a_process_that_could_not_be_looked_at_says_why():
    text = "# process 4711 python3\n# by py-spy dump\nError: Permission Denied: Try running again with elevated permissions\n"
    refused = "# process 4711 python3\n# not by gdb: ptrace: Operation not permitted.\n# by /proc\n"

    assert (of(text)[0].how, of(text)[0].failure) == (
        "",
        "Error: Permission Denied: Try running again with elevated permissions",
    )
    assert of(refused)[0].failure == "not by gdb: ptrace: Operation not permitted."


def test_the_way_that_names_functions_counts_before_one_that_names_none():
    both = KERNEL + SPY.partition("\n")[2]

    assert [found.how for found in of(both)] == ["py-spy"]


def test_native_frames_of_py_spy_without_a_name_are_left_out():
    (found,) = of(
        spy("0x7f21bcca3f16 (libc.so.6)", "PyThread_acquire_lock_timed (libpython3.11.so.1.0)", "train_step (t.py:11)")
    )

    assert found.main.frames[0] == "PyThread_acquire_lock_timed (libpython3.11.so.1.0)"  # type: ignore[union-attr]
    assert found.wait is Wait.LOCK


# -- two probes --------------------------------------------------------------------------------------------------------


def digest(*texts: str) -> str | None:
    return stacks.digest(stacks.of(some_case({f"stack-n{n}.txt": text for n, text in enumerate(texts)})))


def test_two_dumps_of_a_process_that_stands_still_have_one_digest():
    """Addresses, arguments, the order of threads and who holds the interpreter's lock differ from dump to dump."""
    again = (
        GDB.replace("0x00007f68", "0x00007eaa")
        .replace("op=393", "op=128")
        .replace("microseconds=-1000000", "microseconds=5")
    )
    head, *threads = SPY.split("\nThread ")
    turned = head + "".join("\nThread " + thread.rstrip("\n") for thread in reversed(threads))

    assert digest(GDB) == digest(again)
    assert digest(SPY) == digest(turned) == digest(SPY.replace('(idle): "MainThread"', '(active+gil): "MainThread"'))


def test_another_line_another_function_or_another_process_is_another_digest():
    assert (
        len(
            {
                digest(SPY),
                digest(SPY.replace("t.py:11", "t.py:12")),
                digest(SPY.replace("train_step", "save_step")),
                digest(SPY, SPY.replace("4711", "4812")),
            }
        )
        == 4
    )


def test_what_names_no_functions_has_no_digest():
    """A process that waits now and then looks the same to the kernel each time: no claim of standing still rests on that."""
    assert digest(KERNEL) is None
    assert digest(SPY, KERNEL) is None
    assert stacks.digest(()) is None
    assert stacks.digest(stacks.of(some_case({"stack-n1.txt": Failed("srun: error: Unable to create step")}))) is None


# -- garbage -----------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(st.text(max_size=80), st.sampled_from([*SPY.splitlines(), *GDB.splitlines(), *KERNEL.splitlines()])),
        max_size=60,
    )
)
def test_no_text_is_too_strange_to_be_read(lines):
    for process in stacks.read(lines, "s").processes:
        assert process.quote.line is not None
        assert process.quote.text in lines[process.quote.line - 1]
        assert process.wait is None or process.wait in process.within


@pytest.mark.parametrize(
    "name",
    ["a" * 4000 + " (", "std::function<" * 400, "_" * 4000 + " (f.py:1)", " (" * 2000, "save_" * 800 + " (a.py:1)"],
)
def test_a_frame_made_to_be_slow_is_read_at_once(name: str):
    of(spy(name))
    of(f'# process 1 x\n# by gdb\nThread 1 (Thread 0x7f (LWP 1) "x"):\n#0  0x00007f in {name} from /usr/lib/libx.so\n')
