"""WebSocket conformance: kosoku against the echo server that is made by the gateway's own constructor.

Prints "N passed, N failed", counted from kosoku's report: the core cases and those with large messages.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import ROOT, TARGET

ECHO = TARGET / "debug" / "ws-echo"
KOSOKU = ROOT / ".venv" / "bin" / "kosoku"
# Which cases, and how many there are of them: a suite that runs fewer has not run. Compression (12, 13) is not offered.
SUITES = [(["-x", "9.*", "-x", "12.*", "-x", "13.*"], 247), (["-i", "9.*"], 54)]
GOOD = {"OK", "NON-STRICT", "INFORMATIONAL"}


def run(address: str, cases: list[str], expected: int) -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as folder:
        command = [str(KOSOKU), "-p", "4", "-o", folder, *cases, address]
        code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        report = Path(folder) / "index.json"
        results = json.loads(report.read_text()).get(address, {}) if report.exists() else {}
    bad = [case for case, result in results.items() if not {result["behavior"], result["behaviorClose"]} <= GOOD]
    for case in bad:
        print(f"case {case}: {results[case]}")
    failed = len(bad)
    if len(results) != expected:
        print(f"{len(results)} cases ran, not {expected}")
        failed += 1
    if code and not failed:
        print(f"kosoku ended with {code}")
        failed += 1
    return len(results) - len(bad), failed


def main() -> int:
    with subprocess.Popen([str(ECHO)], stdout=subprocess.PIPE, text=True) as echo:
        assert echo.stdout is not None
        address = echo.stdout.readline().strip().removeprefix("ws://").rstrip("/")
        try:
            counts = [run(address, cases, expected) for cases, expected in SUITES]
        finally:
            echo.kill()
    passed, failed = (sum(numbers) for numbers in zip(*counts, strict=True))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
