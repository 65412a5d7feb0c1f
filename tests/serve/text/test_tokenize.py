"""/tokenize and /detokenize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    assert status == 400 and "Missing required parameter: 'model'" in answer["error"]
    for path, name in (("/tokenize", "prompt"), ("/detokenize", "tokens")):
        status, answer = post(path, model="sentences")
        assert status == 400 and f"Missing required parameter: '{name}'" in answer["error"]
    assert post("/tokenize", model="sentences", prompt=["a"])[0] == 400
    assert post("/tokenize", model="nothing", prompt="a")[0] == 404
