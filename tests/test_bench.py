"""The load tool works and notices what is wrong. Small counts: nothing is said about speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT, TARGET

BENCH = TARGET / "debug" / "bench"


def bench(out: Path, *words: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    command = [str(BENCH), "--quick", "--python", python, "--out", str(out), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)


def test_everything_is_measured_and_reported(tmp_path: Path) -> None:
    done = bench(tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    measured = {(figure["scenario"], figure["server"]) for figure in report["figures"]}
    three = {"gateway", "tokio_websockets", "python_websockets"}
    expected = {(what, server) for what in ("idle 100", "chat", "storm") for server in three}
    expected |= {("chat", "gateway_filled"), ("media", "gateway"), ("stream", "gateway")}
    assert measured == expected
    frames = [f for f in report["figures"] if f["figure"] == "frames to the device a message"]
    assert [figure["median"] for figure in frames] == [1.0] * 4
    # The table holds the same.
    table = (tmp_path / "report.txt").read_text()
    assert all(figure["figure"] in table for figure in report["figures"])


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        # Another frame than the gateway's is seen before anything is measured.
        ('"total": 1', '"total": 2', "Python websockets sends"),
        # A text that comes back damaged, but only later.
        ('frame["text"],', 'frame["text"][: 10**6 if seq < 5 else 5],', "not the echo of"),
        # A device that is thrown out.
        ("seq += 1", "seq += 1\n                if seq == 6: return", "the server closed the connection"),
    ],
)
def test_a_wrong_answer_ends_the_run(tmp_path: Path, right: str, wrong: str, complaint: str) -> None:
    script = (ROOT / "bench" / "reference" / "ref_websockets.py").read_text()
    assert script.count(right) == 1
    (tmp_path / "server.py").write_text(script.replace(right, wrong))
    python = tmp_path / "python"
    # Runs the damaged server in place of the one that it is told.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path / "server.py"} "$2"\n')
    python.chmod(0o755)
    done = bench(tmp_path, "--only", "chat", python=str(python))
    assert done.returncode == 1
    assert complaint in done.stderr
