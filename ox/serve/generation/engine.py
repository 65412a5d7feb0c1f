"""The generation engine: takes requests, gives the tokens of their texts as they come."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ox.devices.runtime import onnxruntime
from ox.errors import LoadError, OxError, ServeError
from ox.generation.sampler import Sampler, log_probabilities
from ox.generation.stopping import Stopping
from ox.serve.generation.handle import GenerationHandle
from ox.serve.generation.request import FinishReason, GenerationRequest, TokenEvent, Usage
from ox.serve.generation.tokenizer import FILE, Tokenizer

OnEvent = Callable[[TokenEvent], None]
OnError = Callable[[OxError], None]
DECODER = "ox.decoder"  # the metadata of a file: context length and number of tokens
UNLIMITED = 1 << 31  # of a file that does not tell its context length


class GenerationEngine:
    """Runs the requests of one decoder. Its thread calls what the requests brought.

    Args:
        folder: of `ox.export.save_decoder`, or one in the layout of Optimum's.
        threads: of ONNX Runtime; 0 for its own choice.

    Attributes:
        tokenizer: None where the folder has none.
        context_length: the most tokens of a prompt and its text.
        vocab_size: of the model.
        defaults: generation_config.json.

    Raises:
        LoadError: the folder holds no decoder, or files that contradict each other.
    """

    def __init__(self, folder: Path, threads: int = 0, max_queue: int = 1024) -> None:
        ort = onnxruntime()
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = ort.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        about = json.loads(self._session.get_modelmeta().custom_metadata_map.get(DECODER, "{}"))
        self.context_length: int = about.get("context_length", UNLIMITED)
        shape = next(info.shape for info in self._session.get_outputs() if info.name == "logits")
        self.vocab_size: int = about.get("vocab_size") or shape[-1]
        self._empty = {
            info.name: np.zeros((1, info.shape[1], 0, info.shape[3]), np.float32)
            for info in self._session.get_inputs()
            if info.name.startswith("past_key_values.")
        }
        path = folder / FILE
        self.tokenizer = Tokenizer(path) if path.exists() else None
        if self.tokenizer is not None and self.tokenizer.largest_id >= self.vocab_size:
            raise LoadError(
                f"{path} is the tokenizer of another model",
                expected=f"ids of tokens up to {self.vocab_size - 1}",
                got=f"{self.tokenizer.largest_id}",
            )
        config = folder / "generation_config.json"
        self.defaults: dict[str, Any] = json.loads(config.read_text("utf-8")) if config.exists() else {}
        eos = self.defaults.get("eos_token_id")
        self.eos_token_ids: tuple[int, ...] = () if eos is None else (eos,) if isinstance(eos, int) else tuple(eos)
        self._max_queue = max_queue
        self._news = threading.Condition()
        self._waiting: deque[tuple[GenerationRequest, OnEvent, OnError, GenerationHandle]] = deque()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ox-generation", daemon=True)
        self._thread.start()

    def submit(self, request: GenerationRequest, on_event: OnEvent, on_error: OnError) -> GenerationHandle:
        """Has a text made. `on_event` gets its tokens, the last with a finish_reason, or `on_error` why it ended.

        Raises:
            ServeError: tokens that the model does not have, a prompt that fills the context (400), too many requests
                wait, or the engine is closed (503).
        """
        prompt = np.asarray(request.prompt)
        if prompt.min() < 0 or prompt.max() >= self.vocab_size:
            bad = next(int(token) for token in prompt if not 0 <= token < self.vocab_size)
            raise ServeError("the prompt has a token that the model does not have",
                             expected=f"0 to {self.vocab_size - 1}", got=str(bad))  # fmt: skip
        if len(prompt) >= self.context_length:
            raise ServeError("the prompt is longer than the model's context",
                             expected=f"at most {self.context_length - 1} tokens", got=str(len(prompt)))  # fmt: skip
        handle = GenerationHandle(self._wake)
        with self._news:
            if self._closed:
                raise ServeError("the model has just been unloaded", status=503, hint="again in a moment")
            if len(self._waiting) >= self._max_queue:
                raise ServeError("the server is busy", status=503, expected=f"at most {self._max_queue} requests wait",
                                 got=f"{len(self._waiting)}", hint="again in a moment")  # fmt: skip
            self._waiting.append((request, on_event, on_error, handle))
            self._news.notify()
        return handle

    def stats(self) -> dict[str, Any]:
        """What the engine does now, and what it has done."""
        return {"waiting": len(self._waiting)}

    def close(self) -> None:
        """Ends what runs, with an error for each request, and frees the memory."""
        with self._news:
            self._closed = True
            self._news.notify()
        self._thread.join()

    def _wake(self) -> None:
        with self._news:
            self._news.notify()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    break
                job = self._waiting.popleft()
            self._text(*job)
        for _, _, on_error, _ in self._waiting:
            on_error(ServeError("the model has just been unloaded", status=503, hint="again in a moment"))

    def _text(self, request: GenerationRequest, on_event: OnEvent, on_error: OnError, handle: GenerationHandle) -> None:
        ends = (*request.stop_token_ids, *(() if request.ignore_eos else self.eos_token_ids))
        watcher = Stopping.read(ends, request.stop, self.tokenizer).watch()
        sampler = Sampler(request.sampling, request.prompt, request.index)
        most = self.context_length - len(request.prompt)
        most = min(most, request.max_tokens or most)
        past, ids = self._empty, np.asarray([request.prompt], np.int64)
        for count in range(1, most + 1):
            with self._news:
                self._news.wait_for(lambda: handle.cancelled or self._closed or not handle.paused)
            if self._closed:
                on_error(ServeError("the model has just been unloaded", status=503, hint="again in a moment"))
                return
            if handle.cancelled:
                usage = Usage(len(request.prompt), 0, count - 1)
                on_event(TokenEvent(None, finish_reason="cancelled", usage=usage))
                return
            if request.deadline is not None and time.monotonic() > request.deadline:
                on_error(ServeError("the text was not complete in time", status=504))
                return
            scores, past = self._step(ids, past)
            token = sampler(scores)
            text, stopped = watcher.add(token)
            reason: FinishReason | None = "stop" if stopped else "length" if count == most else None
            event = TokenEvent(token, text or "", finish_reason=reason)
            if reason == "length":
                event.text += watcher.rest()
            if request.logprobs is not None:
                chances = log_probabilities(scores)
                event.logprob = float(chances[token])
                best = np.argsort(-chances, kind="stable")[: request.logprobs]
                event.top_logprobs = [(int(each), float(chances[each])) for each in best]
            if reason is not None:
                event.usage = Usage(len(request.prompt), 0, count)
            on_event(event)
            if reason is not None:
                return
            ids = np.asarray([[token]], np.int64)

    def _step(self, ids: Any, past: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        before = next(iter(past.values())).shape[2]
        length = before + ids.shape[1]
        feed = {"input_ids": ids, "attention_mask": np.ones((1, length), np.int64), **past}
        feed["position_ids"] = np.arange(before, length)[None]
        names = ["logits", *(name.replace("past_key_values", "present") for name in past)]
        logits, *presents = self._session.run(names, feed)
        return logits[0, -1], dict(zip(past, presents, strict=True))
