"""Grafana's dashboards, as tables of panels."""
