"""Ask with one rerank client after the other; a script for the clients' own environment.

It reads ``{client: {case: request}}`` as JSON and writes ``{"outcomes": {client: {case: outcome}}, "strayed":
[host]}``. A request is the fields of ``Ask``. An outcome is what the client's user sees: ``{"found": [[position, score,
document or null]]}`` in the client's own order, or ``{"raised": type, "told": message, "status": number or null}``.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Found = list[tuple[int, float, str | None]]
KEY: Final = "any key"
MODEL: Final = "any-model"
TIMEOUT_S: Final = 20


@dataclass(frozen=True)
class Ask:
    """One request: ``top`` is how many are wanted, None for all; ``echo`` is None where nothing is said of documents."""

    url: str
    query: str
    documents: list[str]
    top: int | None = None
    echo: bool | None = None
    headers: dict[str, str] | None = None

    @property
    def most(self) -> int:
        """Return ``top`` for clients that must be told a number."""
        return max(1, len(self.documents)) if self.top is None else self.top


def _litellm_arguments(prefix: str, ask: Ask) -> dict[str, Any]:
    more: dict[str, Any] = {} if ask.echo is None else {"return_documents": ask.echo}
    if ask.headers is not None:
        more["headers"] = ask.headers
    return {
        "model": f"{prefix}/{MODEL}",
        "query": ask.query,
        "documents": ask.documents,
        "top_n": ask.top,
        "api_base": ask.url,
        "api_key": KEY,
        "timeout": TIMEOUT_S,
        **more,
    }


def _litellm_found(answer: Any) -> Found:
    return [
        (item["index"], item["relevance_score"], (item.get("document") or {}).get("text")) for item in answer.results
    ]


def _litellm(prefix: str) -> Callable[[Ask], Found]:
    def rerank(ask: Ask) -> Found:
        import litellm  # type: ignore[import-not-found]

        return _litellm_found(litellm.rerank(**_litellm_arguments(prefix, ask)))

    return rerank


def _litellm_async(ask: Ask) -> Found:
    import litellm

    return _litellm_found(asyncio.run(litellm.arerank(**_litellm_arguments("hosted_vllm", ask))))


def _cohere_found(answer: Any) -> Found:
    return [
        (item.index, item.relevance_score, _cohere_text(getattr(item, "document", None))) for item in answer.results
    ]


def _cohere_text(document: Any) -> str | None:
    """Return a document's text: an object in version 1, what came in version 2, which knows no documents."""
    if isinstance(document, dict):
        return str(document["text"])
    return None if document is None else str(document.text)


def _cohere_options(ask: Ask) -> dict[str, Any]:
    return {"max_retries": 0, "additional_headers": ask.headers or {}}


def _cohere_v2(ask: Ask) -> Found:
    import cohere  # type: ignore[import-not-found]

    client = cohere.ClientV2(api_key=KEY, base_url=ask.url, timeout=TIMEOUT_S)
    options = _cohere_options(ask)
    if ask.echo is not None:
        options["additional_body_parameters"] = {"return_documents": ask.echo}
    return _cohere_found(
        client.rerank(model=MODEL, query=ask.query, documents=ask.documents, top_n=ask.top, request_options=options)
    )


def _cohere_v1(ask: Ask) -> Found:
    import cohere

    client = cohere.Client(api_key=KEY, base_url=ask.url, timeout=TIMEOUT_S)
    more = {} if ask.echo is None else {"return_documents": ask.echo}
    return _cohere_found(
        client.rerank(
            model=MODEL,
            query=ask.query,
            documents=ask.documents,
            top_n=ask.top,
            request_options=_cohere_options(ask),
            **more,
        )
    )


def _voyage(ask: Ask) -> Found:
    import voyageai  # type: ignore[import-not-found]

    client = voyageai.Client(api_key=KEY, base_url=f"{ask.url}/v1", max_retries=0, timeout=TIMEOUT_S)
    answer = client.rerank(ask.query, ask.documents, model=MODEL, top_k=ask.top)
    return [(item.index, item.relevance_score, None) for item in answer.results]


def _mixedbread(ask: Ask) -> Found:
    from mixedbread import Mixedbread  # type: ignore[import-not-found]

    client = Mixedbread(api_key=KEY, base_url=ask.url, timeout=TIMEOUT_S, max_retries=0)
    more: dict[str, Any] = {} if ask.top is None else {"top_k": ask.top}
    if ask.echo is not None:
        more["return_input"] = ask.echo
    answer = client.rerank(model=MODEL, query=ask.query, input=ask.documents, extra_headers=ask.headers, **more)
    return [(item.index, item.score, item.input) for item in answer.data]


def _rerankers(provider: str, path: str) -> Callable[[Ask], Found]:
    def rerank(ask: Ask) -> Found:
        from rerankers.models.api_rankers import APIRanker  # type: ignore[import-not-found]

        ranker = APIRanker(MODEL, KEY, provider, url=ask.url + path)
        answer = ranker.rank(ask.query, ask.documents, doc_ids=list(range(len(ask.documents))))
        return [(item.document.doc_id, item.score, None) for item in answer.results]

    return rerank


def _tei_client(ask: Ask) -> Found:
    from tei_client import HttpClient  # type: ignore[import-not-found]

    client = HttpClient(ask.url, headers=ask.headers, timeout=TIMEOUT_S)
    more = {} if ask.echo is None else {"return_text": ask.echo}
    answer = client.rerank(query=ask.query, texts=ask.documents, **more)
    return [(item.index, item.score, item.text) for item in answer.ranks]


def _llama_index(postprocessor: Any, ask: Ask) -> Found:
    from llama_index.core.schema import NodeWithScore, TextNode  # type: ignore[import-not-found]

    nodes = [
        NodeWithScore(node=TextNode(id_=str(place), text=text), score=0.0) for place, text in enumerate(ask.documents)
    ]
    ranked = postprocessor.postprocess_nodes(nodes, query_str=ask.query)
    return [(int(item.node.node_id), item.score, None) for item in ranked]


def _llama_index_tei(ask: Ask) -> Found:
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference  # type: ignore[import-not-found]

    return _llama_index(TextEmbeddingInference(base_url=ask.url, top_n=ask.most, timeout=TIMEOUT_S), ask)


def _llama_index_jina(ask: Ask) -> Found:
    from llama_index.postprocessor.jinaai_rerank import JinaRerank  # type: ignore[import-not-found]

    return _llama_index(JinaRerank(base_url=f"{ask.url}/v1", api_key=KEY, model=MODEL, top_n=ask.most), ask)


def _llama_index_cohere(ask: Ask) -> Found:
    from llama_index.postprocessor.cohere_rerank import CohereRerank  # type: ignore[import-not-found]

    return _llama_index(CohereRerank(base_url=ask.url, api_key=KEY, model=MODEL, top_n=ask.most, max_retries=1), ask)


def _langchain(compressor: Any, ask: Ask) -> Found:
    from langchain_core.documents import Document  # type: ignore[import-not-found]

    documents = [Document(text, metadata={"place": place}) for place, text in enumerate(ask.documents)]
    ranked = compressor.compress_documents(documents, ask.query)
    return [(item.metadata["place"], item.metadata["relevance_score"], None) for item in ranked]


def _langchain_cohere(ask: Ask) -> Found:
    from langchain_cohere import CohereRerank  # type: ignore[import-not-found]

    return _langchain(CohereRerank(base_url=ask.url, cohere_api_key=KEY, model=MODEL, top_n=ask.top), ask)


def _langchain_jina(ask: Ask) -> Found:
    from langchain_community.document_compressors import jina_rerank  # type: ignore[import-not-found]

    jina_rerank.JINA_API_URL = f"{ask.url}/v1/rerank"
    return _langchain(jina_rerank.JinaRerank(jina_api_key=KEY, model=MODEL, top_n=ask.top), ask)


def _haystack(ranker: Any, ask: Ask) -> Found:
    from haystack import Document  # type: ignore[import-not-found]

    documents = [Document(id=str(place), content=text) for place, text in enumerate(ask.documents)]
    ranked = ranker.run(query=ask.query, documents=documents)["documents"]
    return [(int(item.id), item.score, None) for item in ranked]


def _secret() -> Any:
    from haystack.utils import Secret  # type: ignore[import-not-found]

    return Secret.from_token(KEY)


def _haystack_tei(ask: Ask) -> Found:
    from haystack_integrations.components.rankers.huggingface_api import (  # type: ignore[import-not-found]
        HuggingFaceTEIRanker,
    )

    return _haystack(HuggingFaceTEIRanker(url=ask.url, top_k=ask.most, token=_secret(), max_retries=1), ask)


def _haystack_cohere(ask: Ask) -> Found:
    from haystack_integrations.components.rankers.cohere import CohereRanker  # type: ignore[import-not-found]

    return _haystack(CohereRanker(api_base_url=ask.url, api_key=_secret(), model=MODEL, top_k=ask.most), ask)


def _haystack_jina(ask: Ask) -> Found:
    from haystack_integrations.components.rankers.jina import JinaRanker  # type: ignore[import-not-found]

    return _haystack(JinaRanker(base_url=f"{ask.url}/v1/rerank", api_key=_secret(), model=MODEL, top_k=ask.top), ask)


def _haystack_vllm(ask: Ask) -> Found:
    from haystack_integrations.components.rankers.vllm import VLLMRanker  # type: ignore[import-not-found]

    return _haystack(VLLMRanker(api_base_url=f"{ask.url}/v1", api_key=_secret(), model=MODEL, top_k=ask.top), ask)


CLIENTS: Final[dict[str, Callable[[Ask], Found]]] = {
    "litellm huggingface": _litellm("huggingface"),
    "litellm hosted_vllm": _litellm("hosted_vllm"),
    "litellm hosted_vllm async": _litellm_async,
    "litellm infinity": _litellm("infinity"),
    "litellm cohere": _litellm("cohere"),
    "litellm jina_ai": _litellm("jina_ai"),
    "litellm voyage": _litellm("voyage"),
    "litellm together_ai": _litellm("together_ai"),
    "cohere v1": _cohere_v1,
    "cohere v2": _cohere_v2,
    "voyageai": _voyage,
    "mixedbread": _mixedbread,
    "rerankers cohere": _rerankers("cohere", "/v1/rerank"),
    "rerankers jina": _rerankers("jina", "/v1/rerank"),
    "rerankers voyage": _rerankers("voyage", "/v1/rerank"),
    "rerankers mixedbread": _rerankers("mixedbread.ai", "/v1/reranking"),
    "rerankers tei": _rerankers("text-embeddings-inference", "/rerank"),
    "tei-client": _tei_client,
    "llama-index tei": _llama_index_tei,
    "llama-index jina": _llama_index_jina,
    "llama-index cohere": _llama_index_cohere,
    "langchain cohere": _langchain_cohere,
    "langchain jina": _langchain_jina,
    "haystack tei": _haystack_tei,
    "haystack cohere": _haystack_cohere,
    "haystack jina": _haystack_jina,
    "haystack vllm": _haystack_vllm,
}


def _keep_on_this_machine(strayed: list[str]) -> None:
    """Refuse to look up or connect to anything but loopback, and note what was tried."""

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo":
            host = arguments[0]
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            host = arguments[1][0]
        else:
            return
        if host not in ("127.0.0.1", "localhost", "::1", None):
            strayed.append(str(host))
            raise OSError("only loopback may be reached")

    sys.addaudithook(audit)


def _outcome(rerank: Callable[[Ask], Found], ask: Ask) -> dict[str, Any]:
    try:
        return {"found": rerank(ask)}
    except Exception as error:  # noqa: BLE001 - whatever a client's user would see
        status = getattr(error, "status_code", None) or getattr(error, "http_status", None)
        return {
            "raised": type(error).__name__,
            "told": str(error),
            "status": status if isinstance(status, int) else None,
        }


def main() -> None:
    """Read requests from stdin, write outcomes to stdout; what clients print goes to stderr."""
    answer, sys.stdout = sys.stdout, sys.stderr
    strayed: list[str] = []
    _keep_on_this_machine(strayed)
    asked: dict[str, dict[str, dict[str, Any]]] = json.load(sys.stdin)
    outcomes = {
        name: {case: _outcome(CLIENTS[name], Ask(**request)) for case, request in cases.items()}
        for name, cases in asked.items()
    }
    json.dump({"outcomes": outcomes, "strayed": strayed}, answer)


if __name__ == "__main__":
    main()
