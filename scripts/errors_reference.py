"""Render the reference of errors: what each fault of a request looks like in each dialect, and why answers are degraded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import orjson

from cascade.decision import DegradedReason
from cascade.errors import RequestError, RequestFault
from cascade.server.dialects.base import DialectFormat
from cascade.server.dialects.infinity import InfinityFormat
from cascade.server.dialects.native import NativeFormat
from cascade.server.dialects.tei import TeiFormat
from cascade.server.dialects.vllm import VllmFormat

__all__ = ["errors"]

_README: Final = Path(__file__).parents[1] / "README.md"
_FORMATS: Final[tuple[tuple[str, DialectFormat], ...]] = (
    ("native", NativeFormat()),
    ("tei", TeiFormat()),
    ("vllm, vllm-score", VllmFormat("1")),
    ("infinity", InfinityFormat()),
)
_WHEN: Final = {
    RequestFault.NOT_JSON: "The body is no JSON in UTF-8: NaN, a lone surrogate and a number beyond float64 are none",
    RequestFault.SCHEMA: "A field is missing, of a wrong type or beyond its bounds; the message names it and its rule. Native: an unknown field",
    RequestFault.EMPTY: "The list of documents is empty. TEI: query and a text are both empty",
    RequestFault.TOO_MANY: "More documents than the release's `limits.max_documents`",
    RequestFault.BODY_TOO_LARGE: "More bytes than the setting `max_body_bytes`",
    RequestFault.UNSUPPORTED: "The body is compressed",
    RequestFault.TOO_SLOW: "The body had not arrived by the deadline (a second at least), at most the setting `body_seconds`",
    RequestFault.TOO_LONG: "More tokens, estimated, than the release's `limits.max_request_tokens`",
    RequestFault.UNAUTHORIZED: "A key is asked for (setting `keys_file`): none came, or none that is known and not expired",
    RequestFault.FORBIDDEN: "The key lacks the right, or the request names another tenant than the key's",
    RequestFault.OVER_QUOTA: "The tenant is beyond its quota; `retry-after` says when to ask again",
    RequestFault.BUSY: "More requests are held than the setting `max_requests`; `retry-after`",
    RequestFault.NOT_READY: "The stages are starting; `retry-after`",
    RequestFault.NOT_ANSWERED: "The order would have been degraded, and the caller (`fail_closed`) or the release (`fallback: error`) wants an "
    "error then; the message is the reason, `x-cascade-degraded` has all; `retry-after`",
}
_REASON: Final = re.compile(r"^\| `(\w+)` \| (.+) \|$", re.MULTILINE)

_HEAD: Final = """\
# Errors and reasons

Generated from the code (`scripts/generate.py`). An error is the request's fault, or asked for; whatever a reranker does, a valid request gets an order with
status 200, and a *reason* where that is not the planned one. Look up here what a status or a reason means; of one request, [`cascade explain`](explain.md)
says it from its line in the log: `grep decision_id cascade.log | tail -n 1 | cascade explain -`.
"""
_REQUEST: Final = """\
## Errors of a request

Status by dialect, with the kind that stands in the body. No error repeats a text or a value of the request. A sidecar that is stopping answers what it
has, and refuses connections.
"""
_MORE: Final = """\
`text`: plain text in place of JSON, as TEI does. Beside its own keys every JSON error has `message`, and all but Infinity's 422 have `detail` as a string.
404 and 405 (no such route), and 500 (a fault of the sidecar's own, counted in `cascade_internal_faults_total`), are JSON with `error`, `message` and `detail` in
every dialect. What each field does in each case: [wire-fields.md](wire-fields.md).
"""
_DEGRADED: Final = """\
## Reasons of a degraded answer

In the header `x-cascade-degraded`, separated by commas; in `degraded` of the native answer, the log line, records and the label `reason` of
`cascade_degraded_total`. The list is closed.
"""
_STAGES: Final = """\
What happened at the stage, more exactly, is the `code` of its round, in the log line, records and `explain`: [every failure](faults.md#every-failure) has
each with what follows from it. What to do about a reason: [runbook.md](runbook.md#by-reason).

## Errors of commands

An error that the caller can mend is one line on stderr that begins with `cascade:`, and exit status 2: a file that cannot be read, an unknown key, a value out of
range. Status 1 is an outcome and not an error: `certify` refuses, `verify` finds a fault, `diff` sees a change, `parity` a difference, a rollout is
refused, or queries were left out. `collect` ends with 130 where it was interrupted, and goes on from there when it is started again. Releases are refused at an
[activation](rollout.md#activation) by the step; the admin listener's statuses are in [its API](rollout.md#api).
"""


def errors() -> str:
    """Return docs/errors.md."""
    names = [name for name, _ in _FORMATS]
    rows = [f"| fault | when | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    rows += [
        f"| `{fault}` | {_WHEN[fault]} | {' | '.join(_cell(fmt, fault) for _, fmt in _FORMATS)} |"
        for fault in RequestFault
    ]
    told = _reasons()
    reasons = ["| reason | what happened |", "|---|---|", *(f"| `{reason}` | {told[reason]} |" for reason in told)]
    return "\n".join([_HEAD, _REQUEST, *rows, "", _MORE, _DEGRADED, *reasons, "", _STAGES])


def _cell(fmt: DialectFormat, fault: RequestFault) -> str:
    answer = fmt.error(RequestError(fault, "field", "rule"))
    if answer.content_type.startswith("text/plain"):
        return f"{answer.status} text" if answer.body else f"{answer.status}, no body"
    kind = _kind(orjson.loads(answer.body))
    return f"{answer.status} `{kind}`" if kind else str(answer.status)


def _kind(body: dict[str, Any]) -> str | None:
    """Return what the body calls the kind of its fault, each dialect in its own place."""
    nested, listed = body.get("error"), body.get("detail")
    if isinstance(nested, dict):
        return nested["type"]  # type: ignore[no-any-return]
    if isinstance(listed, list):
        return listed[0]["type"]  # type: ignore[no-any-return]
    return body.get("code") or body.get("error_type")


def _reasons() -> dict[DegradedReason, str]:
    """Return what the README says of each reason. Raises KeyError for one that it does not have."""
    found = dict(_REASON.findall(_README.read_text(encoding="utf-8")))
    return {reason: found[reason] for reason in DegradedReason}
