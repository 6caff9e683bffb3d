"""The page of a rollout, in a browser, over an admin listener on a real socket."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from playwright.sync_api import Locator, Page, expect

from cascade.decision import DegradedReason
from cascade.types import Arm
from tests.browser.conftest import Show, look_again
from tests.rollout.desk_fakes import decision
from tests.server.admin_listener import Listener
from tests.server.rollout_desk import CANDIDATE, STABLE, entry, guardrails, idle, put_off, running, turned_down
from tests.server.sidecar import LEVELS

pytestmark = pytest.mark.browser

_HOSTILE: Final = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
_SECTIONS: Final = ("standing", "releases", "guardrails", "decisions", "past")


def _row(page: Page, section: str, head: str) -> Locator:
    return page.locator(f"#{section} tbody tr", has=page.get_by_role("rowheader", name=head, exact=True))


def test_a_rollout_under_way_is_shown(show: Show, listener: Listener) -> None:
    """Its sentence, its steps, both releases with their shares and levels, and the guardrails' numbers."""
    page = show(listener).page
    expect(page.get_by_role("heading", level=2).first).to_have_text("r-2026-11 decides 5% of the traffic")
    expect(page.locator(".steps [aria-current=step]")).to_have_text("5%now")
    expect(page.locator(".steps li").first).to_have_text("1%done, without evidence")
    expect(page.get_by_role("img", name="r-2026-10 decides 95%, r-2026-11 5%")).to_be_visible()
    stable, candidate = page.locator("article.stable"), page.locator("article.canary")
    expect(stable).to_contain_text("Decides95%")
    expect(stable.locator(".levels [aria-current=true]")).to_have_text("normal")
    expect(stable.locator(".levels li")).to_have_count(len(LEVELS))
    expect(candidate).to_contain_text("r-2026-11")
    expect(candidate.locator("code")).to_have_attribute("title", str(CANDIDATE["digest"]))
    expect(page.locator("article.desired")).to_contain_text("it is the candidate")
    assert page.locator("#guardrails table").first.locator("tbody tr").count() == len(guardrails())
    late = _row(page, "guardrails", "late")
    for told in ("pass", "1%", "0%", "\u22121%", "380", "it is shown to be within its limit"):
        expect(late).to_contain_text(told)
    expect(late.get_by_role("img")).to_have_attribute(
        "aria-label", "evidence of harm 0%, of being within the limit 100% of what decides"
    )
    expect(_row(page, "guardrails", "drift small")).to_contain_text("not waited for")
    expect(page.locator("#standing")).to_contain_text("answers of the candidate: 400 of 500")
    expect(page.get_by_role("status")).to_have_text("running: r-2026-11 decides 5% of the traffic")


def test_decisions_are_shown_without_text(show: Show, listener: Listener) -> None:
    """By arm and release, with what degraded them; what was refused is told apart."""
    recent = listener.service.traffic.recent
    recent.add(
        replace(decision(Arm.CANARY, "r2", (DegradedReason.STAGE_TIMEOUT,)), id="one", tenant="acme"), answered=True
    )
    recent.add(replace(decision(), id="two"), answered=False)
    page = show(listener).page
    rows = page.locator("#decisions tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("refused")
    for told in ("one", "canary", "r2", "acme", "small", "stage timeout"):
        expect(rows.nth(1)).to_contain_text(told)


def test_the_page_follows(show: Show, listener: Listener) -> None:
    """A step, then a rollback with its evidence; what is open stays open, and the focus where it was."""
    listener.desk.entries = [entry("started", share=0.01)]
    page = show(listener).page
    fold = page.locator("#past details").first
    fold.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(fold.locator("table")).to_be_visible()
    listener.desk.told = running(step=2)
    listener.desk.entries = [entry("advanced", share=0.25, at="2026-11-30T09:30:00Z"), *listener.desk.entries]
    look_again(page)
    expect(page.get_by_role("heading", level=2).first).to_have_text("r-2026-11 decides 25% of the traffic")
    expect(page.locator("#past > div > ol > li")).to_have_count(2)
    expect(page.locator("#past details").nth(0)).not_to_have_attribute("open", "")
    expect(page.locator("#past details").nth(1)).to_have_attribute("open", "")
    assert page.evaluate("document.activeElement.closest('li') === document.querySelectorAll('#past ol > li')[1]")
    listener.desk.told = turned_down()
    listener.desk.entries = [entry(), *listener.desk.entries]
    look_again(page)
    expect(page.get_by_role("heading", level=2).first).to_have_text("r-2026-11 was rolled back")
    expect(page.locator("#standing")).to_contain_text("late: it is shown to be beyond its limit")
    expect(page.locator("#guardrails caption")).to_have_text("r-2026-11, as it stood when it was rolled back")
    late = _row(page, "guardrails", "late")
    for told in ("fail", "33.42%", "+32.42%"):
        expect(late).to_contain_text(told)
    expect(page.get_by_role("status")).to_have_text("rolled back: r-2026-11 was rolled back")
    assert page.title() == "rolled back: rollout"
    assert [page.locator(f"#{each} > div").count() for each in _SECTIONS] == [1] * len(_SECTIONS)
    assert (
        page.locator(".standing").count()
        == page.locator(".past").count()
        == page.locator("#decisions .absent").count()
        == 1
    )


def test_a_refusal_says_when_it_is_tried_again_and_a_state_that_is_not_kept_why(show: Show, listener: Listener) -> None:
    """Neither is told where there is none."""
    listener.desk.told = put_off() | {"state_fault": _HOSTILE}
    page = show(listener).page
    standing = page.locator("#standing")
    expect(standing).to_contain_text("small: no answer")
    expect(standing.locator("p", has_text="It is tried again at").locator("time")).to_have_attribute(
        "datetime", "2026-11-30T09:25:30.000Z"
    )
    expect(standing.locator(".alert")).to_have_text(
        f"The state of rollouts cannot be kept: {_HOSTILE}. A restart goes on from what was kept last."
    )
    listener.desk.told = turned_down("refused", step="probe")
    look_again(page)
    expect(standing.locator(".alert")).to_have_count(0)
    expect(standing).not_to_contain_text("tried again")


@pytest.mark.parametrize("state", ["aborted", "replaced"])
def test_what_took_the_place_of_a_candidate_leaves_its_evidence(show: Show, listener: Listener, state: str) -> None:
    """As a rollback does: the guardrails stay as they stood when it ended."""
    listener.desk.told = turned_down(state)
    listener.desk.entries = [entry(state)]
    page = show(listener).page
    expect(page.locator("#guardrails caption")).to_have_text(f"r-2026-11, as it stood when it was {state}")
    expect(page.locator("#past .chip").first).to_have_class("chip warn")


@pytest.mark.parametrize(
    ("told", "said", "more"),
    [
        (idle(), "No rollout is under way", "r-2026-10 decides all traffic."),
        (idle(state="completed"), "r-2026-10 decides all traffic", "Since "),
        (
            running(share=0.0, steps=[0, 5, 100], step=0),
            "r-2026-11 is scored beside answers, without traffic",
            "Step 1 of 3",
        ),
        (
            running(state="activating", activation_step="probe", guardrails=[], steps=[]),
            "r-2026-11 is being activated",
            "probe",
        ),
        (
            turned_down("refused", step="smoke", why=["query 2: another first"]),
            "was refused at the step smoke",
            "query 2",
        ),
        (turned_down("aborted", why=["pages at night"]), "r-2026-11 was aborted", "pages at night"),
    ],
    ids=["idle", "completed", "beside", "activating", "refused", "aborted"],
)
def test_each_state_has_its_sentence(
    show: Show, listener: Listener, told: dict[str, Any], said: str, more: str
) -> None:
    """And what belongs to it."""
    listener.desk.told = told
    page = show(listener).page
    expect(page.locator("#standing h2")).to_contain_text(said)
    expect(page.locator("#standing")).to_contain_text(more)


def test_hostile_names_stay_text(show: Show, listener: Listener) -> None:
    """Of a release, a source, a reason, a guardrail, a tenant: each is shown as it is, and no element comes of it."""
    odd = [each | {"name": _HOSTILE, "why": _HOSTILE, "verdict": _HOSTILE} for each in guardrails()[:1]]
    listener.desk.told = running(
        candidate=CANDIDATE | {"release": _HOSTILE},
        stable=STABLE | {"release": _HOSTILE, "digest": _HOSTILE},
        desired={"release": _HOSTILE, "digest": None, "source": _HOSTILE, "asked_at": _HOSTILE, "fault": _HOSTILE},
        waits_for=[_HOSTILE],
        guardrails=odd,
        state=_HOSTILE,
    )
    listener.desk.entries = [entry(what=_HOSTILE, release=_HOSTILE, why=[_HOSTILE])]
    listener.service.traffic.recent.add(replace(decision(Arm.CANARY, _HOSTILE), tenant=_HOSTILE), answered=True)
    page = show(listener).page
    for section in _SECTIONS:
        expect(page.locator(f"#{section}")).to_contain_text(_HOSTILE)
    expect(page.locator("#decisions tbody tr").get_by_text(_HOSTILE, exact=True)).to_have_count(2)
    assert page.locator("main img, main script").count() == 0


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_of_the_rollout_runs_over_the_side(show: Show, listener: Listener, width: int) -> None:
    """Wide tables scroll in a box of their own, which takes the focus; a long name is broken."""
    listener.desk.told = running(candidate=CANDIDATE | {"release": "r" * 64}, waits_for=["w" * 200])
    listener.desk.entries = [entry(release="r" * 64, why=["w" * 200])]
    listener.service.traffic.recent.add(replace(decision(), tenant="t" * 200), answered=True)
    page = show(listener, width=width).page
    expect(page.locator("#decisions tbody tr")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    boxes = page.locator(".scroll").evaluate_all("all => all.map(one => [one.tabIndex, Boolean(one.ariaLabel)])")
    assert boxes
    assert all(box == [0, True] for box in boxes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read_on_either_ground(show: Show, listener: Listener, scheme: str) -> None:
    """By a contrast of 4.5 at least between each colour of text and what is behind it (WCAG 2.1, 1.4.3)."""
    listener.desk.entries = [entry(), entry("completed"), entry("aborted"), entry("started")]
    page = show(listener, scheme=scheme).page
    expect(page.locator("#past > div > ol > li")).to_have_count(4)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 19, 24)"}[scheme]
    worst = page.evaluate(_WORST_CONTRAST)
    assert worst["contrast"] >= 4.5, worst


_WORST_CONTRAST: Final = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (!/rgba\\(.*, 0\\)/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  let worst = { contrast: 21 };
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.checkVisibility() || node instanceof SVGElement) continue;
    const [one, other] = [light(getComputedStyle(node).color), light(behind(node))].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    if (contrast < worst.contrast) worst = { contrast, text: walker.currentNode.textContent, colour: getComputedStyle(node).color, behind: behind(node) };
  }
  return worst;
}"""
