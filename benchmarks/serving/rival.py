"""A rival: an engine behind FastAPI, as its users write it.

`python -m benchmarks.serving.rival MODEL --engine onnxruntime --port 9001`; /v1/embed computes each
request alone, /v1/embed-together what waits in padded batches.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoTokenizer

from benchmarks.serving.engines import ENGINES, NAMES, Engine

MAX_BATCH = 32


class Body(BaseModel):
    """Texts to embed."""

    texts: list[str]


class Embedder:
    """Mean-pooled vectors of padded batches."""

    def __init__(self, model: str, engine: Engine) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.engine = engine

    def embed(self, texts: list[str]) -> list[list[float]]:
        """Return one vector a text."""
        inputs = self.tokenizer(texts, padding=True, truncation=True, max_length=512, return_tensors="np")
        hidden = self.engine({name: inputs[name] for name in NAMES})
        mask = inputs["attention_mask"][..., None]
        means = (hidden * mask).sum(1) / mask.sum(1)
        vectors: list[list[float]] = means.tolist()
        return vectors


def make_app(embedder: Embedder) -> FastAPI:
    """Compute each request alone in FastAPI's thread pool, or whatever waits together.

    Together are at most MAX_BATCH texts, padded to the longest.
    """
    queue: asyncio.Queue[tuple[list[str], asyncio.Future[list[list[float]]]]] = asyncio.Queue()

    async def compute() -> None:
        while True:
            jobs = [await queue.get()]
            while not queue.empty() and len(jobs) < MAX_BATCH:
                jobs.append(queue.get_nowait())
            texts = [text for own, _ in jobs for text in own]
            vectors = await asyncio.to_thread(embedder.embed, texts)
            for own, done in jobs:
                done.set_result(vectors[: len(own)])
                vectors = vectors[len(own) :]

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(compute())
        yield
        task.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/embed")
    def alone(body: Body) -> dict[str, list[list[float]]]:
        return {"result": embedder.embed(body.texts)}

    @app.post("/v1/embed-together")
    async def together(body: Body) -> dict[str, list[list[float]]]:
        done: asyncio.Future[list[list[float]]] = asyncio.get_running_loop().create_future()
        await queue.put((body.texts, done))
        return {"result": await done}

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--engine", choices=ENGINES, default="transformers")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    embedder = Embedder(given.model, ENGINES[given.engine](given.model))
    uvicorn.run(make_app(embedder), port=given.port, log_level="error")
