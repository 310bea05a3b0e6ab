"""`farside up` on an idle machine: `python -m bench.idle [--minutes 10]`.

Starts it with every role in one process, waits, and prints its own CPU (share of one core) and
memory, and the incidents that it opened: there should be none.
"""

import argparse
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from bus.messages import Incident, Suspicion
from bus.records import Broken, lines_of, load
from runtime.clock import SystemClock
from runtime.files import SysTree
from runtime.process import start

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAUSE_S = 5.0
WARM_S = 10.0


def main() -> int:
    """Run it and print the table; exit code 1 when an incident was opened."""
    options = argparse.ArgumentParser()
    options.add_argument("--minutes", type=float, default=10.0)
    minutes: float = options.parse_args().minutes
    clock, tree, never = SystemClock(), SysTree(), threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record.jsonl")
        environment = {
            **os.environ,
            "FARSIDE__FARSIDE__STATE_DIR": folder,
            "FARSIDE__HTTP__PORT": "0",
        }
        argv = [sys.executable, "-m", "farside.main", "up", "--record", str(record)]
        running = start(argv, env=environment)
        clock.wait(never, WARM_S)
        began_s, began_cpu_s = clock.monotonic(), cpu_s(tree, running.pid)
        peak = 0
        while clock.monotonic() - began_s < minutes * 60.0:
            clock.wait(never, PAUSE_S)
            peak = max(peak, resident_bytes(tree, running.pid))
        spent_s = cpu_s(tree, running.pid) - began_cpu_s
        share = spent_s / (clock.monotonic() - began_s)
        os.kill(running.pid, signal.SIGTERM)
        code = running.wait(20.0)
        incidents, suspicions = told(record)
        size = record.stat().st_size
    out = sys.stdout.write
    out(f"| figure | value |\n|---|---|\n| minutes | {minutes:g} |\n")
    out(f"| CPU, share of one core (with --record) | {share:.1%} |\n")
    out(f"| resident, highest | {peak / 2**20:.0f} MiB |\n")
    out(f"| recorded | {size / 2**20:.1f} MiB |\n| suspicions told | {suspicions} |\n")
    out(f"| incidents opened | {len(incidents)} |\n| exit code after SIGTERM | {code} |\n")
    for sentence in incidents:
        out(f"\n{sentence}\n")
    return 1 if incidents else 0


def told(record: Path) -> tuple[list[str], int]:
    """Return the sentences of all incidents in a record, and how many suspicions it holds."""
    incidents, suspicions = [], 0
    with record.open("rb") as file:
        for found in load(lines_of(file)):
            if isinstance(found, Broken):
                continue
            if isinstance(found.message, Incident):
                incidents.append(found.message.sentence)
            suspicions += isinstance(found.message, Suspicion)
    return incidents, suspicions


def cpu_s(tree: SysTree, pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = tree.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def resident_bytes(tree: SysTree, pid: int) -> int:
    """Return the memory that a process holds."""
    return int(tree.read_text(f"/proc/{pid}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
