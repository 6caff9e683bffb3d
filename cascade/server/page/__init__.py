"""The page of a rollout: one HTML that reads the routes of the admin listener and changes nothing."""

from __future__ import annotations

from cascade.server.page.assembled import PAGE_PATH, page_route

__all__ = ["PAGE_PATH", "page_route"]
