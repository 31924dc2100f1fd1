"""The acceptance checklist, point by point, typed into `wscat`, in Russian and English."""

from __future__ import annotations

import base64
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from harness import PNG, TOKEN, Frame, Gateway, Wscat, encode, final_message, is_a, sha256

CAPABILITIES = {
    "text": True,
    "voice": True,
    "typing": True,
    "avatar_states": ["idle", "thinking", "speaking"],
    "media_in": ["image", "video", "document", "audio"],
    "media_out": ["image", "voice", "video", "document", "animation"],
    "prompts": ["exec_approval", "slash_confirm", "clarify"],
    "edit": True,
    "max_media_bytes": 8388608,
    "max_text_chars": 12000,
}

# What is typed, and what a person is told, in each language.
WORDS: dict[str, dict[str, str]] = {
    "ru": {
        "greeting": "Привет, ответь одним словом",
        "remember": "запомни число 42",
        "caption": "точка",
        "empty": "Пустое сообщение",
        "denied": "Нет доступа",
    },
    "en": {
        "greeting": "Hello, answer in one word",
        "remember": "remember the number 42",
        "caption": "dot",
        "empty": "Empty message",
        "denied": "No access",
    },
}

both = pytest.mark.parametrize("lang", ["ru", "en"])


def session(gateway: Gateway, lang: str, name: str = "qa-1") -> Wscat:
    client = Wscat(gateway.url)
    ready = client.hello(name, user={"id": "u-qa", "name": "QA"}, lang=lang)
    assert ready["t"] == "ready", ready
    return client


def say(client: Wscat, text: str, **fields: Any) -> list[Frame]:
    """Types a text and returns the frames up to the end of the turn."""
    client.enter({"t": "text", "text": text, **fields})
    return client.frames_until(is_a("avatar", state="idle"))


def reply(frames: list[Frame]) -> str:
    return "".join(frame["text"] for frame in frames if frame["t"] == "message" and not frame.get("edit"))


def count(client: Wscat) -> int:
    found = re.search(r"\d+", reply(say(client, "/count")))
    assert found
    return int(found.group())


@both
def test_point_1_ready_with_capabilities(gateway: Gateway, lang: str) -> None:
    with Wscat(gateway.url) as client:
        ready = client.hello("qa-1", user={"id": "u-qa", "name": "QA"}, lang=lang)
    assert ready["t"] == "ready"
    assert ready["v"] == 1
    assert ready["session"] == "mobile:qa-1"
    assert ready["device"] == {"id": "qa-1", "name": "QA"}
    assert ready["avatar_url"] == ""
    assert ready["capabilities"] == CAPABILITIES
    # Nothing is offered that is not there.
    assert not ready.get("features")


@both
def test_point_1_the_first_frame_must_be_hello(gateway: Gateway, lang: str) -> None:
    with Wscat(gateway.url) as client:
        client.enter({"t": "text", "id": "q-1", "text": WORDS[lang]["greeting"]})
        error = client.expect(is_a("error"))
        assert (error["code"], error["fatal"]) == ("auth_required", True)
        assert client.close_code() == 1008


@both
def test_point_2_text_and_reply(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as client:
        frames = say(client, WORDS[lang]["greeting"], id="q-1")
        assert reply(frames) == f"You said: {WORDS[lang]['greeting']}"
        # A long reply is a series with one id and a growing index.
        chunks = [frame for frame in say(client, "/long 7000", id="q-2") if frame["t"] == "message"]
        assert len({chunk["id"] for chunk in chunks}) == 1
        assert [chunk["chunk"] for chunk in chunks] == [{"index": i, "total": len(chunks)} for i in range(len(chunks))]
        assert [chunk["final"] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert len(chunks) >= 4
        assert len(reply(chunks)) == 7000


@both
def test_point_3_the_same_id_is_one_message(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as client:
        before = count(client)
        for _ in range(3):
            client.enter({"t": "text", "id": "dup-1", "text": WORDS[lang]["remember"]})
        client.expect(final_message("You said: "))
        client.expect(is_a("avatar", state="idle"))
        # The one text, and the question itself.
        assert count(client) == before + 2
        # Another id with the same words is another message.
        say(client, WORDS[lang]["remember"], id="dup-2")
        assert count(client) == before + 4


@both
def test_point_4_approval_card(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as client:
        client.enter({"t": "text", "id": "a-1", "text": "/approve rm -rf /tmp/build"})
        card = client.expect(is_a("prompt"))
        assert card["kind"] == "exec_approval"
        assert card["command"] == "rm -rf /tmp/build"
        assert card["session"] == "mobile:qa-1"
        assert [option["id"] for option in card["options"]] == ["once", "session", "always", "deny"]
        assert {option["style"] for option in card["options"]} <= {"primary", "secondary", "danger"}
        assert card["timeout_seconds"] > 0
        client.enter({"t": "prompt", "prompt_id": card["id"], "option_id": "once"})
        done = client.expect(is_a("prompt_done"))
        assert (done["id"], done["option_id"]) == (card["id"], "once")
        client.expect(final_message("approved: once"))


@both
def test_point_4_an_option_that_was_not_offered_is_the_refusal(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as client:
        client.enter({"t": "text", "id": "a-1", "text": "/approve rm -rf /tmp/build"})
        card = client.expect(is_a("prompt"))
        client.enter({"t": "prompt", "prompt_id": card["id"], "option_id": "allow_all"})
        done = client.expect(is_a("prompt_done"))
        assert (done["id"], done["option_id"]) == (card["id"], "deny")
        client.expect(final_message("denied"))


@both
def test_point_5_media_up(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as client:
        client.enter(
            {"t": "media", "id": "mq-1", "kind": "image", "mime": "image/png", "filename": "dot.png",
             "caption": WORDS[lang]["caption"], "data": encode(PNG), "part": 0, "parts": 1}
        )  # fmt: skip
        client.expect(final_message(f"Got image dot.png image/png {len(PNG)} bytes sha256 {sha256(PNG)}"))


@pytest.mark.parametrize(
    ("command", "kind", "magic"),
    [
        ("/image", "image", b"\x89PNG\r\n\x1a\n"),
        ("/voice", "voice", b"OggS"),
        ("/video", "video", b"ftyp"),
        ("/document", "document", b"%PDF-"),
        ("/animation", "animation", b"GIF8"),
    ],
)
@both
def test_point_5_media_down(gateway: Gateway, lang: str, command: str, kind: str, magic: bytes) -> None:
    with session(gateway, lang) as client:
        client.enter({"t": "text", "id": "m-1", "text": command})
        media = client.expect(is_a("media"))
        data = base64.b64decode(media["data"], validate=True)
        assert (media["kind"], media["part"], media["parts"], media["final"]) == (kind, 0, 1, True)
        assert media["size"] == len(data)
        assert media["caption"]
        assert media["filename"]
        assert magic in data[:12]


@both
def test_point_6_streaming_edits_one_bubble(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as client:
        frames = [frame for frame in say(client, "/stream 60") if frame["t"] == "message"]
        assert len(frames) > 2
        assert len({frame["id"] for frame in frames}) == 1
        assert all(frame["edit"] and frame["chunk"] == {"index": 0, "total": 1} for frame in frames)
        assert [frame["final"] for frame in frames] == [False] * (len(frames) - 1) + [True]
        assert frames[-1]["text"].split() == [f"word{n}" for n in range(1, 61)]
        # Each state goes on from the one before.
        assert all(b["text"].startswith(a["text"]) for a, b in itertools.pairwise(frames))


@both
def test_point_7_avatar_states(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as client:
        frames = say(client, "say hi", id="a2")
        steps = [frame.get("state", frame["t"]) for frame in frames if frame["t"] in {"avatar", "message"}]
        assert steps == ["thinking", "message", "speaking", "idle"]


@both
def test_point_8_typing_stop(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as client:
        frames = say(client, "say hi", id="a2")
        typing = [frame.get("stop", False) for frame in frames if frame["t"] == "typing"]
        assert typing[0] is False
        assert typing[-1] is True
        stop = next(i for i, frame in enumerate(frames) if frame["t"] == "typing" and frame.get("stop"))
        final = next(i for i, frame in enumerate(frames) if frame["t"] == "message" and frame["final"])
        idle = next(i for i, frame in enumerate(frames) if frame == {"t": "avatar", "state": "idle"})
        assert final < stop < idle


@both
def test_point_9_a_bad_token_is_1008(gateway: Gateway, lang: str) -> None:
    with Wscat(gateway.url) as client:
        error = client.hello("qa-bad", token="bad-token", lang=lang)
        assert (error["t"], error["code"], error["fatal"]) == ("error", "auth_failed", True)
        assert error["message"] == WORDS[lang]["denied"]
        assert client.close_code() == 1008


@both
def test_point_10_an_unknown_frame_is_ignored(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as client:
        client.enter({"t": "some-new-frame", "field": 1})
        frames = say(client, "does it work?", id="q-9")
        assert reply(frames) == "You said: does it work?"
        assert not [frame for frame in frames if frame["t"] == "error"]


# The additional table.


@both
def test_ping(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as client:
        client.enter({"t": "ping", "ts": 42})
        assert client.expect(is_a("pong")) == {"t": "pong", "ts": 42}


REFUSED: dict[str, tuple[Frame, str]] = {
    "empty": ({"t": "text", "id": "z", "text": " "}, "bad_frame"),
    "long": ({"t": "text", "id": "z", "text": "x" * 12001}, "too_big"),
    "mp3": ({"t": "audio", "id": "z", "format": "mp3", "data": encode(b"ID3 and more")}, "unsupported_frame"),
    "sticker": (
        {"t": "media", "id": "z", "kind": "sticker", "mime": "image/webp", "filename": "s.webp", "data": encode(PNG),
         "part": 0, "parts": 1},
        "unsupported_frame",
    ),
    "parts": (
        {"t": "media", "id": "z", "kind": "image", "mime": "image/png", "filename": "s.png", "data": encode(PNG),
         "part": 0, "parts": 2049},
        "bad_frame",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@both
def test_refused_and_the_socket_lives(gateway: Gateway, lang: str, name: str) -> None:
    frame, code = REFUSED[name]
    with session(gateway, lang) as client:
        client.enter(frame)
        error = client.expect(is_a("error"))
        assert (error["code"], error["fatal"], error["id"]) == (code, False, "z")
        assert error["detail"]
        if name == "empty":
            assert error["message"] == WORDS[lang]["empty"]
        assert reply(say(client, "still here?")) == "You said: still here?"


@both
def test_too_many_open_series(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as client:
        for number in range(9):
            client.enter(
                {"t": "media", "id": f"open-{number}", "kind": "document", "mime": "text/plain", "filename": "a.txt",
                 "data": encode(b"part"), "part": 0, "parts": 2}
            )  # fmt: skip
        error = client.expect(is_a("error"))
        assert (error["code"], error["fatal"], error["id"]) == ("too_big", False, "open-8")


@both
def test_an_unknown_prompt_id_is_expired_not_an_error(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as client:
        client.enter({"t": "prompt", "prompt_id": "no-such", "option_id": "once"})
        answer = client.expect(lambda frame: frame["t"] in {"prompt_done", "error"})
        assert (answer["t"], answer["id"], answer["expired"]) == ("prompt_done", "no-such", True)


@both
def test_a_card_of_another_device_is_forbidden(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as owner, session(gateway, lang, "qa-2") as other:
        owner.enter({"t": "text", "text": "/approve ls"})
        card = owner.expect(is_a("prompt"))
        other.enter({"t": "prompt", "prompt_id": card["id"], "option_id": "once"})
        error = other.expect(is_a("error"))
        assert (error["code"], error["fatal"]) == ("forbidden", False)
        # The card stays, and still works.
        owner.enter({"t": "prompt", "prompt_id": card["id"], "option_id": "deny"})
        assert owner.expect(is_a("prompt_done"))["option_id"] == "deny"


@both
def test_a_device_id_bound_to_another_token(tmp_path: Path, lang: str) -> None:
    with Gateway(tmp_path / "state", MOBILE_EXTRA_TOKENS="qa-1=bound-token-of-qa-1") as gateway:
        with Wscat(gateway.url) as client:
            error = client.hello("qa-1", token=TOKEN, lang=lang)
            assert (error["t"], error["code"], error["fatal"]) == ("error", "forbidden", True)
            assert client.close_code() == 1008
        with Wscat(gateway.url) as client:
            assert client.hello("qa-1", token="bound-token-of-qa-1", lang=lang)["t"] == "ready"


@both
def test_deliver_from_an_ordinary_connection_is_forbidden(gateway: Gateway, lang: str) -> None:
    # A reverse proxy on the same host says for whom it asks: then the peer is not loopback.
    with Wscat(gateway.url, "X-Forwarded-For: 203.0.113.7") as client:
        assert client.hello("qa-2", lang=lang)["t"] == "ready"
        client.enter({"t": "deliver", "id": "x", "target": "qa-1", "text": "hi"})
        error = client.expect(is_a("error"))
        assert (error["code"], error["fatal"], error["id"]) == ("forbidden", False, "x")


@both
def test_deliver_to_a_device_that_is_away(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang, "cron") as client:
        client.enter({"t": "deliver", "id": "x", "target": "nobody-here", "text": "hi"})
        error = client.expect(is_a("error"))
        assert (error["code"], error["fatal"], error["id"]) == ("device_offline", False, "x")


@both
def test_deliver_to_a_device_that_is_there(gateway: Gateway, lang: str) -> None:
    with session(gateway, lang) as device, session(gateway, lang, "cron") as cron:
        cron.enter({"t": "deliver", "id": "x", "target": "qa-1", "text": WORDS[lang]["greeting"]})
        assert device.expect(final_message())["text"] == WORDS[lang]["greeting"]
        done = cron.expect(lambda frame: frame["t"] in {"deliver_done", "error"})
        assert (done["t"], done["id"], done["target"], done["state"]) == ("deliver_done", "x", "qa-1", "delivered")
