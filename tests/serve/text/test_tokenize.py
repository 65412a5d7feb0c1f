"""/tokenize and /detokenize."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_decoder import write_scripted_decoder

from ox.serve import ModelConfig, Server

Post = Callable[..., tuple[int, Any]]


def test_there_and_back(post: Post, pieces: Any) -> None:
    status, answer = post("/tokenize", model="sentences", prompt="And God said", return_token_strs=True)
    encoded = pieces.encode("And God said")
    assert status == 200
    assert answer == {
        "count": len(encoded.ids), "max_model_len": 24, "tokens": encoded.ids, "token_strs": encoded.tokens
    }  # fmt: skip
    bare = post("/tokenize", model="sentences", prompt="And God said", add_special_tokens=False)[1]
    assert bare["tokens"] == encoded.ids[1:-1]
    assert post("/detokenize", model="sentences", tokens=bare["tokens"]) == (200, {"prompt": "and god said"})


def test_a_text_that_takes_long(post: Post, pieces: Any) -> None:
    text = "And God said " * 1000
    status, answer = post("/tokenize", model="sentences", prompt=text)
    assert (status, answer["tokens"]) == (200, pieces.encode(text).ids)


def test_wrong_requests(post: Post) -> None:
    status, answer = post("/detokenize", model="sentences", tokens=[1, 3000])
    assert status == 400 and "0 to 2999" in answer["error"]
    status, answer = post("/tokenize", prompt="a")
    assert status == 400 and "there are 4 models for tokens" in answer["error"]
    status, answer = post("/tokenize", model="sentences", messages=[{"role": "user", "content": "a"}])
    assert status == 400 and "'sentences' has no chat template" in answer["error"]
    for path, name in (("/tokenize", "prompt"), ("/detokenize", "tokens")):
        status, answer = post(path, model="sentences")
        assert status == 400 and f"Missing required parameter: '{name}'" in answer["error"]
    assert post("/tokenize", model="sentences", prompt=["a"])[0] == 400
    assert post("/tokenize", model="nothing", prompt="a")[0] == 404


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def decoder(shared_folder: Callable[..., Path], connect: Any) -> Iterator[Post]:
    """Asks a server with one decoder, whose template is known; requests need not name it."""

    def write(folder: Path) -> None:
        write_scripted_decoder(folder / "talker", {"joke": ["a", "b"]})

    with Server([shared_folder("talker", write) / "talker"], options=ModelConfig("cpu", threads=1)) as running:

        def send(path: str, **fields: Any) -> tuple[int, Any]:
            with connect(running) as client:
                method, body = ("POST", json.dumps(fields).encode()) if fields else ("GET", b"")
                status, _, answer = client.ask(method, path, body)
                return status, json.loads(answer)

        yield send


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_a_conversation(decoder: Post) -> None:
    def text(**fields: Any) -> str:
        status, answer = decoder("/tokenize", **fields)
        assert status == 200 and answer["count"] == len(answer["tokens"]) and answer["max_model_len"] == 8192
        return str(decoder("/detokenize", tokens=answer["tokens"])[1]["prompt"])

    begun = "<|im_start|>user\nTell a joke<|im_end|>\n"
    assert text(messages=[user("Tell a joke")]) == begun + "<|im_start|>assistant\n<|joke|>"
    assert text(model="talker", messages=[user("Tell a joke")], add_generation_prompt=False) == begun
    part = [user("Tell a joke"), {"role": "assistant", "content": "One"}]
    assert text(messages=part, continue_final_message=True) == begun + "<|im_start|>assistant\nOne"
    assert '"name": "f"' in text(messages=[user("a")], tools=[TOOL])


def test_tokens_of_a_conversation_are_those_of_its_answer(decoder: Post) -> None:
    asked = {"messages": [user("Tell a joke")], "tools": [TOOL]}
    answer = decoder("/v1/chat/completions", model="talker", max_tokens=1, **asked)[1]
    assert decoder("/tokenize", **asked)[1]["count"] == answer["usage"]["prompt_tokens"]


def test_facts_of_the_tokenizer(decoder: Post) -> None:
    status, answer = decoder("/tokenizer_info")
    assert (status, answer["eos_token"], answer["bos_token"]) == (200, "<|eos|>", None)
    assert "<|im_start|>" in answer["chat_template"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"messages": []}, "'messages'"), ({"messages": [{"role": "king", "content": "a"}]}, "role"),
     ({"messages": [user("a")], "tools": [{}]}, "tools[0]"),
     ({"messages": [user("a")], "add_generation_prompt": 1}, "true or false"),
     ({"messages": [user("a")], "add_generation_prompt": True, "continue_final_message": True}, "both"),
     ({"messages": [user("a")], "chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs"),
     ({"messages": [user("a")], "chat_template": "a"}, "'chat_template' is not supported"),
     ({"messages": [user("a")], "prompt": "a"}, "both a prompt and messages")],
)  # fmt: skip
def test_wrong_conversations(decoder: Post, fields: dict[str, Any], words: str) -> None:
    status, answer = decoder("/tokenize", **fields)
    assert status == 400 and words in answer["error"]
