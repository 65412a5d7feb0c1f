"""Sentence embeddings behind FastAPI: `python embeddings_fastapi.py FOLDER PORT`, with sentence-transformers."""

import base64
import sys

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

torch.set_num_threads(2)
model = SentenceTransformer(sys.argv[1], device="cpu")
app = FastAPI()


class Body(BaseModel):
    model: str
    input: list[str]
    encoding_format: str


@app.post("/v1/embeddings")
def embeddings(body: Body) -> dict:
    vectors = model.encode(body.input)
    return {"data": [{"embedding": base64.b64encode(vector.tobytes()).decode()} for vector in vectors]}


uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
