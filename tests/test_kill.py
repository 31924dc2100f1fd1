"""`kill -9` under load, again and again, on one state directory.

Several devices say numbered texts. The gateway is killed at moments that a seed chooses; the devices connect again
and say once more what they have no answer to, under the same ids. At the end: no accepted text is lost, each was
answered by exactly one message id, no `seq` was used twice or went back, and a card that was open all the time still
works.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
import websockets
from harness import Device, Frame, Gateway, final_message, is_a

KILLS = int(os.environ.get("HERMES_KILLS", "20"))
SEED = int(os.environ.get("HERMES_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
DEVICES = 4
# Texts that are on their way at the same time, for each device.
WINDOW = 8
# Answers of the whole load between two kills: the moment of a kill is counted in them, not in seconds.
BETWEEN = (3, 60)


class Talker(Device):
    """Keeps saying new texts until it is told to stop, then waits for the answers that are missing."""

    def __init__(self, gateway: Gateway, name: str, said: str, load: Load) -> None:
        super().__init__(gateway, name)
        self.said, self.load = said, load
        self.waiting: dict[str, str] = {}
        # Message ids that carried the answer to a text, by text.
        self.answers: dict[str, set[str]] = {}
        self.total = 0

    async def run(self) -> None:
        while not (self.load.over.is_set() and not self.waiting):
            try:
                await self.open()
                # In the order in which they were first said.
                for number, text in list(self.waiting.items()):
                    await self.text(text, id=number)
                while not (self.load.over.is_set() and not self.waiting):
                    while len(self.waiting) < WINDOW and not self.load.over.is_set():
                        self.total += 1
                        text = f"{self.name} text {self.total}"
                        self.waiting[f"id-{self.total}"] = text
                        await self.text(text, id=f"id-{self.total}")
                    self.take(await self.next())
            except TimeoutError:
                # An OSError too, but no lost line: something was never answered.
                raise
            except (websockets.ConnectionClosed, OSError, websockets.InvalidHandshake, EOFError):
                await self.drain()
                await self.load.running.wait()
        await self.close()

    async def drain(self) -> None:
        """Reads what the stack still holds of a connection that is gone: the stack has proven it."""
        while self.socket is not None and self.socket.state is websockets.State.CLOSED:
            try:
                frame = await self.next()
            except websockets.ConnectionClosed:
                break
            if frame["t"] != "ready":
                self.take(frame)

    def take(self, frame: Frame) -> None:
        assert frame["t"] != "error", frame
        if frame["t"] == "message" and frame["final"]:
            text = self.screen.texts[frame["id"]]
            assert text.startswith(self.said), text
            text = text.removeprefix(self.said)
            self.answers.setdefault(text, set()).add(frame["id"])
            number = "id-" + text.rsplit(" ", 1)[1]
            if self.waiting.pop(number, None) is not None:
                self.load.answered()


class Load:
    """Counts answers, and says when the gateway runs and when everything is over."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.running = asyncio.Event()
        self.count = 0
        self._wake = asyncio.Event()

    def answered(self) -> None:
        self.count += 1
        self._wake.set()

    async def reach(self, count: int) -> None:
        while self.count < count:
            self._wake.clear()
            await asyncio.wait_for(self._wake.wait(), 60)


@pytest.mark.parametrize(("agent", "said"), [("echo", ""), ("demo", "You said: ")])
def test_kill_under_load(tmp_path: Path, agent: str, said: str) -> None:
    print(f"again with: HERMES_SEED={SEED} HERMES_KILLS={KILLS}")
    dice = random.Random(SEED)

    async def scene() -> None:
        # The two agents share the kills.
        gateway = Gateway(tmp_path / "state", agent=agent, MOBILE_RATE_LIMITS="off")
        load = Load()
        with gateway:
            load.running.set()
            card = await open_card(gateway) if agent == "demo" else None
            talkers = [Talker(gateway, f"device-{number}", said, load) for number in range(DEVICES)]
            tasks = [asyncio.create_task(talker.run()) for talker in talkers]
            for _ in range(KILLS // 2):
                await progress(load, load.count + dice.randint(*BETWEEN), tasks)
                load.running.clear()
                gateway.kill()
                await asyncio.to_thread(gateway.launch)
                load.running.set()
            await progress(load, load.count + 20, tasks)
            load.over.set()
            await asyncio.gather(*tasks)
            for talker in talkers:
                await check(talker, gateway)
            if card is not None:
                await answer_card(gateway, card)

    asyncio.run(scene())


async def progress(load: Load, count: int, tasks: list[asyncio.Task[None]]) -> None:
    """Waits for answers; a talker that ended before its time has failed, and its reason is shown."""
    waiting = asyncio.create_task(load.reach(count))
    done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    if waiting not in done:
        waiting.cancel()
    for task in done:
        task.result()
    assert waiting in done


async def check(talker: Talker, gateway: Gateway) -> None:
    # What came late, after the last answer that was waited for.
    late = Talker(gateway, talker.name, talker.said, talker.load)
    late.answers = talker.answers
    await late.open()
    await late.send(t="ping", ts="end")
    for frame in await late.frames_until(is_a("pong", ts="end")):
        if frame["t"] == "message":
            late.take(frame)
    await late.close()
    texts = {f"{talker.name} text {number}" for number in range(1, talker.total + 1)}
    assert set(talker.answers) == texts, "a text is lost, or was never said"
    twice = {text: ids for text, ids in talker.answers.items() if len(ids) > 1}
    assert not twice, "answered more than once"
    numbers: dict[int, str] = {}
    for frame in talker.seen + late.seen:
        if "seq" in frame:
            # A replay shows an item again under its number; no number is ever that of two items.
            assert numbers.setdefault(frame["seq"], frame["id"]) == frame["id"], "a seq was used twice"
    # Within one connection the numbers rise; `ready` begins a new one.
    last = 0
    for frame in talker.seen:
        if frame["t"] == "ready":
            last = 0
        elif "seq" in frame:
            assert frame["seq"] > last, "a seq went back"
            last = frame["seq"]


async def open_card(gateway: Gateway) -> str:
    device = Device(gateway, "card-device")
    await device.open()
    await device.text("/approve make install")
    card = await device.until(is_a("prompt"))
    device.cut()
    return str(card["id"])


async def answer_card(gateway: Gateway, card: str) -> None:
    device = Device(gateway, "card-device")
    await device.open()
    shown = await device.until(is_a("prompt"))
    assert (shown["id"], shown["command"]) == (card, "make install")
    await device.send(t="prompt", prompt_id=card, option_id="always")
    done = await device.until(is_a("prompt_done"))
    assert (done["id"], done["option_id"]) == (card, "always")
    await device.until(final_message("approved: always"))
    await device.close()
