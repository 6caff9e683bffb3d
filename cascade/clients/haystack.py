"""A ranker for Haystack; needs the extra ``haystack``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from haystack import Document, component, default_from_dict, default_to_dict  # type: ignore[import-not-found]
from haystack.utils import Secret, deserialize_secrets_inplace  # type: ignore[import-not-found]
from pydantic import SecretStr

from cascade.clients.options import KEY_VARIABLE, ScoredOptions
from cascade.clients.ordering import Candidate, Order
from cascade.clients.sidecar import rerank, rerank_async
from cascade.text import Text

__all__ = ["CascadeRanker"]


@component
class CascadeRanker:
    """Return documents in the sidecar's order, best first, with its scores.

    The score that a document came with is sent as ``channel``, and ``channels`` says which further ones are in ``meta``.
    Documents are returned as copies; what the sidecar told is in ``meta`` under ``metadata_key``.
    Raises SidecarError where ``on_error`` says so, and ValueError for options that cannot be.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8787",
        *,
        api_key: Secret | None = Secret.from_env_var(KEY_VARIABLE, strict=False),  # noqa: B008 - Haystack's own way
        top_k: int | None = None,
        deadline_ms: float | None = None,
        tenant: str | None = None,
        priority: int = 0,
        channel: str | None = "first_stage",
        channels: dict[str, str] | None = None,
        timeout_s: float = 10.0,
        on_error: Literal["raise", "keep"] = "raise",
        metadata_key: str = "cascade",
    ) -> None:
        _refuse_none(top_k)
        self.api_key = api_key
        self._options = ScoredOptions(
            url=url,
            api_key=None,
            top_n=top_k,
            deadline_ms=deadline_ms,
            tenant=tenant,
            priority=priority,
            channel=channel,
            channels=channels or {},
            timeout_s=timeout_s,
            on_error=on_error,
            metadata_key=metadata_key,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the component for a saved pipeline: a key is named by its variable, one given as it is refused."""
        saved = self._options.model_dump()
        saved["top_k"] = saved.pop("top_n")
        return default_to_dict(self, api_key=self.api_key.to_dict() if self.api_key else None, **saved)  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CascadeRanker:
        """Return the component of a saved pipeline."""
        if isinstance(data.get("init_parameters", {}).get("api_key"), dict):
            deserialize_secrets_inplace(data["init_parameters"], keys=["api_key"])
        return default_from_dict(cls, data)  # type: ignore[no-any-return]

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        """Return the documents reranked, at most ``top_k``, which goes before that of the component."""
        order = rerank(self._keyed(top_k), Text(query), self._candidates(documents))
        return {"documents": self._placed(documents, order)}

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    async def run_async(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the documents reranked, at most ``top_k``, which goes before that of the component."""
        order = await rerank_async(self._keyed(top_k), Text(query), self._candidates(documents))
        return {"documents": self._placed(documents, order)}

    def _keyed(self, top_k: int | None) -> ScoredOptions:
        """Return the options of one run, with the key as it is now."""
        options = self._options.model_copy()
        key = self.api_key.resolve_value() if self.api_key else None
        options.api_key = SecretStr(key) if key else None
        if top_k is not None:
            _refuse_none(top_k)
            options.top_n = top_k
        return options

    def _candidates(self, documents: Sequence[Document]) -> list[Candidate]:
        return [
            Candidate(
                Text(document.content or ""), document.id, self._options.all_scores(document.score, document.meta)
            )
            for document in documents
        ]

    def _placed(self, documents: Sequence[Document], order: Order) -> list[Document]:
        placed = []
        for place in order.places:
            document = documents[place.index]
            meta = document.meta | {self._options.metadata_key: order.told(place)}
            score = document.score if place.score is None else place.score
            placed.append(replace(document, meta=meta, score=score))
        return placed


def _refuse_none(top_k: int | None) -> None:
    if top_k is not None and top_k < 1:
        raise ValueError("top_k: must be at least 1, or None for all")
