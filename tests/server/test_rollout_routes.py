"""A rollout at the admin listener: what is told, what may be asked, and who may not ask."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cascade.errors import ConfigError
from cascade.rollout.activation import ActivationStep, Refused
from cascade.rollout.tar import LARGEST_TAR
from cascade.server.admin import admin_app
from cascade.server.gate import open_access
from cascade.server.keys import hash_of
from cascade.server.recent_decisions import MOST_RECENT
from tests.server.asgi import post_slowly
from tests.server.rollout_desk import CANDIDATE, FakeDesk, entry, running
from tests.server.sidecar import BODIES, Sidecar, sidecar

_TAR = {"content-type": "application/x-tar"}
_BROWSERS: list[dict[str, str]] = [
    {"origin": "http://sidecar.test"},
    {"origin": "null"},
    {"sec-fetch-site": "same-origin"},
]


def _served(desk: FakeDesk | None = None, **settings: Any) -> tuple[Sidecar, FakeDesk]:
    desk = desk or FakeDesk()
    return sidecar(desk=desk, **settings), desk


async def test_status_is_what_the_desk_tells() -> None:
    """As it is, as JSON."""
    told = running()
    served, _ = _served(FakeDesk(told))
    answer = await served.admin.get("/rollout")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == told


async def test_what_is_asked_reaches_the_desk_and_its_status_comes_back() -> None:
    """Fields that are left out have their defaults."""
    served, desk = _served()
    desk.then = running()
    for path, body in (
        ("", {"release": "r2"}),
        ("", {"release": CANDIDATE["digest"], "at_once": True, "lenient": True}),
        ("/promote", {}),
        ("/promote", {"force": True}),
        ("/abort", {}),
        ("/abort", {"reason": "pages at night"}),
    ):
        answer = await served.admin.post(f"/rollout{path}", json=body)
        assert (answer.status_code, answer.json()) == (200, desk.then)
    assert desk.asked == [
        ("start", "r2", False, False),
        ("start", CANDIDATE["digest"], True, True),
        ("promote", False),
        ("promote", True),
        ("abort", ""),
        ("abort", "pages at night"),
    ]


@pytest.mark.parametrize(
    ("path", "body", "status", "rule"),
    [
        ("", b"{", 400, "body: not valid JSON in UTF-8"),
        ("", b"[]", 422, "body: Input should be an object"),
        ("", b"{}", 422, "release: Field required"),
        ("", b'{"release": ""}', 422, "release: String should have at least 1 character"),
        ("", b'{"release": "r2", "force": true}', 422, "force: Extra inputs are not permitted"),
        ("", b'{"release": "r2", "at_once": "yes"}', 422, "at_once: Input should be a valid boolean"),
        ("/abort", b'{"reason": "a\\nline"}', 422, "reason: String should match pattern"),
        ("/abort", b'{"reason": "' + b"a" * 501 + b'"}', 422, "reason: String should have at most 500 characters"),
        ("/promote", b" " * 5000, 413, "at most 4096 bytes are accepted"),
    ],
)
async def test_what_is_asked_wrongly_is_refused_by_its_rule(path: str, body: bytes, status: int, rule: str) -> None:
    """The desk does not hear of it."""
    served, desk = _served()
    answer = await served.admin.post(f"/rollout{path}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert answer.json()["error"].startswith(rule)
    assert answer.json()["detail"] == answer.json()["message"] == answer.json()["error"]
    assert desk.asked == []


async def test_a_refusal_says_at_which_step_and_why() -> None:
    """409 with the sentences apart, for whoever shows them."""
    why = ("evidence: it names no certificate", "evidence: it names no report")
    served, desk = _served(FakeDesk(raises=Refused(ActivationStep.VERIFY, why)))
    answer = await served.admin.post("/rollout", json={"release": "r2"})
    told = answer.json()
    assert (answer.status_code, told["step"], told["why"], told["passing"]) == (409, "verify", list(why), False)
    assert told["error"] == f"refused at verify: {why[0]}; {why[1]}"
    desk.raises = ConfigError("no rollout is under way")
    answer = await served.admin.post("/rollout/abort", json={})
    told = answer.json()
    assert (answer.status_code, told["error"], told["step"]) == (409, "no rollout is under way", None)
    assert told["why"] == ["no rollout is under way"]


async def test_what_a_release_would_have_to_show_is_told_without_beginning_it() -> None:
    """By digest or name; a name that none can have is 422."""
    served, desk = _served()
    answer = await served.admin.get("/rollout/foreseen", params={"release": "r2"})
    assert (answer.status_code, answer.json()) == (200, desk.plan)
    assert desk.asked == [("foresee", "r2")]
    assert (await served.admin.get("/rollout/foreseen")).status_code == 422


async def test_history_is_cut_where_that_is_asked_for() -> None:
    """Latest first, as the desk has it."""
    entries = [entry(), entry("advanced"), entry("started")]
    served, _ = _served(FakeDesk(entries=entries))
    assert (await served.admin.get("/rollout/history")).json() == {"history": entries}
    assert (await served.admin.get("/rollout/history?most=1")).json() == {"history": entries[:1]}
    for most in ("-1", "all", "1e3", "\u0663"):
        answer = await served.admin.get("/rollout/history", params={"most": most})
        assert (answer.status_code, answer.json()["error"]) == (422, "most: must be a whole number")


async def test_the_last_decisions_are_told_without_text() -> None:
    """As many as are kept, latest first; refused ones too."""
    served, _ = _served()
    for number in range(MOST_RECENT + 5):
        await served.post("/rerank", BODIES["tei"](f"kingfisher {number}", ["a kingfisher", "b"]))
    answer = await served.admin.get("/rollout/decisions")
    told = answer.json()["decisions"]
    assert [each["decision_id"] for each in told] == [
        f"decision-{5 + MOST_RECENT - place}" for place in range(MOST_RECENT)
    ]
    assert told[0] | {"age_s": 0, "total_ms": 0} == {
        "decision_id": "decision-55",
        "age_s": 0,
        "release": "test-1",
        "arm": "stable",
        "load_level": "normal",
        "tenant": None,
        "outcome": "answered",
        "stage": "large",
        "action": "static",
        "candidates": 2,
        "depth": 2,
        "escalated": 2,
        "degraded": [],
        "total_ms": 0,
        "deadline_ms": 1000.0,
    }
    assert 0 <= told[0]["age_s"] <= told[-1]["age_s"]
    assert "kingfisher" not in answer.text


async def test_a_refused_answer_is_among_the_decisions() -> None:
    """With what degraded it."""
    served, _ = _served()
    body, headers = BODIES["tei"]("q", ["a"]), {"x-cascade-fail-closed": "1"}
    await served.post("/rerank", body, {"x-request-timeout-ms": "0", **headers})
    told = (await served.admin.get("/rollout/decisions")).json()["decisions"]
    assert [(each["outcome"], each["degraded"]) for each in told] == [("refused", ["deadline_too_short"])]


async def test_a_bundle_is_handed_over_as_a_tar() -> None:
    """Its digest comes back, for a start."""
    served, desk = _served()
    answer = await served.admin.post("/rollout/bundles", content=b"a tar", headers=_TAR)
    assert (answer.status_code, answer.json()) == (200, {"digest": CANDIDATE["digest"]})
    assert desk.asked == [("put", b"a tar")]
    desk.raises = ConfigError("a bundle is taken only where release_keys_file is set")
    answer = await served.admin.post("/rollout/bundles", content=b"a tar", headers=_TAR)
    assert (answer.status_code, answer.json()["error"]) == (409, str(desk.raises))


async def test_a_bundle_that_is_too_large_is_not_held() -> None:
    """The desk does not hear of it, and the next one is taken."""
    served, desk = _served()
    answer = await served.admin.post("/rollout/bundles", content=bytes(LARGEST_TAR + 1), headers=_TAR)
    assert (answer.status_code, answer.json()["error"]) == (413, f"at most {LARGEST_TAR} bytes are accepted")
    assert (await served.admin.post("/rollout/bundles", content=b"a tar", headers=_TAR)).status_code == 200
    assert desk.asked == [("put", b"a tar")]


async def test_bundles_are_taken_one_at_a_time() -> None:
    """Each is held in memory: a second meanwhile is told to come again, and then it may."""
    served, desk = _served()
    app = admin_app(served.service)
    slow = asyncio.create_task(post_slowly(app, "/rollout/bundles", b"a ", _TAR, rest=(0.05, b"tar")))
    await asyncio.sleep(0.01)
    second = await post_slowly(app, "/rollout/bundles", b"", _TAR)
    assert (second.status_code, second.headers["retry-after"]) == (503, "1")
    assert (await slow).status_code == 200
    assert (await post_slowly(app, "/rollout/bundles", b"", _TAR, rest=(0.0, b"more"))).status_code == 200
    assert desk.asked == [("put", b"a tar"), ("put", b"more")]


@pytest.mark.parametrize("path", ["/rollout", "/rollout/promote", "/rollout/abort", "/rollout/bundles"])
@pytest.mark.parametrize("headers", _BROWSERS)
async def test_a_web_page_changes_nothing(path: str, headers: dict[str, str]) -> None:
    """Not one of another site, nor one that a name of that site led here: whoever sends them is a browser."""
    served, desk = _served()
    sent = _TAR if path.endswith("bundles") else {"content-type": "application/json"}
    answer = await served.admin.post(path, content=b'{"release": "r2"}', headers={**sent, **headers})
    assert (answer.status_code, answer.json()["error"]) == (403, "a browser may look, not change anything")
    assert desk.asked == []
    assert (await served.admin.get("/rollout", headers=headers)).status_code == 200


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
@pytest.mark.parametrize("path", ["/rollout", "/rollout/bundles"])
async def test_content_that_any_page_may_send_is_refused(path: str, content_type: str) -> None:
    """A browser asks first before it sends JSON or a tar to another site, and is not let."""
    served, desk = _served()
    answer = await served.admin.post(path, content=b'{"release": "r2"}', headers={"content-type": content_type})
    assert answer.status_code == 415
    assert answer.json()["error"].startswith("content-type: must be application/")
    assert desk.asked == []


@pytest.mark.parametrize("path", ["/rollout", "/rollout/bundles"])
@pytest.mark.parametrize("state", [{"started": False}, {"draining": True}], ids=["starting", "stopping"])
async def test_nothing_is_changed_before_it_serves_or_while_it_stops(path: str, state: dict[str, Any]) -> None:
    """Try again; where it stands is told meanwhile."""
    served, desk = _served(**state)
    sent = _TAR if path.endswith("bundles") else {"content-type": "application/json"}
    answer = await served.admin.post(path, content=b'{"release": "r2"}', headers=sent)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"] == "not ready: try again"
    assert desk.asked == []
    assert (await served.admin.get("/rollout")).status_code == 200


async def test_a_release_is_taken_while_readiness_waits_for_a_server() -> None:
    """Where the stable release enforces probes and its server is gone, another release is the way out."""
    served, desk = _served(ready=False)
    answer = await served.admin.post("/rollout", json={"release": "r2", "at_once": True})
    assert answer.status_code in {200, 202}
    assert len(desk.asked) == 1


async def test_a_process_without_a_desk_says_so() -> None:
    """404, whatever is asked; decisions are told all the same."""
    served = sidecar()
    answers = [
        await served.admin.get("/rollout"),
        await served.admin.post("/rollout", json={"release": "r2"}),
        await served.admin.post("/rollout/bundles", content=b"a tar", headers=_TAR),
    ]
    assert {(each.status_code, each.json()["error"]) for each in answers} == {
        (404, "this process rolls out no releases")
    }
    assert (await served.admin.get("/rollout/decisions")).json() == {"decisions": []}


async def test_looking_asks_for_one_right_and_changing_for_another(tmp_path: Path) -> None:
    """A key to read starts nothing; without one only the page is there."""
    rights = {"scraper": ["read"], "operator": ["read", "operate"]}
    keys = [{"name": name, "sha256": hash_of(name).hex(), "rights": given} for name, given in rights.items()]
    file = tmp_path / "keys.yaml"
    file.write_text(yaml.safe_dump({"keys": keys}), encoding="utf-8")
    made, desk = _served()
    made.service.admin_access = open_access(file, "admin", "admin_keys_file", made.service.metrics.keys)
    served = Sidecar(made.service, made.small, made.large)

    async def asked(key: str | None) -> list[int]:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        answers: list[httpx.Response] = [
            await served.admin.get("/ui", headers=headers),
            await served.admin.get("/rollout", headers=headers),
            await served.admin.get("/rollout/decisions", headers=headers),
            await served.admin.post("/rollout", json={"release": "r2"}, headers=headers),
            await served.admin.post("/ui", headers=headers),
        ]
        return [answer.status_code for answer in answers]

    assert await asked(None) == [200, 401, 401, 401, 401]
    assert await asked("scraper") == [200, 200, 200, 403, 403]
    assert desk.asked == []
    assert await asked("operator") == [200, 200, 200, 200, 405]
    assert desk.asked == [("start", "r2", False, False)]
