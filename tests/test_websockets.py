"""Python `websockets` with its defaults, as an app would use it: long texts, files, streams, cut lines, cards."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path

import pytest
from harness import (
    PATIENCE,
    Device,
    Frame,
    Gateway,
    close_code,
    final_message,
    is_a,
    opened,
    parts_of,
    pattern,
    sha256,
    strictly_rising,
)
from websockets.asyncio.client import connect

MIB = 1024 * 1024


def test_a_very_long_reply_comes_whole_in_frames_under_a_mebibyte(gateway: Gateway) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            await phone.text("/long 200000")
            frames = await phone.frames_until(is_a("avatar", state="idle"))
            messages = [frame for frame in frames if frame["t"] == "message"]
            text = "".join(frame["text"] for frame in messages)
            assert len(text) == 200_000
            # Chunks are whole: emoji, and the URL, survive the joining; no chunk is over the limit of characters.
            assert all(len(frame["text"]) <= 2000 for frame in messages)
            assert "https://" in text

    asyncio.run(scene())


@pytest.mark.parametrize("size", [1, 700_000, 700_001, 8 * MIB])
def test_a_file_comes_down_whole(gateway: Gateway, size: int) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            await phone.text(f"/file {size}")
            frames = await phone.frames_until(is_a("media", final=True))
            parts = [frame for frame in frames if frame["t"] == "media"]
            data = phone.screen.files[parts[0]["id"]]
            assert data == pattern(size)
            assert parts[0]["caption"] == f"sha256 {sha256(data)}"
            assert [part["part"] for part in parts] == list(range(-(-size // 700_000)))
            assert [part["final"] for part in parts] == [False] * (len(parts) - 1) + [True]
            # The number of the item is on its last frame only.
            assert ["seq" in part for part in parts] == [False] * (len(parts) - 1) + [True]

    asyncio.run(scene())


@pytest.mark.parametrize("order", ["as they are", "reversed", "shuffled, each twice"])
def test_eight_mebibytes_go_up_in_parts(gateway: Gateway, order: str) -> None:
    data = random.Random(8).randbytes(8 * MIB)
    parts = list(parts_of(data, 3_000_000 // 4 * 3))
    if order == "reversed":
        parts.reverse()
    elif order != "as they are":
        parts += parts[:-1]
        random.Random(order).shuffle(parts)

    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            for part, total, encoded in parts:
                await phone.send(
                    t="media", id="up", kind="document", mime="application/octet-stream", filename="data.bin",
                    part=part, parts=total, data=encoded,
                )  # fmt: skip
            answer = await phone.until(final_message("Got "))
            assert f"data.bin application/octet-stream {len(data)} bytes sha256 {sha256(data)}" in answer["text"]
            assert not [frame for frame in phone.seen if frame["t"] == "error"]

    asyncio.run(scene())


def test_a_file_one_byte_too_large_is_refused_and_the_socket_lives(gateway: Gateway) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            for part, total, encoded in parts_of(bytes(8 * MIB + 1), 4 * MIB):
                await phone.send(
                    t="media", id="up", kind="document", mime="text/plain", filename="a", part=part, parts=total,
                    data=encoded,
                )  # fmt: skip
            error = await phone.until(is_a("error"))
            assert (error["code"], error["fatal"], error["id"]) == ("too_big", False, "up")
            assert await phone.ask("still here?") == "You said: still here?"

    asyncio.run(scene())


def test_a_stream_is_one_bubble_and_costs_at_most_eight_times_its_text(gateway: Gateway) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            await phone.text("/stream 300")
            frames = await phone.frames_until(is_a("message", final=True))
            edits = [frame for frame in frames if frame["t"] == "message"]
            assert len({edit["id"] for edit in edits}) == 1
            assert edits[-1]["text"].split() == [f"word{n}" for n in range(1, 301)]
            assert sum(len(edit["text"]) for edit in edits) <= 8 * len(edits[-1]["text"])
            assert [edit for edit in edits if "seq" in edit] == [edits[-1]]

    asyncio.run(scene())


def test_a_line_cut_in_the_middle_of_a_stream_goes_on_in_the_same_bubble(gateway: Gateway) -> None:
    async def scene() -> None:
        phone = Device(gateway, "phone")
        await phone.open()
        await phone.text("/stream 200", id="s-1")
        # In the middle: some words are there, the last is not.
        first = await phone.until(lambda frame: frame["t"] == "message" and "word20" in frame["text"])
        assert not first["final"]
        phone.cut()
        await phone.open()
        last = await phone.until(is_a("message", final=True))
        assert last["id"] == first["id"]
        assert last["text"].split() == [f"word{n}" for n in range(1, 201)]
        assert list(phone.screen.texts) == [first["id"]]
        await phone.close()

    asyncio.run(scene())


def test_what_was_said_while_the_phone_was_away_comes_at_the_next_connect(gateway: Gateway) -> None:
    async def scene() -> None:
        phone = Device(gateway, "phone")
        await phone.open()
        await phone.text("/slow 1", id="s-1")
        await phone.until(is_a("avatar", state="thinking"))
        phone.cut()
        async with opened(gateway, "witness") as witness:
            # Longer than the phone's turn takes.
            assert "done after 2 s" in await witness.ask("/slow 2")
        await phone.open()
        assert "done after 1 s" in (await phone.until(final_message()))["text"]
        await phone.close()

    asyncio.run(scene())


def test_what_is_proven_is_not_sent_again(gateway: Gateway) -> None:
    async def scene() -> None:
        phone = Device(gateway, "phone")
        await phone.open()
        await phone.ask("one", id="1")
        await phone.settled()
        await phone.ask("two", id="2")
        await phone.settled()
        await asyncio.wait_for(phone.proven.wait(), PATIENCE)
        # The pong went out before this; when its answer is here, the gateway has read both.
        await phone.send(t="ping", ts="after the pong")
        await phone.until(is_a("pong"))
        phone.cut()
        seen = len(phone.seen)
        await phone.open()
        await phone.ask("three", id="3")
        texts = [frame["text"] for frame in phone.seen[seen:] if frame["t"] == "message"]
        assert texts == ["You said: three"]
        assert strictly_rising(phone.screen.seqs)
        await phone.close()

    asyncio.run(scene())


def test_what_is_unproven_comes_again_as_a_redraw_under_the_same_id(gateway: Gateway) -> None:
    async def scene() -> None:
        phone = Device(gateway, "phone")
        phone.deaf = True
        await phone.open()
        await phone.text("/long 5000", id="1")
        chunks = [f for f in await phone.frames_until(is_a("message", final=True)) if f["t"] == "message"]
        whole = "".join(chunk["text"] for chunk in chunks)
        phone.cut()
        await phone.open()
        again = await phone.until(is_a("message"))
        assert (again["id"], again["text"]) == (chunks[0]["id"], whole)
        assert again["edit"]
        assert again["final"]
        assert again["chunk"] == {"index": 0, "total": 1}
        await phone.close()

    asyncio.run(scene())


def test_cards_each_answer_goes_to_the_card_that_was_pressed(gateway: Gateway) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            await phone.text("/cards 3")
            cards: dict[str, str] = {}
            while len(cards) < 3:
                card = await phone.until(is_a("prompt"))
                cards[card["command"]] = card["id"]
            answers = {"CMD 2": "once", "CMD 3": "deny", "CMD 1": "always"}
            for command, option in answers.items():
                await phone.send(t="prompt", prompt_id=cards[command], option_id=option)
                done = await phone.until(is_a("prompt_done"))
                assert (done["id"], done["option_id"]) == (cards[command], option)
            # The same answer again: the same end again. Another answer: the first stands.
            for option in ("once", "deny"):
                await phone.send(t="prompt", prompt_id=cards["CMD 2"], option_id=option)
                done = await phone.until(is_a("prompt_done"))
                assert (done["id"], done["option_id"]) == (cards["CMD 2"], "once")

    asyncio.run(scene())


def test_a_card_survives_a_restart_and_keeps_its_time(tmp_path: Path) -> None:
    async def scene() -> None:
        with Gateway(tmp_path / "state") as gateway:
            phone = Device(gateway, "phone")
            await phone.open()
            await phone.text("/approve make")
            card = await phone.until(is_a("prompt"))
            gateway.kill()
            gateway.launch()
            await phone.open()
            again = await phone.until(is_a("prompt"))
            # Open cards come first, with the seconds that are left and without a number.
            assert phone.since_ready()[0] == again
            assert "seq" not in again
            assert again["id"] == card["id"]
            assert again["timeout_seconds"] <= card["timeout_seconds"]
            await phone.send(t="prompt", prompt_id=card["id"], option_id="session")
            assert (await phone.until(is_a("prompt_done")))["option_id"] == "session"
            await phone.until(final_message("approved: session"))
            await phone.close()

    asyncio.run(scene())


def test_a_question_with_choices_and_a_free_answer(gateway: Gateway) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            await phone.text("/ask")
            card = await phone.until(is_a("prompt", kind="clarify"))
            other = next(option for option in card["options"] if option.get("allow_text"))
            assert other["id"] == "other"
            # What was not offered is no answer to a question.
            await phone.send(t="prompt", prompt_id=card["id"], option_id="mauve")
            assert (await phone.until(is_a("error")))["code"] == "bad_frame"
            await phone.send(t="prompt", prompt_id=card["id"], option_id="other", text="сиреневый")
            assert (await phone.until(is_a("prompt_done")))["option_id"] == "other"
            await phone.until(final_message("сиреневый"))

    asyncio.run(scene())


def test_time_over_is_its_own_outcome(gateway: Gateway) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            await phone.text("/approve 1 sleep")
            card = await phone.until(is_a("prompt"))
            assert card["timeout_seconds"] == 1
            done = await phone.until(is_a("prompt_done"))
            assert (done["id"], done["expired"]) == (card["id"], True)
            await phone.until(final_message("timed out"))

    asyncio.run(scene())


def test_the_newer_connection_of_a_device_wins(gateway: Gateway) -> None:
    async def scene() -> None:
        older, newer = Device(gateway, "phone"), Device(gateway, "phone")
        await older.open()
        await newer.open()
        error = await older.until(is_a("error"))
        assert (error["code"], error["fatal"]) == ("replaced", True)
        assert older.socket is not None
        assert await close_code(older.socket) == 4001
        assert await newer.ask("me") == "You said: me"
        await newer.close()

    asyncio.run(scene())


def test_the_same_id_on_two_sockets_and_after_a_restart_is_one_message(tmp_path: Path) -> None:
    async def scene() -> None:
        with Gateway(tmp_path / "state") as gateway:
            phone = Device(gateway, "phone")
            await phone.open()
            await phone.ask("only once", id="same")
            for _ in range(2):
                gateway.kill()
                gateway.launch()
                await phone.open()
                await phone.text("only once", id="same")
                await phone.text("another text", id="same")
                error = await phone.until(is_a("error"))
                assert (error["code"], error["id"]) == ("bad_frame", "same")
            # Whatever was replayed, it is one bubble.
            await phone.ask("the end", "the end")
            answers = [id for id, text in phone.screen.texts.items() if text == "You said: only once"]
            assert len(answers) == 1
            await phone.close()

    asyncio.run(scene())


@pytest.mark.parametrize("lone", ['"hi \\ud83d there"', '"hi \\ude00 there"', '"hi \\ud83d\\ud83d\\ude00 there"'])
def test_a_lone_surrogate_is_mended(gateway: Gateway, lone: str) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            assert phone.socket is not None
            await phone.socket.send('{"t":"text","id":"s","text":' + lone + "}")
            text = (await phone.until(final_message("You said: ")))["text"]
            assert text.startswith("You said: hi \ufffd")
            assert text.endswith(" there")

    asyncio.run(scene())


RUBBISH = [
    "[]", '"x"', "3", "null", "{}", '{"t":3}', '{"t":"text","text":null}', '{"t":"text","id":7,"text":"a"}',
    "not json", "[" * 10_000 + "]" * 10_000, '{"t":"text","id":"","text":"a"}',
    '{"t":"text","id":"' + "i" * 129 + '","text":"a"}',
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(RUBBISH)))
def test_rubbish_costs_its_own_frame_only(gateway: Gateway, number: int) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            assert phone.socket is not None
            await phone.socket.send(RUBBISH[number])
            error = await phone.until(is_a("error"))
            assert (error["code"], error["fatal"]) == ("bad_frame", False)
            assert await phone.ask("still here?") == "You said: still here?"

    asyncio.run(scene())


def test_twenty_bad_frames_in_a_row_end_the_connection(gateway: Gateway) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            assert phone.socket is not None
            for _ in range(19):
                await phone.socket.send("rubbish")
            # A good one in between starts the count again.
            assert await phone.ask("good") == "You said: good"
            for _ in range(20):
                await phone.socket.send("rubbish")
            error = await phone.until(is_a("error", fatal=True))
            assert error["code"] == "bad_frame"
            assert await close_code(phone.socket) == 1003

    asyncio.run(scene())


def test_a_message_over_the_transport_limit(gateway: Gateway) -> None:
    async def scene() -> None:
        large = Device(gateway, "large")
        await large.open()
        assert large.socket is not None
        sending = asyncio.create_task(large.socket.send('{"t":"text","text":"' + "x" * (16 * MIB) + '"}'))
        error = await large.until(is_a("error"))
        assert (error["code"], error["fatal"]) == ("too_big", True)
        assert await close_code(large.socket) == 1009
        # The server reads no more of it: the sending may end either way.
        await asyncio.gather(sending, return_exceptions=True)
        await large.open()
        assert await large.ask("back") == "You said: back"
        await large.close()

    asyncio.run(scene())


@pytest.mark.parametrize("name", ["../../../x", "x" * 129, "", "*", "😀", "a b", "a\u200db", 7, None])
def test_field_a_device_id_that_is_none_is_refused_in_words(gateway: Gateway, name: object) -> None:
    async def scene() -> None:
        async with connect(gateway.url) as socket:
            await socket.send(
                json.dumps({"t": "hello", "token": "test-token-0123456789abcdef", "device": {"id": name}})
            )
            error: Frame = json.loads(await asyncio.wait_for(socket.recv(), PATIENCE))
            assert (error["t"], error["code"], error["fatal"]) == ("error", "bad_frame", True)
            assert "device.id" in error["detail"]
            assert await close_code(socket) == 1008

    asyncio.run(scene())


@pytest.mark.parametrize("name", ["телефон", "a:b", "user@host", "شخص", "a+b~c", "x" * 128])
def test_field_a_device_id_of_any_script(gateway: Gateway, name: str) -> None:
    async def scene() -> None:
        async with opened(gateway, name) as phone:
            assert phone.ready["session"] == f"mobile:{name}"
            assert await phone.ask("hi") == "You said: hi"

    asyncio.run(scene())


def test_nothing_sticks_when_the_agent_fails_or_dies(gateway: Gateway) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            for command in ("/fail", "/die"):
                await phone.text(command)
                frames = await phone.frames_until(is_a("avatar", state="idle"))
                typing = [frame for frame in frames if frame["t"] == "typing"]
                assert typing[-1].get("stop"), command
                # A bubble that was open gets its last text from the gateway, as soon as that is stored.
                while not set(phone.screen.texts) <= phone.screen.complete:
                    await phone.until(is_a("message", final=True))
            assert await phone.ask("alive?") == "You said: alive?"

    asyncio.run(scene())


def test_an_edit_that_fails_leaves_the_tail_as_an_ordinary_message(gateway: Gateway) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            await phone.text("/editfail")
            frames = await phone.frames_until(is_a("avatar", state="idle"))
            finals = [frame for frame in frames if frame["t"] == "message" and frame["final"]]
            assert len(finals) == 2
            assert finals[0]["id"] != finals[1]["id"]
            assert finals[0].get("edit")
            assert not finals[1].get("edit")

    asyncio.run(scene())


def test_a_file_from_outside_the_allowed_folder_is_refused_in_words(gateway: Gateway) -> None:
    async def scene() -> None:
        for lang, word in (("ru", "запрещено"), ("en", "refused")):
            async with opened(gateway, f"phone-{lang}", lang=lang) as phone:
                await phone.text("/stealfile")
                await phone.until(final_message(word))
                assert not phone.screen.files

    asyncio.run(scene())


def test_ten_pictures_come_once_each_in_order(gateway: Gateway) -> None:
    async def scene() -> None:
        async with opened(gateway, "phone") as phone:
            await phone.text("/pictures 10")
            frames = await phone.frames_until(is_a("avatar", state="idle"))
            ids = [frame["id"] for frame in frames if frame["t"] == "media"]
            assert len(ids) == len(set(ids)) == 10
            numbers = [frame["seq"] for frame in frames if frame["t"] == "media"]
            assert strictly_rising(numbers)

    asyncio.run(scene())


def test_what_is_stored_lies_under_the_state_directory_for_its_owner_only(tmp_path: Path) -> None:
    state = tmp_path / "state"
    data = os.urandom(1000)

    async def scene() -> None:
        with Gateway(state) as gateway:
            async with opened(gateway, "phone") as phone:
                await phone.send(
                    t="media", id="f", kind="document", mime="text/plain", filename="../../etc/passwd",
                    data=next(iter(parts_of(data, 1000)))[2], part=0, parts=1,
                )  # fmt: skip
                answer = await phone.until(final_message("Got document"))
                assert "passwd" in answer["text"]
                assert ".." not in answer["text"]

    asyncio.run(scene())
    stored = [file for file in state.rglob("*") if file.is_file()]
    assert len([file for file in stored if file.read_bytes() == data]) == 1
    assert {file.name: oct(file.stat().st_mode & 0o077) for file in stored} == {file.name: "0o0" for file in stored}
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_stop_tells_clients_to_come_back(gateway: Gateway) -> None:
    async def scene() -> None:
        phone = Device(gateway, "phone")
        await phone.open()
        assert phone.socket is not None
        stopping = asyncio.to_thread(gateway.terminate)
        code, exit_code = await asyncio.gather(close_code(phone.socket), stopping)
        assert code == 1012
        assert exit_code == 0

    asyncio.run(scene())
