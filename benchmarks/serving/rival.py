"""A rival: an engine behind FastAPI, as its users write it.

`python -m benchmarks.serving.rival MODEL --engine onnxruntime --port 9001`; /v1/embed
computes each request alone, /v1/embed-together computes waiting requests in padded
batches.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoTokenizer

from benchmarks.speed import rivals
from benchmarks.speed.exports import export_onnx, export_openvino
from benchmarks.texts import Texts
from litebert.cli.command import command_of

MAX_BATCH = 32
Engine = Literal["transformers", "onnxruntime", "openvino"]
Embed = Callable[[list[str]], list[list[float]]]


class Body(BaseModel):
    texts: list[str]


def embedder(model: Path, engine: str, precision: str) -> Embed:
    """Load a model in an engine, on one thread; return a function that gives the
    mean-pooled vector of each text.
    """
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(model)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "model").symlink_to(model.resolve())
        if engine == "onnxruntime":
            export_onnx(root / "model", root, is_quantised=False)
        elif engine == "openvino":
            export_openvino(root / "model", root, is_quantised=False)
        rival = rivals.load(f"{engine} {precision}", root)

    @torch.inference_mode()
    def embed(texts: list[str]) -> list[list[float]]:
        encoded = tokenizer(texts, truncation=True, max_length=512)
        batch = Texts(tuple(encoded["input_ids"]), tuple(encoded["token_type_ids"]))
        compute = rival.ready(batch)
        states = torch.from_numpy(rival.states(compute(), batch))  # (tokens, hidden)
        return [tokens.mean(0).tolist() for tokens in states.split(batch.lengths)]

    return embed


@dataclass(frozen=True)
class Job:
    """The texts of a request, and where their vectors will be."""

    texts: list[str]
    vectors: asyncio.Future[list[list[float]]]


async def compute_together(queue: asyncio.Queue[Job], embed: Embed) -> None:
    """Compute all requests that wait, at most MAX_BATCH, as one padded batch."""
    while True:
        jobs = [await queue.get()]
        while not queue.empty() and len(jobs) < MAX_BATCH:
            jobs.append(queue.get_nowait())
        texts = list(chain(*(job.texts for job in jobs)))
        vectors = iter(await asyncio.to_thread(embed, texts))
        for job in jobs:
            job.vectors.set_result(list(islice(vectors, len(job.texts))))


def make_app(embed: Embed) -> FastAPI:
    """Compute each request alone in FastAPI's thread pool, or waiting requests
    together.
    """
    queue = asyncio.Queue[Job]()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(compute_together(queue, embed))
        yield
        task.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/embed")
    def alone(body: Body) -> dict[str, list[list[float]]]:
        return {"result": embed(body.texts)}

    @app.post("/v1/embed-together")
    async def together(body: Body) -> dict[str, list[list[float]]]:
        job = Job(body.texts, asyncio.get_running_loop().create_future())
        await queue.put(job)
        return {"result": await job.vectors}

    return app


def main(
    model: Path,
    *,
    engine: Engine = "transformers",
    precision: Literal["fp32", "bf16"] = "fp32",
    port: int,
) -> None:
    """Serve until the process is ended."""
    uvicorn.run(
        make_app(embedder(model, engine, precision)), port=port, log_level="error"
    )


if __name__ == "__main__":
    command_of(main, "rival")()
