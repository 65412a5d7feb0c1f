"""Clients of a decoder over ModelStreamInfer that come, stop reading, cancel, send nonsense and return."""

from __future__ import annotations

import asyncio
import json
import random
from time import perf_counter
from typing import Any

import grpc
from text_cases import COMPLETIONS, TextCase, TextCases
from text_clients import PATIENCE_S, TextBook

from ox.serve.protocol.grpc.proto import message

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
DEEDS = {"grpc read": 5, "grpc whole": 2, "grpc leave": 3, "grpc pause": 2, "grpc bad": 2}
FINAL = "triton_final_response"


class TextGrpcClient:
    """One that behaves by chance; each has a connection of its own.

    Args:
        port: of the server.
        cases: what it may ask: those with one prompt and one text.
        book: gets what became of it.
    """

    def __init__(self, port: int, seed: int, cases: TextCases, book: TextBook) -> None:
        self._target, self._book, self._chance = f"127.0.0.1:{port}", book, random.Random(1000 + seed)
        self._model = cases.model
        self._cases = [
            case
            for case in cases.usual
            if case.path == COMPLETIONS and "n" not in case.body and not case.body.get("echo")
        ]
        self._request = message("inference.ModelInferRequest")
        self._response = message("inference.ModelStreamInferResponse")

    async def run(self) -> None:
        """Until the book's end, and what was asked by then has its outcome."""
        while perf_counter() < self._book.stop:
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.insecure_channel(self._target, options=options) as channel:
                for _ in range(self._chance.randint(1, 4)):
                    (deed,) = self._chance.choices(list(DEEDS), list(DEEDS.values()))
                    self._book.sent[deed] += 1
                    try:
                        outcome = await asyncio.wait_for(self._do(channel.stream_stream(METHOD), deed), PATIENCE_S)
                    except TimeoutError:
                        outcome = "WAITED FOR EVER"
                    except grpc.RpcError as error:
                        outcome = f"FAILED {error.code()} {error.details()}"
                    self._book.note(deed, outcome)
            await asyncio.sleep(self._chance.random() * 0.2)

    async def _do(self, method: Any, deed: str) -> str:
        rpc = method()
        if deed == "grpc bad":
            await rpc.write(self._message({"prompt": "a", "max_tokens": 2, "temperature": 9}, True))
            reply = self._response.FromString(await rpc.read())
            refused = "temperature" in reply.error_message and "Traceback" not in reply.error_message
            rpc.cancel()
            return "right" if refused else f"NOT REFUSED: {reply}"
        case = self._chance.choice(self._cases)
        streamed = deed != "grpc whole"
        await rpc.write(self._message(case.body, streamed))
        await rpc.done_writing()
        leaves = self._chance.randrange(8) if deed == "grpc leave" else -1  # after so many answers
        if leaves == 0:
            await asyncio.sleep(self._chance.random() * 0.3)
            rpc.cancel()
            return "right"
        return await self._read(rpc, deed, case, leaves)

    async def _read(self, rpc: Any, deed: str, case: TextCase, leaves: int) -> str:
        parts: list[str] = []
        final = False
        while (data := await rpc.read()) is not grpc.aio.EOF:
            reply = self._response.FromString(data)
            if reply.error_message:
                busy = "busy" in reply.error_message
                return "busy" if busy else f"AN ERROR: {reply.error_message}"
            if final:
                return "AN ANSWER AFTER THE LAST ONE"
            final = reply.infer_response.parameters[FINAL].bool_param
            parts += [raw[4:].decode() for raw in reply.infer_response.raw_output_contents]
            if len(parts) == leaves:
                rpc.cancel()
                return "right"
            if deed == "grpc pause" and len(parts) in (2, 20):
                await asyncio.sleep(self._chance.random())
        if not final:
            return "A STREAM WITHOUT ITS LAST ANSWER"
        ((_, reason),) = case.answer
        got = "".join(parts)
        return case.problem([(got, reason)]) or "right"

    def _message(self, body: dict[str, Any], streamed: bool) -> bytes:
        parameters = {name: value for name, value in body.items() if name not in ("model", "prompt")}
        request = self._request(model_name=self._model)
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        texts = {"text_input": body["prompt"], "sampling_parameters": json.dumps(parameters)}
        for name, text in texts.items():
            data = text.encode()
            request.inputs.add(name=name, datatype="BYTES", shape=[1])
            request.raw_input_contents.append(len(data).to_bytes(4, "little") + data)
        request.inputs.add(name="stream", datatype="BOOL", shape=[1])
        request.raw_input_contents.append(b"\1" if streamed else b"\0")
        return bytes(request.SerializeToString())
