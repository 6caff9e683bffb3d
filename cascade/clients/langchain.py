"""A document compressor for LangChain; needs the extra ``langchain``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import BaseDocumentCompressor, Document  # type: ignore[import-not-found]
from pydantic import Field

from cascade.clients.options import Options
from cascade.clients.ordering import Candidate, Order
from cascade.clients.sidecar import rerank, rerank_async
from cascade.text import Text

__all__ = ["CascadeCompressor"]


class CascadeCompressor(Options, BaseDocumentCompressor):  # type: ignore[misc]
    """Return documents in the sidecar's order, best first.

    ``channels`` says where first-stage scores are in the metadata. Each document returned is a copy, whose metadata has
    ``relevance_score`` and, under ``metadata_key``, what the sidecar told; the documents given stay as they are.
    Raises SidecarError where ``on_error`` says so.
    """

    id_key: str | None = Field(default=None, description="Metadata key of the id of documents that have no ``id``")

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        """Return the documents reranked, at most ``top_n``."""
        return self._placed(documents, rerank(self, Text(query), self._candidates(documents)))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        """Return the documents reranked, at most ``top_n``."""
        return self._placed(documents, await rerank_async(self, Text(query), self._candidates(documents)))

    def _candidates(self, documents: Sequence[Document]) -> list[Candidate]:
        return [
            Candidate(Text(document.page_content), self._id_of(document), self.known_scores(document.metadata))
            for document in documents
        ]

    def _id_of(self, document: Document) -> str | None:
        found = document.id
        if found is None and self.id_key is not None:
            found = document.metadata.get(self.id_key)
        return None if found is None else str(found)

    def _placed(self, documents: Sequence[Document], order: Order) -> list[Document]:
        placed = []
        for place in order.places:
            document = documents[place.index]
            metadata = document.metadata | {self.metadata_key: order.told(place)}
            if place.score is not None:
                metadata["relevance_score"] = place.score
            placed.append(document.model_copy(update={"metadata": metadata}))
        return placed
