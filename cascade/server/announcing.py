"""What the log says of a sidecar as it starts to serve."""

from __future__ import annotations

import socket

from cascade.policy.levels import level_names
from cascade.rollout.measured import not_measured
from cascade.server.gate import is_loopback
from cascade.server.listening import address
from cascade.server.service import Service
from cascade.server.settings import Settings
from cascade.server.tuned import tell_tunings
from cascade.telemetry.logs import note

__all__ = ["addresses", "announce", "tell_open"]


def addresses(service: Service, public: socket.socket, admin: socket.socket) -> dict[str, str]:
    """Return where the listeners are."""
    return {
        "public": address(public, tls="public" in service.tls),
        "admin": address(admin, tls="admin" in service.tls),
    }


def announce(service: Service, public: socket.socket, admin: socket.socket) -> None:
    """Tell where it listens and what it serves, and warn of what is not as it should be."""
    stable = service.traffic.stable
    release, level = stable.bundle.loaded.release, stable.pipeline.level
    note(
        "info",
        "serving",
        release=stable.name,
        digest=stable.digest,
        load_level=level.name,
        **addresses(service, public, admin),
    )
    if level.is_above_normal:
        note("warning", "load level above normal", load_level=level.name)
    names = level_names(release)
    if unknown := [*not_measured(names, stable.measured)] if len(names) > 1 else []:
        note("warning", "load levels whose quality is not measured", load_levels=unknown, why=stable.measured.fault)
    for kind, why in stable.evidence_faults.items():
        if kind != "report" or not unknown:  # else the line above has said so
            note("warning", "evidence does not hold", kind=kind, why=why)
    tell_tunings(stable.bundle, service.embedded_threads)
    if release.mode == "observe" and not service.records:
        note("warning", "mode observe keeps nothing: record_file is not set")
    for name, stage in stable.stages.items():
        if stage.unusable is not None:
            note("error", "stage unusable", stage=name, code=stage.unusable)
        elif stage.observed is None:
            note("warning", "stage not reached yet", stage=name)


def tell_open(settings: Settings) -> None:
    """Warn of a listener that others than this host can reach, and that asks for no key and no certificate."""
    listeners = (
        ("keys_file", settings.keys_file or settings.tls_client_ca_file, settings.host),
        ("admin_keys_file", settings.admin_keys_file or settings.admin_tls_client_ca_file, settings.admin_host),
    )
    for setting, guarded_by, host in listeners:
        if guarded_by is None and not is_loopback(host):
            note("warning", "open to all: no key is asked for", setting=setting)
