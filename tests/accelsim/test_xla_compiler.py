import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from accelsim import xla
from accelsim.errors import CompilerError
from accelsim.xla import Compiler
from tests.accelsim.modules import LOOP, chain, entry

SMALL = entry("ROOT p = f32[4] parameter(0)")
# A constant whose elided literal needs 4 GB.
HUGE_LITERAL = entry("ROOT c = f32[1000000000] constant({...})")


@pytest.fixture
def pool():
    with Compiler(children=1, seconds=60, wait_seconds=20) as compiler:
        yield compiler


def children_of(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children() if "accelsim/xla/child.py" in " ".join(child.cmdline())]


def new_child(pool: Compiler, before: set[int]) -> psutil.Process:
    """The one child that the pool started."""
    return next(child for child in children_of(os.getpid()) if child.pid not in before)


def wait_until(condition, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_the_public_names_are_sorted_and_there():
    assert xla.__all__ == sorted(xla.__all__)
    assert all(hasattr(xla, name) for name in xla.__all__)


def test_it_never_imports_jaxlib_into_this_process():
    program = (
        "import sys\nfrom accelsim.xla import Compiler\n"
        "with Compiler() as c: c.call('parse_text', b'ENTRY e { ROOT p = f32[] parameter(0) }')\n"
        "assert not {'jax', 'jaxlib'} & set(sys.modules), 'imported'"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_child_serves_many_requests(pool):
    before = {child.pid for child in children_of(os.getpid())}
    pool.call("parse_text", SMALL)
    first = new_child(pool, before).pid
    pool.call("parse_text", LOOP.encode())
    assert new_child(pool, before).pid == first


def test_a_refusal_leaves_the_child_alive(pool):
    before = {child.pid for child in children_of(os.getpid())}
    pool.call("parse_text", SMALL)
    first = new_child(pool, before).pid
    with pytest.raises(CompilerError) as caught:
        pool.call("parse_text", b"HloModule x\nENTRY e { ROOT p = f32[4] nothing() }")
    assert caught.value.kind == "refused"
    assert "Unknown opcode: nothing" in caught.value.message
    assert new_child(pool, before).pid == first


def test_an_abort_is_an_error_with_xlas_own_words(pool):
    with pytest.raises(CompilerError) as caught:
        pool.call("parse_text", entry("p = f32[4] parameter(3)", "ROOT r = f32[4] add(p, p)"))
    assert caught.value.kind == "crashed"
    assert "invalid parameter number. Expected [0, 1), got 3" in caught.value.message


def test_a_new_child_follows_a_crash(pool):
    with pytest.raises(CompilerError):
        pool.call("parse_text", entry("p = f32[4] parameter(3)", "ROOT r = f32[4] add(p, p)"))
    assert pool.call("parse_text", SMALL)[0]["ok"]


def test_a_stack_overflow_is_a_crash(pool):
    with pytest.raises(CompilerError) as caught:
        pool.call("parse_text", entry("p = f32[4] parameter(0)", "ROOT r = " + "(" * 20_000))
    assert (caught.value.kind, "SIGSEGV" in caught.value.message) == ("crashed", True)


def test_a_child_that_was_killed_while_idle_is_replaced(pool):
    before = {child.pid for child in children_of(os.getpid())}
    pool.call("parse_text", SMALL)
    child = new_child(pool, before)
    child.send_signal(signal.SIGKILL)
    psutil.Process(child.pid).wait(10)
    assert pool.call("parse_text", SMALL)[0]["ok"]


def test_a_child_that_is_killed_at_work_is_a_crash(pool):
    before = {child.pid for child in children_of(os.getpid())}
    pool.call("parse_text", SMALL)
    child = new_child(pool, before)
    child.suspend()
    killer = threading.Timer(0.2, child.send_signal, [signal.SIGKILL])
    killer.start()
    with pytest.raises(CompilerError) as caught:
        pool.call("parse_text", SMALL)
    killer.join()
    assert (caught.value.kind, "SIGKILL" in caught.value.message) == ("crashed", True)


def test_a_child_that_does_not_answer_is_stopped(pool):
    before = {child.pid for child in children_of(os.getpid())}
    pool.call("parse_text", SMALL)
    child = new_child(pool, before)
    child.suspend()
    with pytest.raises(CompilerError) as caught:
        pool.call("parse_text", SMALL, seconds=0.2)
    assert caught.value.kind == "timeout"
    assert not child.is_running()


def test_a_child_that_does_not_read_is_stopped(pool):
    before = {child.pid for child in children_of(os.getpid())}
    pool.call("parse_text", SMALL)
    new_child(pool, before).suspend()
    with pytest.raises(CompilerError) as caught:
        pool.call("parse_text", b" " * (1 << 22), seconds=0.2)
    assert caught.value.kind == "timeout"


def test_memory_is_limited():
    with Compiler(memory_bytes=1 << 30) as compiler, pytest.raises(CompilerError) as caught:
        compiler.call("parse_text", HUGE_LITERAL)
    assert caught.value.kind == "memory"
    assert "1 GiB of memory" in caught.value.message


def test_processor_time_is_limited():
    with Compiler(cpu_seconds=1) as compiler:
        proto = compiler.call("parse_text", chain(60_000))[1][0]
        with pytest.raises(CompilerError) as caught:
            compiler.call("compile_until_scheduled", proto)
    assert caught.value.kind == "timeout"
    assert "processor time" in caught.value.message


def test_a_request_waits_for_a_free_child_and_is_then_refused_as_busy():
    with Compiler(children=1, wait_seconds=0.1) as compiler:
        before = {child.pid for child in children_of(os.getpid())}
        compiler.call("parse_text", SMALL)
        child = new_child(compiler, before)
        child.suspend()
        worker = threading.Thread(target=compiler.call, args=("parse_text", SMALL))
        worker.start()
        wait_until(lambda: not compiler._idle)
        with pytest.raises(CompilerError) as caught:
            compiler.call("parse_text", SMALL)
        child.resume()
        worker.join()
    assert caught.value.kind == "busy"


def test_threads_share_a_bounded_number_of_children():
    before = {child.pid for child in children_of(os.getpid())}
    results: list[bytes] = []
    most = 0
    with Compiler(children=2) as compiler:
        threads = [
            threading.Thread(target=lambda: results.append(compiler.call("parse_text", chain(500))[1][1]))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most = max(most, len({child.pid for child in children_of(os.getpid())} - before))
            time.sleep(0.01)
    assert len(results) == 8 and len(set(results)) == 1
    assert 1 <= most <= 2


def test_closing_ends_the_children_and_removes_their_folders():
    before = {child.pid for child in children_of(os.getpid())}
    compiler = Compiler()
    compiler.call("parse_text", SMALL)
    child = new_child(compiler, before)
    folder = Path(child.cwd())
    assert folder.is_dir()
    compiler.close()
    assert not child.is_running()
    assert not folder.exists()


def test_a_child_has_its_own_session_and_sees_nothing_of_our_environment(pool, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "secret")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/anywhere")
    before = {child.pid for child in children_of(os.getpid())}
    pool.call("parse_text", SMALL)
    child = new_child(pool, before)
    environment = child.environ()
    assert os.getsid(child.pid) == child.pid
    assert "DATABASE_URL" not in environment and "XLA_FLAGS" not in environment
    assert environment["TMPDIR"] == child.cwd()


def test_a_child_goes_when_its_parent_is_killed():
    program = (
        "import os, time\nfrom accelsim.xla import Compiler\n"
        "c = Compiler(); c.call('parse_text', b'ENTRY e { ROOT p = f32[] parameter(0) }')\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        (child,) = children_of(parent.pid)
        folder = Path(child.cwd())
        parent.kill()
    wait_until(lambda: not child.is_running())
    wait_until(lambda: not folder.exists())


def test_a_forked_process_gets_children_of_its_own(pool):
    before = {child.pid for child in children_of(os.getpid())}
    pool.call("parse_text", SMALL)
    child = new_child(pool, before)
    forked = os.fork()
    if forked == 0:
        pool.call("parse_text", SMALL)
        own = [other.pid for other in children_of(os.getpid())]
        pool.close()
        os._exit(0 if own and child.pid not in own else 1)
    assert os.waitpid(forked, 0)[1] == 0
    assert pool.call("parse_text", SMALL)[0]["ok"]
    assert child.is_running()


def test_the_last_words_of_an_earlier_request_are_not_blamed(pool):
    with pytest.raises(CompilerError):
        pool.call("parse_text", entry("p = f32[4] parameter(3)", "ROOT r = f32[4] add(p, p)"))
    before = {child.pid for child in children_of(os.getpid())}
    pool.call("parse_text", SMALL)
    child = new_child(pool, before)
    child.suspend()
    threading.Timer(0.2, child.send_signal, [signal.SIGKILL]).start()
    with pytest.raises(CompilerError) as caught:
        pool.call("parse_text", SMALL)
    assert "parameter" not in caught.value.message


def test_a_reply_that_stands_for_gigabytes_is_not_read():
    with Compiler(reply_bytes=1 << 20) as compiler, pytest.raises(CompilerError) as caught:
        compiler.call("parse_text", entry("ROOT c = f32[1000000] constant({...})"))
    assert caught.value.kind == "memory"
    assert "over the limit" in caught.value.message
