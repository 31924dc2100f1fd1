"""Start and stop of the real binary, on an empty state directory and on a full one. Times are printed, not judged."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
from harness import BINARY, TARGET, Gateway, opened
from measure import fill

FILL = TARGET / "debug" / "fill-store"
ROWS = 100_000


def test_a_full_store_starts_and_the_devices_in_it_go_on(tmp_path: Path) -> None:
    state = tmp_path / "state"
    fill(FILL, state, ROWS)

    async def scene(gateway: Gateway) -> None:
        async with opened(gateway, "fill-1") as device:
            await device.ask("and now", id="new")
            # Everything was proven: only the new answer came, with a number above all earlier ones.
            assert [frame["text"] for frame in device.seen if frame["t"] == "message"] == ["You said: and now"]
            assert device.screen.seqs[0] > ROWS // 2 // 1000 - 2
            # Its ids of the last days are remembered: position 2,000 is the first text of this device.
            await device.text("another text", id="id-2000")
            error = await device.until(lambda frame: frame["t"] == "error")
            assert (error["code"], error["id"]) == ("bad_frame", "id-2000")

    with Gateway(state) as gateway:
        print(f"{ROWS} rows: listening after {gateway.started_in * 1000:.0f} ms")
        asyncio.run(scene(gateway))


def test_the_first_start_makes_a_token_for_its_owner_only(tmp_path: Path) -> None:
    state = tmp_path / "state"
    gateway = Gateway(state)
    del gateway.env["MOBILE_TOKEN"]
    with gateway:
        holders = [file for file in state.rglob("*") if file.is_file() and "token" in file.name]
        assert len(holders) == 1
        token = holders[0].read_text().strip()
        assert len(token) >= 16
        assert stat.S_IMODE(holders[0].stat().st_mode) == 0o600
        # Not on a terminal: the path is said, the token is not.
        log = "\n".join(gateway.lines)
        assert str(holders[0]) in log
        assert token not in log

        async def scene() -> None:
            async with opened(gateway, "phone", token=token) as phone:
                assert await phone.ask("hi") == "You said: hi"

        asyncio.run(scene())
        assert token not in "\n".join(gateway.lines)
    # The second start has the same one.
    gateway.launch()
    assert holders[0].read_text().strip() == token
    assert gateway.terminate() == 0


def test_two_gateways_do_not_share_a_state_directory(tmp_path: Path) -> None:
    with Gateway(tmp_path / "state"):
        second = Gateway(tmp_path / "state")
        with pytest.raises(AssertionError, match=r"another gateway|другой шлюз"):
            second.launch()
        assert second.process is not None
        assert second.process.returncode not in {0, 101, -6}


def test_a_newer_store_is_refused_in_words(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Gateway(state) as gateway:
        gateway.terminate()
    databases = [file for file in state.iterdir() if file.is_file() and file.read_bytes()[:15] == b"SQLite format 3"]
    assert len(databases) == 1
    # user_version of the SQLite header: 4 bytes at 60.
    data = bytearray(databases[0].read_bytes())
    data[60:64] = (9999).to_bytes(4, "big")
    databases[0].write_bytes(data)
    with pytest.raises(AssertionError, match="9999"):
        Gateway(state).launch()


def test_unknown_settings_are_warned_about_and_bad_ones_stop_the_start(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text("no_such_setting = 1\n")
    with Gateway(tmp_path / "state", MOBILE_CONFIG=str(config), MOBILE_NO_SUCH_THING="1") as gateway:
        log = "\n".join(gateway.lines)
    assert "no_such_setting" in log
    assert "MOBILE_NO_SUCH_THING" in log
    with pytest.raises(AssertionError, match="MOBILE_CHUNK_LIMIT"):
        Gateway(tmp_path / "state", MOBILE_CHUNK_LIMIT="many").launch()


def test_field_tokens_and_words_are_never_in_the_log(tmp_path: Path) -> None:
    secret, words = "url-token-5c1d9e", "words-of-a-person-77ab"

    async def scene(gateway: Gateway) -> None:
        from websockets.asyncio.client import connect

        async with connect(f"{gateway.url}?token={secret}") as socket:
            await socket.send('{"t":"hello","device":{"id":"phone"}}')
            assert '"ready"' in str(await socket.recv())
            await socket.send('{"t":"text","text":"' + words + '"}')
            while words not in str(await socket.recv()):
                pass
        async with connect(f"{gateway.url}?token=wrong-{secret}") as socket:
            await socket.send('{"t":"hello","device":{"id":"phone"}}')
            assert "auth_failed" in str(await socket.recv())

    with Gateway(tmp_path / "state", MOBILE_TOKEN=secret, RUST_LOG="trace", MOBILE_LOG="trace") as gateway:
        asyncio.run(scene(gateway))
        gateway.terminate()
    log = "\n".join(gateway.lines)
    assert secret not in log
    assert words not in log


def test_version_and_help() -> None:
    for words in (["--version"], ["--help"], ["serve", "--help"]):
        done = subprocess.run([str(BINARY), *words], check=True, capture_output=True, text=True, env=os.environ)
        assert re.search(r"hermes-mobile \d+\.\d+\.\d+|serve", done.stdout)
