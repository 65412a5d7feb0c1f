"""lm-evaluation-harness: tiny tasks, with the tokenizer of the server."""

from __future__ import annotations

from typing import Any

import lm_eval
from calls import ANSWER, QUESTION, main, works
from datasets import Dataset
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager


class Tiny(ConfigurableTask):
    """Questions that stand in this program; the harness would load others."""

    def __init__(self, rows: list[dict[str, Any]], **config: Any) -> None:
        self._rows = rows
        super().__init__(config={"task": "tiny", "test_split": "test", "metadata": {"version": 1}, **config})

    def download(self, *_: object, **__: object) -> None:
        self.dataset = {"test": Dataset.from_list(self._rows)}


def evaluate(model: str, url: str, task: Tiny, **arguments: Any) -> dict[str, Any]:
    """The metrics of a task."""
    done = lm_eval.simple_evaluate(
        model, model_args={"base_url": url, "model": "scripted", "max_retries": 1, **arguments}, tasks=[task],
        task_manager=TaskManager(include_defaults=False), bootstrap_iters=0, apply_chat_template="chat" in model,
    )  # fmt: skip
    return done["results"]["tiny"]


@works("`local-completions`, log-probabilities of choices (`echo` with `logprobs`)")
def choices(url: str) -> None:
    rows = [
        {"text": "<|plain|>", "choices": ["Hello", "person"], "answer": 0},
        {"text": "<|plain|>Hello", "choices": [" here", " there"], "answer": 1},
    ]
    task = Tiny(rows, output_type="multiple_choice", doc_to_text="{{text}}", doc_to_choice="{{choices}}",
                doc_to_target="answer", target_delimiter="", metric_list=[{"metric": "acc"}])  # fmt: skip
    assert evaluate("local-completions", f"{url}/v1/completions", task)["acc,none"] == 1


@works("`local-completions`, texts")
def texts(url: str) -> None:
    task = Tiny([{"text": "<|plain|>", "answer": ANSWER}], output_type="generate_until", doc_to_text="{{text}}",
                doc_to_target="{{answer}}", generation_kwargs={"until": ["\n"], "max_gen_toks": 20},
                metric_list=[{"metric": "exact_match"}])  # fmt: skip
    assert evaluate("local-completions", f"{url}/v1/completions", task)["exact_match,none"] == 1


@works("`local-chat-completions`")
def chats(url: str) -> None:
    task = Tiny([{"text": QUESTION, "answer": ANSWER}], output_type="generate_until", doc_to_text="{{text}}",
                doc_to_target="{{answer}}", generation_kwargs={"until": ["\n"], "max_gen_toks": 20},
                metric_list=[{"metric": "exact_match"}])  # fmt: skip
    assert evaluate("local-chat-completions", f"{url}/v1/chat/completions", task)["exact_match,none"] == 1


if __name__ == "__main__":
    main(globals())
