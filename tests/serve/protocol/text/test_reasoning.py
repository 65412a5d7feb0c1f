"""Reasoning apart from answers, however their text is cut into pieces."""

from __future__ import annotations

from rows import rows

from ox.serve.protocol.text.message_parts import Message
from ox.serve.protocol.text.reasoning import MARKS, ReasoningParser, find_reasoning, opens_reasoning

THINK = MARKS[0]
TEXTS = [  # whether the prompt has begun the reasoning, the text, the reasoning, the answer
    (False, "<think>a < b</think>c", "a < b", "c"),
    (False, "\n<think>\nso\n\nit is \n</think>\n\n the answer ", "so\n\nit is", "the answer "),
    (False, "no <think>thought</think>", "", "no <think>thought</think>"),
    (False, " <thin", "", " <thin"),
    (False, "", "", ""),
    (False, "<think>\n</think>\n", "", ""),
    (False, "<think>cut </thi", "cut </thi", ""),
    (True, "so </think>it is", "so", "it is"),
    (True, "<think>so</think>it is</think>", "so", "it is</think>"),
    (True, "cut ", "cut", ""),
    (True, "</think>it is", "", "it is"),
    (True, "<", "<", ""),
]


@rows(("begun", "text", "reasoning", "answer"), TEXTS)
def test_texts(begun: bool, text: str, reasoning: str, answer: str) -> None:
    for cut in (1, 2, 5, len(text) or 1):
        parser, message = ReasoningParser(THINK, begun), Message()
        pieces = [text[place : place + cut] for place in range(0, len(text), cut)]
        found = [each for piece in pieces for each in parser.add(piece)] + parser.finish()
        for each in found:
            message.add(each)
        assert (message.reasoning, message.text) == (reasoning, answer)


def test_templates() -> None:
    assert find_reasoning("{% if '</think>' in content %}") is THINK
    assert find_reasoning("[THINK]") is MARKS[1]
    assert find_reasoning("{{ messages }}") is None
    assert opens_reasoning("<|assistant|><think>\n", THINK)
    assert not opens_reasoning("<|assistant|><think>\n\n</think>\n\n", THINK)
