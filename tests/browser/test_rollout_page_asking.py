"""How the page of a rollout asks the sidecar: with a key, again and again, and by whose clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import expect

from cascade.server.gate import open_access
from cascade.server.keys import hash_of
from tests.browser.conftest import LOOK_MS, Show, look_again
from tests.server.admin_listener import Listener, admin_listener
from tests.server.rollout_desk import STABLE, FakeDesk, running, turned_down

pytestmark = pytest.mark.browser


def test_ages_go_by_the_clock_of_the_sidecar(show: Show, listener: Listener) -> None:
    """Whatever that of the browser says, also after it was set right."""
    since = datetime.now(UTC) - timedelta(minutes=30)
    listener.desk.told = running(stable=STABLE | {"activated_at": since.isoformat()})
    page = show(listener).page
    age = page.locator("article.stable [data-ago]")
    expect(age).to_have_text("30 min ago")
    for hours in (5, 0):
        page.clock.set_system_time(datetime.now(UTC) + timedelta(hours=hours, milliseconds=-LOOK_MS))
        listener.desk.told |= {"waits_for": [f"looked at {hours}"]}
        look_again(page)
        expect(page.locator("#standing")).to_contain_text(f"looked at {hours}")
        expect(age).to_have_text("30 min ago")


def test_a_key_is_asked_for_and_kept_for_the_tab(show: Show, listener: Listener, tmp_path: Path) -> None:
    """A wrong one is told so; a right one shows the rollout, also when the page is loaded again, until it is forgotten."""
    keys = [
        {"name": name, "sha256": hash_of(name).hex(), "rights": [right]}
        for name, right in (("good", "read"), ("api", "rerank"))
    ]
    file = tmp_path / "keys.yaml"
    file.write_text(yaml.safe_dump({"keys": keys}), encoding="utf-8")
    access = open_access(file, "admin", "admin_keys_file", listener.service.metrics.keys)
    with admin_listener(FakeDesk(running()), admin_access=access) as guarded:
        page = show(guarded, complaints=2).page
        field = page.get_by_label("Admin key")
        expect(field).to_be_focused()
        expect(page.get_by_role("main")).to_be_hidden()
        for given, said in (
            ("two words", "A key has no spaces"),
            ("wrong", "This key is not known here"),
            ("api", "This key may not read"),
        ):
            field.fill(given)
            page.keyboard.press("Enter")
            expect(page.locator("#wrong")).to_contain_text(said)
            expect(field).to_be_focused()
            assert field.input_value() == ""
        field.fill("good")
        page.get_by_role("button", name="Look").click()
        expect(page.locator("#standing h2")).to_contain_text("r-2026-11 decides 5% of the traffic")
        assert "good" not in page.url
        page.reload()
        expect(page.locator("#standing h2")).to_contain_text("r-2026-11 decides 5% of the traffic")
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        page.get_by_role("button", name="Forget the key").click()
        expect(field).to_be_focused()
        expect(page.get_by_role("main")).to_be_hidden()
        assert page.locator("#standing").inner_text() == ""
        assert (page.title(), page.locator("#process").inner_text()) == ("Rollout", "")
        page.get_by_role("button", name="Pause").click()
        field.fill("good")
        page.keyboard.press("Enter")
        expect(page.locator("#standing h2")).to_contain_text("r-2026-11 decides 5% of the traffic")
        expect(page.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "false")
        page.get_by_role("button", name="Forget the key").click()
        assert page.evaluate("sessionStorage.length") == 0


def test_a_sidecar_that_is_away_is_told_and_seen_again(show: Show, listener: Listener) -> None:
    """What was seen last stays, marked as old."""
    page = show(listener, complaints=1).page
    expect(page.locator("#live")).to_have_text("live")
    desk, listener.service.desk = listener.service.desk, None
    look_again(page)
    expect(page.get_by_role("alert").filter(has_text="No news")).to_contain_text("this process rolls out no releases")
    expect(page.locator("#live")).to_have_text("no answer")
    expect(page.locator("#standing h2")).to_contain_text("r-2026-11 decides")
    expect(page.locator("main")).to_have_class("stale")
    listener.service.desk = desk
    look_again(page)
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#trouble")).to_be_hidden()


def test_looking_can_be_paused(show: Show, listener: Listener) -> None:
    """Nothing moves meanwhile; then it goes on."""
    page = show(listener).page
    expect(page.locator("#live")).to_have_text("live")
    button = page.get_by_role("button", name="Pause")
    button.click()
    expect(page.locator("#live")).to_have_text("paused")
    listener.desk.told = turned_down()
    look_again(page)
    expect(page.locator("#standing h2")).to_contain_text("decides 5%")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#standing h2")).to_contain_text("was rolled back")
