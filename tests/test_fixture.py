"""A state directory of version 1 is opened by this binary, and everything in it goes on."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from pathlib import Path

from harness import Device, Gateway, final_message, is_a

FIXTURE = Path(__file__).resolve().parent / "fixtures" / "state-v1"


def copy_as_of_now(state: Path) -> None:
    """A copy whose rows are an hour old, since what is older than 7 days is not kept, and whose card has run out."""
    shutil.copytree(FIXTURE, state)
    state.chmod(0o700)
    with sqlite3.connect(state / "store.db") as db:
        newest = db.execute("SELECT max(at) FROM log").fetchone()[0]
        now = int(time.time() * 1000)
        db.execute("UPDATE log SET at = at + ?", (now - 3_600_000 - newest,))
        for pos, body in db.execute("SELECT pos, body FROM log").fetchall():
            record = json.loads(body)
            if record.get("r") == "card":
                record["deadline"] = now - 1000
                db.execute("UPDATE log SET body = ? WHERE pos = ?", (json.dumps(record).encode(), pos))
    db.close()


def test_a_state_directory_of_version_1_goes_on(tmp_path: Path) -> None:
    copy_as_of_now(tmp_path / "state")

    async def talk(gateway: Gateway) -> None:
        phone = Device(gateway, "phone")
        await phone.open()
        # What became ready while the phone was away; the card's time ran out meanwhile.
        wanted = {
            "answer": final_message("done after 1 s"),
            "picture": is_a("media", kind="image"),
            "card": is_a("prompt_done", expired=True, option_id="deny"),
            "report": final_message("timed out"),
        }
        while wanted:
            frame = await phone.next()
            for name in [name for name, matches in wanted.items() if matches(frame)]:
                del wanted[name]
        # An id of that time is still known; another one is new.
        await phone.text("kept", id="f-1")
        await phone.text("new", id="f-9")
        frames = await phone.frames_until(final_message("You said: new"))
        assert not any(frame["t"] == "message" and "kept" in frame["text"] for frame in frames)
        await phone.close()

    with Gateway(tmp_path / "state") as gateway:
        asyncio.run(talk(gateway))
