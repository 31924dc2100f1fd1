"""What is measured of a gateway that runs: for the start tests and for `make bench-size`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness import Gateway


def resident_kib(gateway: Gateway) -> int:
    """Resident memory of the process, KiB."""
    assert gateway.process is not None
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1])


def fill(binary: Path, state: Path, rows: int) -> None:
    subprocess.run([str(binary), str(state), str(rows)], check=True, stdout=subprocess.DEVNULL)
