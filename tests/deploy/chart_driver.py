"""Render and lint a chart with Helm's engine, and check what comes out against Kubernetes' schemas.

Run by the tools' own Python. Reads `{"chart": folder, "cases": [values, ...]}` from stdin and writes an answer for each case:
`{"documents": [...], "notes": text, "faults": [...]}`, or `{"refused": why}` where Helm refuses the values.
"""

import importlib
import json
import sys
from typing import Any

import yaml

helm: Any = importlib.import_module("helm_python")
kubernetes: Any = importlib.import_module("kubernetes_validate")

_UNKNOWN_KINDS = frozenset({"ServiceMonitor"})  # of the operator of Prometheus: no schema comes with Kubernetes
_FROM_TO = ("1.26", "1.37")


def main() -> None:
    """Answer all cases."""
    asked = json.load(sys.stdin)
    with helm.Chart.load(asked["chart"]) as chart:
        answers = [_answer(chart, asked["chart"], values) for values in asked["cases"]]
    json.dump(answers, sys.stdout)


def _answer(chart: Any, folder: str, values: dict[str, Any]) -> dict[str, Any]:
    try:
        rendered = chart.render(values, name="demo", namespace="search")
    except helm.HelmError as error:
        return {"refused": str(error)}
    notes = next(text for path, text in rendered.items() if path.endswith("NOTES.txt"))
    texts = [text for path, text in rendered.items() if path.endswith(".yaml")]
    documents = [one for text in texts for one in yaml.safe_load_all(text) if one is not None]
    linted = helm.lint(folder, values, strict=True)
    faults = [*linted["errors"], *(each["error"] for each in linted["messages"] if each["severity"] > 1)]
    for document in documents:
        faults += [
            f"{document['kind']}, {version}: {fault}" for version in _FROM_TO for fault in _faults(document, version)
        ]
    return {"documents": documents, "notes": notes, "faults": faults}


def _faults(document: dict[str, Any], version: str) -> list[str]:
    if document["kind"] in _UNKNOWN_KINDS:
        return []
    try:
        kubernetes.validate(document, version, strict=True)
    except (kubernetes.ValidationError, kubernetes.SchemaNotFoundError) as error:
        return [str(error)]
    return []


if __name__ == "__main__":
    main()
