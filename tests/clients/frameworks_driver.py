"""Rerank through the room `cascade.clients` inside the real frameworks; a script for the clients' own environment.

It reads ``{case: request}`` as JSON and writes ``{case: outcome}``. A request is the fields of ``Ask``. An outcome is
``{"found": [{"place", "score", "told", "hidden"}], "given_unchanged": bool, "shown": repr}``, or ``{"raised": [type of
it and of its causes], "told": traceback}``; of a request with ``save``, ``{"saved": text, "same": bool, "key": after loading}``.
"""

import asyncio
import copy
import json
import os
import sys
import traceback
from dataclasses import dataclass, field
from typing import Any

MISSING = {"nan": float("nan"), "inf": float("inf")}


@dataclass(frozen=True)
class Ask:
    """One request. A document is ``{"text", "id", "score", "metadata"}``, all but the text optional."""

    framework: str
    query: str | None = "boats float"
    options: dict[str, Any] = field(default_factory=dict)
    documents: list[dict[str, Any]] = field(default_factory=list)
    in_loop: bool = False
    top: int | None = None
    save: bool = False
    key: str | None = None
    variables: dict[str, str] = field(default_factory=dict)


def _number(given: Any) -> Any:
    return MISSING.get(given, given) if isinstance(given, str) else given


def _metadata(place: int, document: dict[str, Any]) -> dict[str, Any]:
    return {"place": place} | {name: _number(value) for name, value in document.get("metadata", {}).items()}


class LangChain:
    """Ask with the compressor."""

    def __init__(self, ask: Ask) -> None:
        from pydantic import SecretStr

        from cascade.clients.langchain import CascadeCompressor

        key = {} if ask.key is None else {"api_key": SecretStr(ask.key)}
        self.ask = ask
        self.asker = CascadeCompressor(**ask.options, **key)

    def documents(self) -> list[Any]:
        """Return the documents of the request."""
        from langchain_core.documents import Document  # type: ignore[import-not-found]

        return [
            Document(document["text"], id=document.get("id"), metadata=_metadata(place, document))
            for place, document in enumerate(self.ask.documents)
        ]

    def rerank(self, documents: list[Any]) -> Any:
        """Return the documents reranked."""
        if self.ask.in_loop:
            return asyncio.run(self.asker.acompress_documents(documents, str(self.ask.query)))
        return self.asker.compress_documents(documents, str(self.ask.query))

    def found(self, documents: list[Any]) -> list[dict[str, Any]]:
        """Return what the framework's user sees."""
        return [
            {
                "place": document.metadata["place"],
                "score": document.metadata.get("relevance_score"),
                "told": document.metadata.get(self.asker.metadata_key),
                "hidden": None,
            }
            for document in documents
        ]

    def save(self) -> dict[str, Any]:
        """Save, load, and compare."""
        text = self.asker.model_dump_json()
        again = type(self.asker).model_validate_json(text)
        return {
            "saved": text,
            "same": again.model_dump() == self.asker.model_dump(),
            "key": again.api_key.get_secret_value() if again.api_key else None,
        }


class LlamaIndex:
    """Ask with the postprocessor."""

    def __init__(self, ask: Ask) -> None:
        from pydantic import SecretStr

        from cascade.clients.llamaindex import CascadePostprocessor

        key = {} if ask.key is None else {"api_key": SecretStr(ask.key)}
        self.ask = ask
        self.asker = CascadePostprocessor(**ask.options, **key)

    def documents(self) -> list[Any]:
        """Return the nodes of the request."""
        from llama_index.core.schema import NodeWithScore, TextNode  # type: ignore[import-not-found]

        nodes = []
        for place, document in enumerate(self.ask.documents):
            named = {"id_": document["id"]} if "id" in document else {}
            node = TextNode(
                text=document["text"],
                metadata=_metadata(place, document),
                excluded_embed_metadata_keys=["place", *document.get("metadata", {})],
                **named,
            )
            nodes.append(NodeWithScore(node=node, score=_number(document.get("score"))))
        return nodes

    def rerank(self, nodes: list[Any]) -> Any:
        """Return the nodes reranked."""
        if self.ask.in_loop:
            return asyncio.run(self.asker.apostprocess_nodes(nodes, query_str=self.ask.query))
        return self.asker.postprocess_nodes(nodes, query_str=self.ask.query)

    def found(self, nodes: list[Any]) -> list[dict[str, Any]]:
        """Return what the framework's user sees, and whether models are shown what was told."""
        from llama_index.core.schema import MetadataMode

        key = self.asker.metadata_key
        return [
            {
                "place": item.node.metadata["place"],
                "score": item.score,
                "told": item.node.metadata.get(key),
                "hidden": all(
                    key not in item.node.get_content(mode) for mode in (MetadataMode.LLM, MetadataMode.EMBED)
                ),
            }
            for item in nodes
        ]

    def save(self) -> dict[str, Any]:
        """Save, load, and compare."""
        text = self.asker.to_json()
        again = type(self.asker).from_json(text)
        return {
            "saved": text,
            "same": again.to_dict() == self.asker.to_dict(),
            "key": again.api_key.get_secret_value() if again.api_key else None,
        }


class Haystack:
    """Ask with the ranker, inside a pipeline."""

    def __init__(self, ask: Ask) -> None:
        from haystack.utils import Secret  # type: ignore[import-not-found]

        from cascade.clients.haystack import CascadeRanker

        key = {} if ask.key is None else {"api_key": Secret.from_token(ask.key)}
        self.ask = ask
        self.asker = CascadeRanker(**ask.options, **key)

    def documents(self) -> list[Any]:
        """Return the documents of the request."""
        from haystack import Document  # type: ignore[import-not-found]

        return [
            Document(
                id=document.get("id", ""),
                content=document["text"],
                score=_number(document.get("score")),
                meta=_metadata(place, document),
            )
            for place, document in enumerate(self.ask.documents)
        ]

    def rerank(self, documents: list[Any]) -> Any:
        """Return the documents reranked."""
        from haystack import Pipeline

        asked = {"query": self.ask.query, "documents": documents, "top_k": self.ask.top}
        if self.ask.in_loop:
            return asyncio.run(self.asker.run_async(**asked))["documents"]
        if self.ask.top is not None:
            return self.asker.run(**asked)["documents"]
        pipeline = Pipeline()
        pipeline.add_component("ranker", self.asker)
        return pipeline.run({"ranker": asked})["ranker"]["documents"]

    def found(self, documents: list[Any]) -> list[dict[str, Any]]:
        """Return what the framework's user sees."""
        return [
            {
                "place": document.meta["place"],
                "score": document.score,
                "told": document.meta.get(self.ask.options.get("metadata_key", "cascade")),
                "hidden": None,
            }
            for document in documents
        ]

    def save(self) -> dict[str, Any]:
        """Save a pipeline, load it, and compare."""
        from haystack import Pipeline

        pipeline = Pipeline()
        pipeline.add_component("ranker", self.asker)
        text = pipeline.dumps()
        again = Pipeline.loads(text, allowed_modules=["cascade.clients.haystack"]).get_component("ranker")
        return {
            "saved": text,
            "same": again.to_dict() == self.asker.to_dict(),
            "key": again.api_key.resolve_value() if again.api_key else None,
        }


FRAMEWORKS: dict[str, type[LangChain | LlamaIndex | Haystack]] = {
    "langchain": LangChain,
    "llamaindex": LlamaIndex,
    "haystack": Haystack,
}


def _types(error: BaseException | None) -> list[str]:
    return [] if error is None else [type(error).__name__, *_types(error.__cause__ or error.__context__)]


def _outcome(ask: Ask) -> dict[str, Any]:
    os.environ.update(ask.variables)
    try:
        framework = FRAMEWORKS[ask.framework](ask)
        if ask.save:
            return framework.save()
        documents = framework.documents()
        before = repr(copy.deepcopy(documents))
        found = framework.found(framework.rerank(documents))
        return {"found": found, "given_unchanged": repr(documents) == before, "shown": repr(framework.asker)}
    except Exception as error:  # noqa: BLE001 - whatever the framework's user would see
        return {"raised": _types(error), "told": "".join(traceback.format_exception(error))}
    finally:
        for name in ask.variables:
            del os.environ[name]


def main() -> None:
    """Read requests from stdin, write outcomes to stdout; what frameworks print goes to stderr."""
    answer, sys.stdout = sys.stdout, sys.stderr
    asked: dict[str, dict[str, Any]] = json.load(sys.stdin)
    json.dump({case: _outcome(Ask(**request)) for case, request in asked.items()}, answer)


if __name__ == "__main__":
    main()
