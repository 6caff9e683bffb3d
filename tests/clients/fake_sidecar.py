"""A sidecar that turns the order round, and remembers what it was asked."""

from typing import Any, ClassVar, Final

import httpx

from cascade.testing.upstream import FakeServer

__all__ = ["DECISION", "FakeSidecar", "answer"]

DECISION: Final = {"decision_id": "d-1", "release": "fake", "stage": "large", "degraded": []}


def answer(*places: tuple[int, float], **changed: Any) -> dict[str, Any]:
    """Return a native answer with these indices and scores, all placed by the large stage."""
    results = [{"index": index, "id": None, "score": score, "stage": "large"} for index, score in places]
    return {"results": results, **DECISION, **changed}


class FakeSidecar(FakeServer):
    """Answer the native route with the candidates from the last to the first, and scores 1/2, 1/3, 1/4, ..."""

    open_paths: ClassVar[frozenset[str]] = frozenset()

    def unauthorized(self) -> httpx.Response:
        return httpx.Response(401, json={"code": "unauthorized", "field": "authorization", "message": "no"})

    def get(self, path: str) -> httpx.Response:
        return httpx.Response(404)

    def post(self, path: str, body: Any, size: int) -> httpx.Response:
        if path != "/v1/cascade/rerank":
            return httpx.Response(404)
        count = len(body["candidates"])
        places = [(count - 1 - place, 1 / (place + 2)) for place in range(count)]
        return httpx.Response(200, json=answer(*places[: body.get("top_n")]))

    def body_of(self, query: str) -> dict[str, Any]:
        """Return the one body with this query."""
        (body,) = [seen.body for seen in self.posts if seen.body["query"] == query]
        assert isinstance(body, dict)
        return body
