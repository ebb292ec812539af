"""All served models: by name, started together, reloaded together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from litebert.errors import LitebertError
from litebert.serve.entry import ModelSource
from litebert.serve.limits import ServerSettings
from litebert.serve.link import ProcessDiedError
from litebert.serve.metrics import Metrics
from litebert.serve.refusals import HttpError
from litebert.serve.served import ServedModel


class Models:
    """The served models; the first one answers requests that name none."""

    def __init__(self, sources: Mapping[str, ModelSource], settings: ServerSettings, metrics: Metrics) -> None:
        self.all = [ServedModel(name, source, settings, metrics) for name, source in sources.items()]
        self.failure: LitebertError | ProcessDiedError | None = None

    @property
    def are_ready(self) -> bool:
        """Whether every model answers."""
        return all(model.is_ready for model in self.all)

    def named(self, name: str | None) -> ServedModel:
        """Return a model by its name; None is the first one.

        Raises:
            HttpError: LB-955, no model has this name.
        """
        for model in self.all:
            if name is None or model.name == name:
                return model
        raise HttpError(
            "LB-955",
            "no model has this name here",
            status=404,
            expected="the name of a served model",
            next="GET /v1/models lists them; omit model for the first one",
        )

    async def start(self, give_up: Callable[[], None]) -> None:
        """Load all models; if one cannot be used, keep its error and call `give_up`."""
        try:
            await asyncio.gather(*(model.start() for model in self.all))
        except (LitebertError, ProcessDiedError) as error:
            self.failure = error
            give_up()

    async def reload(self) -> None:
        """Load the files of all models again, one model after another."""
        for model in self.all:
            await model.reload()

    async def stop(self) -> None:
        """End all model processes."""
        await asyncio.gather(*(model.stop() for model in self.all))
