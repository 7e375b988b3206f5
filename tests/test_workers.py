"""Workers end with the process that they work for, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CALL = """
import os, sys, time, joblib
from pathlib import Path
from pyrofair._workers import delayed
def wait(folder, number):
    Path(folder, str(os.getpid())).touch()
    time.sleep(300)
joblib.Parallel(2, batch_size=1)(delayed(wait)(sys.argv[1], number) for number in range(2))
"""


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" if Path("/proc/self").exists() else True


@pytest.mark.skipif(os.name != "posix", reason="a process does not see there that its parent has ended")
def test_workers_of_a_killed_process_end(tmp_path: Path) -> None:
    caller = subprocess.Popen([sys.executable, "-W", "ignore", "-c", CALL, str(tmp_path)], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while len(found := [int(each.name) for each in tmp_path.iterdir()]) < 2:
        assert time.monotonic() < until
        time.sleep(0.1)
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    while any(map(lives, found)):
        assert time.monotonic() < until, "a worker stays"
        time.sleep(0.1)
