"""What the chart renders is valid, locked down, and serves the release and the settings that it was given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cascade import __version__
from cascade.server.settings import Settings, load_settings
from tests.deploy.chart import CHART, Rendered, refusals, rendered
from tests.deploy.templates import DEPLOY

_POD: Final = [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]
_DOCS: Final = DEPLOY.parent / "docs"
_OF_THE_CHART: Final = {
    "host", "port", "admin_host", "admin_port", "release", "state_folder", "keys_file", "admin_keys_file",
    "tls_certificate_file", "tls_key_file", "tls_client_ca_file",
    "admin_tls_certificate_file", "admin_tls_key_file", "admin_tls_client_ca_file",
}  # fmt: skip
_STOP_SECONDS: Final = 13
"""What a stop may take beyond `drain_seconds` and `leftover_seconds`, by docs/admission.md."""
_RELEASE: Final = "release: mine-1\ndepth: 50\n"
_ALL: Final[dict[str, Any]] = {
    "image": {"repository": "registry.example/cascade", "digest": "sha256:" + "0" * 64, "pullSecrets": ["pull"]},
    "release": {"yaml": _RELEASE},
    "settings": {"max_body_bytes": 80_000_000, "drain_seconds": 0, "record_sample": 0.00001, "cache": "off"},
    "env": [{"name": "LARGE_KEY", "valueFrom": {"secretKeyRef": {"name": "large", "key": "token"}}}],
    "envFrom": [{"configMapRef": {"name": "urls"}}],
    "secretMounts": ["cache-key", "api-keys"],
    "keys": {"secret": "api-keys"},
    "admin": {"reachable": True, "keys": {"secret": "api-keys", "file": "admin.yaml"}},
    "state": {"enabled": True, "size": "2Gi", "storageClassName": "fast"},
    "service": {"type": "LoadBalancer", "port": 8080, "annotations": {"a": "b"}},
    "autoscaling": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "keySecret": {"name": "scraper"}},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "cascade"}},
    "networkPolicy": {"adminFrom": _POD, "restrictEgress": True, "egress": [{"to": _POD, "ports": [{"port": 3000}]}]},
    "serviceAccount": {"annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "search"},
    "priorityClassName": "high",
    "nodeSelector": {"kubernetes.io/arch": "arm64"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "extraVolumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
    "extraVolumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
}


@pytest.fixture(scope="module")
def plain() -> Rendered:
    """Render the chart as it stands."""
    return rendered({})[0]


@pytest.fixture(scope="module")
def whole() -> Rendered:
    """Render the chart with everything switched on."""
    return rendered(_ALL)[0]


def _read(given: Rendered, folder: Path) -> Settings:
    """Read the settings as the process does."""
    file = folder / "settings.yaml"
    file.write_text(given.settings(), encoding="utf-8")
    return load_settings({}, file=file, environment={})


def test_what_is_rendered_is_valid(plain: Rendered, whole: Rendered) -> None:
    """Helm's linter, and the strict schemas of the oldest and the newest Kubernetes, find nothing."""
    assert plain.faults == []
    assert whole.faults == []
    everywhere = ["ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Service", "Service", "ServiceAccount"]
    assert plain.kinds() == sorted([*everywhere, "Deployment"])
    dashboards = ["ConfigMap"] * 4
    assert whole.kinds() == sorted(
        [*everywhere, *dashboards, "StatefulSet", "HorizontalPodAutoscaler", "ServiceMonitor"]
    )


def test_the_schemas_would_find_a_fault() -> None:
    """A field that Kubernetes does not know is told of."""
    given = rendered({"affinity": {"nodeAfinity": {}}})[0]
    assert any("nodeAfinity" in fault for fault in given.faults)


def test_a_pod_is_locked_down(plain: Rendered) -> None:
    """It is not root, by number; writes to its volumes alone; holds no token and no capability."""
    spec = plain.pod()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 65532)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert plain.container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    written = [each["name"] for each in plain.container()["volumeMounts"] if not each.get("readOnly", False)]
    assert written == ["tmp"]


def test_settings_are_read_as_they_were_given(plain: Rendered, whole: Rendered, tmp_path: Path) -> None:
    """Large numbers, zero and off arrive as themselves; what the chart sets follows from other values."""
    read = _read(plain, tmp_path)
    assert (read.host, read.port, read.admin_host, read.admin_port) == ("0.0.0.0", 8787, "127.0.0.1", 8788)  # noqa: S104
    assert (read.release, read.state_folder, read.keys_file) == (None, None, None)
    read = _read(whole, tmp_path)
    assert (read.max_body_bytes, read.drain_seconds, read.record_sample, read.cache) == (80_000_000, 0, 0.00001, "off")
    assert read.admin_host == "0.0.0.0"  # noqa: S104
    mounts = {each["name"]: each["mountPath"] for each in whole.container()["volumeMounts"]}
    volumes = {each["name"]: each for each in whole.pod()["spec"]["volumes"]}
    secrets = {each["secret"]["secretName"]: mounts[name] for name, each in volumes.items() if "secret" in each}
    assert secrets == {"cache-key": "/run/secrets/cascade/cache-key", "api-keys": "/run/secrets/cascade/api-keys"}
    assert read.keys_file == Path(secrets["api-keys"], "keys.yaml")
    assert read.admin_keys_file == Path(secrets["api-keys"], "admin.yaml")
    assert str(read.release) == f"{mounts['release']}/release.yaml"
    assert read.state_folder is not None
    assert read.state_folder.is_relative_to(mounts["state"])
    assert whole.one("ConfigMap")["data"]["release.yaml"].strip() == _RELEASE.strip()


def test_every_setting_is_in_the_schema_or_the_charts() -> None:
    """A setting that the schema lacks could not be set; one of the chart's would be overwritten."""
    schema = yaml.safe_load((CHART / "values.schema.json").read_text(encoding="utf-8"))
    settable = set(schema["properties"]["settings"]["properties"])
    assert settable.isdisjoint(_OF_THE_CHART)
    assert settable | _OF_THE_CHART == set(Settings.model_fields)


def test_every_value_is_in_the_schema_and_in_the_docs() -> None:
    """The schema knows what the file of values has, and the table tells of it."""
    schema = yaml.safe_load((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert set(values) == set(schema["properties"]) - {"global"}
    page = (_DOCS / "deploy.md").read_text(encoding="utf-8")
    assert {name for name in values if not re.search(rf"^\|.*`{name}[`.]", page, re.MULTILINE)} == set()


def test_the_values_of_the_docs_are_accepted() -> None:
    """As they stand there; so is what is said of OpenShift, which chooses the user itself."""
    page = (_DOCS / "deploy.md").read_text(encoding="utf-8").replace("sha256:…", "sha256:" + "0" * 64)
    (block,) = re.findall(r"```yaml\n(# values.yaml\n.*?)```", page, re.DOTALL)
    unset = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))
    told, openshift = rendered(yaml.safe_load(block), {"podSecurityContext": unset})
    assert told.faults == openshift.faults == []
    assert unset.keys().isdisjoint(openshift.pod()["spec"]["securityContext"])
    assert openshift.pod()["spec"]["securityContext"]["runAsNonRoot"] is True


def test_a_stop_has_the_time_that_it_takes(tmp_path: Path) -> None:
    """The grace is longer than draining, leftovers and what comes behind them, whatever is set."""
    cases: list[dict[str, Any]] = [{}, {"drain_seconds": 0}, {"drain_seconds": 14.5, "leftover_seconds": 60.5}]
    for given in rendered(*({"settings": each} for each in cases)):
        read = _read(given, tmp_path)
        longest = read.drain_seconds + read.leftover_seconds + _STOP_SECONDS
        assert longest < given.pod()["spec"]["terminationGracePeriodSeconds"] < longest + 10


def test_probes_ask_what_the_process_answers(plain: Rendered) -> None:
    """Liveness is not readiness: a sidecar whose servers are away is not restarted."""
    container = plain.container()
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    assert container["ports"] == [{"name": "http", "containerPort": 8787}]


def test_tls_is_of_secrets_that_are_mounted(tmp_path: Path) -> None:
    """The files that settings name lie in the Secrets' folders; probes and Prometheus speak TLS then too."""
    values: dict[str, Any] = {
        "tls": {"secret": "public-tls"},
        "admin": {
            "reachable": True,
            "tls": {"secret": "admin-tls", "clientCa": {"secret": "clients", "file": "ca.pem"}},
        },
        "serviceMonitor": {"enabled": True, "tlsConfig": {"insecureSkipVerify": True}},
        "networkPolicy": {"adminFrom": _POD},
    }
    (given,) = rendered(values)
    read = _read(given, tmp_path)
    folder = Path("/run/secrets/cascade")
    assert (read.tls_certificate_file, read.tls_key_file) == (
        folder / "public-tls/tls.crt",
        folder / "public-tls/tls.key",
    )
    assert (read.tls_client_ca_file, read.admin_tls_client_ca_file) == (None, folder / "clients/ca.pem")
    mounted = {each["mountPath"] for each in given.container()["volumeMounts"]}
    assert {str(folder / name) for name in ("public-tls", "admin-tls", "clients")} <= mounted
    probed = [given.container()[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert {(each["port"], each["scheme"]) for each in probed} == {("http", "HTTPS")}
    (endpoint,) = given.one("ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"insecureSkipVerify": True})
    assert given.faults == []


def test_probes_go_where_no_certificate_is_asked_for() -> None:
    """The kubelet shows none, so they ask the admin listener where the public one wants one."""
    tls = {"secret": "public-tls", "clientCa": {"secret": "clients"}}
    plain, over_tls = rendered(
        {"tls": tls, "admin": {"reachable": True}},
        {"tls": tls, "admin": {"reachable": True, "tls": {"secret": "admin-tls"}}},
    )
    for given, scheme in ((plain, None), (over_tls, "HTTPS")):
        probed = [given.container()[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
        assert {(each["port"], each.get("scheme")) for each in probed} == {("admin", scheme)}
        assert given.faults == []


def test_the_notes_ask_as_the_listener_wants_to_be_asked() -> None:
    """With a key, and a certificate, where it asks for them; with neither where it does not."""
    tls = {"secret": "public-tls", "clientCa": {"secret": "clients"}}
    plain, keyed, shown = rendered({}, {"keys": {"secret": "k"}}, {"tls": tls, "admin": {"reachable": True}})
    parts = ('-H "authorization: Bearer $KEY" ', "--cert CLIENT.crt --key CLIENT.key --cacert CA.crt https://localhost")
    assert [[part in each.notes for part in parts] for each in (plain, keyed, shown)] == [
        [False, False],
        [True, False],
        [False, True],
    ]


def test_a_change_of_release_or_settings_is_a_change_of_the_pod() -> None:
    """So is neither where the process itself watches the release."""
    watched = {"watch_release": True}
    first, release, settings, quiet, quieter = rendered(
        {"release": {"yaml": "release: a"}},
        {"release": {"yaml": "release: b"}},
        {"release": {"yaml": "release: a"}, "settings": {"log_level": "debug"}},
        {"release": {"yaml": "release: a"}, "settings": watched},
        {"release": {"yaml": "release: b"}, "settings": watched},
    )
    templates = [each.pod()["metadata"]["annotations"] for each in (first, release, settings)]
    assert templates[0] != templates[1]
    assert templates[0] != templates[2]
    assert quiet.pod() == quieter.pod()
    assert quiet.one("ConfigMap") != quieter.one("ConfigMap")
    assert "nothing is kept" in quiet.notes


def test_the_admin_listener_is_reached_by_whom_is_named(plain: Rendered, whole: Rendered) -> None:
    """By default by nobody, and the public one by the namespace."""
    policy = plain.one("NetworkPolicy")["spec"]
    assert policy["ingress"] == [{"from": [{"podSelector": {}}], "ports": [{"port": "http", "protocol": "TCP"}]}]
    rule = whole.one("NetworkPolicy")["spec"]["ingress"][1]
    assert rule == {"from": _POD, "ports": [{"port": "admin", "protocol": "TCP"}]}
    (closed,) = rendered({"networkPolicy": {"from": []}})
    assert (
        closed.one("NetworkPolicy")["spec"]["ingress"] is None
    )  # nobody: no rule of an empty list, which is everybody


def test_egress_is_what_is_named_and_dns(plain: Rendered, whole: Rendered) -> None:
    """Without restrictEgress the policy says nothing of it."""
    assert plain.one("NetworkPolicy")["spec"]["policyTypes"] == ["Ingress"]
    egress = whole.one("NetworkPolicy")["spec"]["egress"]
    assert egress[0] == {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    assert egress[1:] == _ALL["networkPolicy"]["egress"]


def test_prometheus_finds_the_admin_port_of_every_pod(whole: Rendered) -> None:
    """The monitor selects the headless service alone, whose port leads to the pods' admin port, and brings a key."""
    monitor = whole.one("ServiceMonitor")
    selected = monitor["spec"]["selector"]["matchLabels"].items()
    services = [each for each in whole.documents if each["kind"] == "Service"]
    (service,) = [each for each in services if selected <= each["metadata"]["labels"].items()]
    assert service["spec"]["clusterIP"] == "None"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["path"] == "/metrics"
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": {"name": "scraper", "key": "token"}}
    target = {each["name"]: each["targetPort"] for each in service["spec"]["ports"]}[endpoint["port"]]
    assert {each["name"]: each["containerPort"] for each in whole.container()["ports"]}[target] == 8788
    assert service["spec"]["selector"].items() <= whole.pod()["metadata"]["labels"].items()


def test_state_is_a_volume_for_each_pod(whole: Rendered) -> None:
    """Two processes cannot share one, so it is a StatefulSet; who scales, scales that."""
    workload = whole.one("StatefulSet")["spec"]
    assert "replicas" not in workload  # the autoscaler's
    assert workload["serviceName"] in {
        each["metadata"]["name"] for each in whole.documents if each["kind"] == "Service"
    }
    (claim,) = workload["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert whole.one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["kind"] == "StatefulSet"


def test_names_fit_and_versions_are_the_packages() -> None:
    """A name that is too long is cut, so that the one with a suffix fits too."""
    long = "a" * 63
    (given,) = rendered({"fullnameOverride": long})
    assert max(len(each["metadata"]["name"]) for each in given.documents) <= 63
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__


_BAD: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "unknown value": ({"replicas": 3}, "replicas"),
    "unknown setting": ({"settings": {"drain_second": 1}}, "drain_second"),
    "a setting of the chart": ({"settings": {"admin_host": "0.0.0.0"}}, "admin_host"),  # noqa: S104
    "a setting out of range": ({"settings": {"record_sample": 2}}, "record_sample"),
    "a setting of another type": ({"settings": {"max_in_flight": "many"}}, "max_in_flight"),
    "a number as a string": ({"replicaCount": "2"}, "replicaCount"),
    "an empty repository": ({"image": {"repository": ""}}, "repository"),
    "a digest that is none": ({"image": {"digest": "latest"}}, "digest"),
    "a setting by environment": ({"env": [{"name": "CASCADE__PORT", "value": "1"}]}, "env"),
    "a Secret's name": ({"secretMounts": ["../etc"]}, "secretMounts"),
    "no memory": ({"resources": {"limits": {"memory": "much"}}}, "memory"),
    "no disruption at all": ({"podDisruptionBudget": {"maxUnavailable": 0}}, "maxUnavailable"),
    "two releases": ({"release": {"yaml": "a: 1", "location": "/a"}}, "release: give one of"),
    "nothing to watch": ({"settings": {"watch_release": True}}, "no release to watch"),
    "an open admin listener": (
        {"admin": {"reachable": True}, "networkPolicy": {"enabled": False}},
        "whoever reaches the admin listener",
    ),
    "a monitor of what is not reached": ({"serviceMonitor": {"enabled": True}}, "set admin.reachable"),
    "a monitor that is kept out": (
        {"serviceMonitor": {"enabled": True}, "admin": {"reachable": True}},
        "networkPolicy.adminFrom",
    ),
    "a monitor without a key": (
        {
            "serviceMonitor": {"enabled": True},
            "admin": {"reachable": True, "keys": {"secret": "k"}},
            "networkPolicy": {"adminFrom": _POD},
        },
        "serviceMonitor.keySecret",
    ),
    "clients' certificates without TLS": ({"tls": {"clientCa": {"secret": "ca"}}}, "without tls.secret"),
    "probes that have no certificate": (
        {"tls": {"secret": "t", "clientCa": {"secret": "ca"}}},
        "tls.clientCa.secret: the kubelet",
    ),
    "a setting of the chart's TLS": ({"settings": {"tls_key_file": "/k"}}, "tls_key_file"),
    "a switch that is a word": ({"dashboards": {"enabled": "yes"}}, "dashboards"),
    "fewest above most": ({"autoscaling": {"enabled": True, "minReplicas": 11}}, "autoscaling.minReplicas"),
}


def test_bad_values_are_refused_and_named() -> None:
    """Each before anything is installed."""
    told = refusals(*(values for values, _ in _BAD.values()))
    assert {case for case, why in zip(_BAD, told, strict=True) if why is None or _BAD[case][1] not in why} == set()
