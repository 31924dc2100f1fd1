"""What Prometheus itself says about `/metrics` of the real binary, after something of everything has happened."""

from __future__ import annotations

import asyncio
import subprocess
import urllib.request

from harness import PROMTOOL, Gateway, encode, opened


def metrics(gateway: Gateway) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.port}/metrics") as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        body: bytes = answer.read()
        return body


def promtool(text: bytes) -> tuple[int, str]:
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_promtool_finds_nothing_to_complain_about(gateway: Gateway) -> None:
    assert promtool(metrics(gateway)) == (0, "")

    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            assert await phone.ask("hi") == "You said: hi"
            file = {"kind": "document", "mime": "text/plain", "filename": "a.txt", "data": encode(b"abc")}
            await phone.send(t="media", id="m", part=0, parts=1, **file)
            await phone.until(lambda frame: frame["t"] == "message" and frame["final"])
            await phone.send(t="text", id="e", text=" ")
            await phone.until(lambda frame: frame["t"] == "error")

    asyncio.run(scene())
    text = metrics(gateway)
    assert b'hermes_mobile_errors_total{code="bad_frame"} 1\n' in text
    assert promtool(text) == (0, "")


def test_promtool_would_complain(gateway: Gateway) -> None:
    text = metrics(gateway)
    code, said = promtool(text.replace(b"hermes_mobile_frames_total", b"hermes_mobile_frames"))
    assert code != 0
    assert "hermes_mobile_frames" in said
    assert promtool(text + b"hermes_mobile_hub_up{ 1\n")[0] != 0
