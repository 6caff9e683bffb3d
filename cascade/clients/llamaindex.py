"""A node postprocessor for LlamaIndex; needs the extra ``llamaindex``."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.postprocessor.types import BaseNodePostprocessor  # type: ignore[import-not-found]
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle  # type: ignore[import-not-found]
from pydantic import Field

from cascade.clients.options import ScoredOptions
from cascade.clients.ordering import Candidate, Order, Place
from cascade.clients.sidecar import rerank, rerank_async
from cascade.text import Text

__all__ = ["CascadePostprocessor"]


class CascadePostprocessor(ScoredOptions, BaseNodePostprocessor):  # type: ignore[misc]
    """Return nodes in the sidecar's order, best first, with its scores.

    The score that a node came with is sent as ``channel``. Nodes are returned as copies: those given belong to a store.
    What the sidecar told is in the metadata under ``metadata_key``, kept out of what models are shown.
    Raises SidecarError where ``on_error`` says so, and ValueError without a query.
    """

    metadata_mode: MetadataMode = Field(
        default=MetadataMode.EMBED, description="Which metadata is reranked with the text of a node"
    )

    @classmethod
    def class_name(cls) -> str:
        """Return the name that a saved postprocessor carries."""
        return "CascadePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return self._placed(nodes, rerank(self, _query(query_bundle), self._candidates(nodes)))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return self._placed(nodes, await rerank_async(self, _query(query_bundle), self._candidates(nodes)))

    def _candidates(self, nodes: Sequence[NodeWithScore]) -> list[Candidate]:
        return [
            Candidate(
                Text(item.node.get_content(metadata_mode=self.metadata_mode)),
                item.node.node_id,
                self.all_scores(item.score, item.node.metadata),
            )
            for item in nodes
        ]

    def _placed(self, nodes: Sequence[NodeWithScore], order: Order) -> list[NodeWithScore]:
        return [self._told(nodes[place.index], order, place) for place in order.places]

    def _told(self, item: NodeWithScore, order: Order, place: Place) -> NodeWithScore:
        key, node = self.metadata_key, item.node
        update = {
            "metadata": node.metadata | {key: order.told(place)},
            "excluded_embed_metadata_keys": _once(*node.excluded_embed_metadata_keys, key),
            "excluded_llm_metadata_keys": _once(*node.excluded_llm_metadata_keys, key),
        }
        score = item.score if place.score is None else place.score
        return item.model_copy(update={"node": node.model_copy(update=update), "score": score})


def _query(bundle: QueryBundle | None) -> Text:
    if bundle is None:
        raise ValueError("a query is needed: give query_bundle or query_str")
    return Text(bundle.query_str)


def _once(*keys: str) -> list[str]:
    return list(dict.fromkeys(keys))
