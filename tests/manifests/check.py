"""Renders every overlay, validates it, and looks whether it keeps the laws; then whether each law notices a breach.

    check.py KUBECTL REPOSITORY [CRDS …]

CRDS are files with CustomResourceDefinitions (`kubectl get crds -o yaml`): with them, resources that are not Kubernetes' own
are validated too. Prints a line for each overlay, each image's name and each breach; exits with 1 if anything is not as it should be.
"""

import copy
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

import laws_of_data  # noqa: F401, because it adds its laws to LAWS
import laws_of_ways  # noqa: F401, likewise
from breaches import BREACHES
from laws import LAWS
from laws_of_compose import COMPOSE_LAWS
from references import misnamed
from world import World, label

OVERLAYS = ("local", "production", "production-ingress", "production-balanced", "load-test")
# The oldest version that the manifests are meant for, and the newest that the validator knows.
VERSIONS = ("1.34", kubernetes_validate.latest_version())
CUSTOM = ("HTTPRoute", "ServiceMonitor", "PrometheusRule", "Cluster")


def main(kubectl, root, crds):
    schemas = dict(custom_schemas(crds))
    worlds = {name: overlay(name, kubectl, root) for name in OVERLAYS}
    worlds["compose"] = compose(root)
    failed = False
    for name, world in worlds.items():
        complaints = judged(world, schemas)
        for _, complaint in complaints:
            print(f"FAILED  {name}: {complaint}")
        failed |= bool(complaints)
        if not complaints:
            print(f"ok      {name}, {len(world.docs) or len(world.compose['services'])} parts")
    for image, complaint in misnamed(root, lambda name, root: overlay(name, kubectl, root)):
        failed |= bool(complaint)
        print(f"FAILED  {image}: {complaint}" if complaint else f"named   {image}")
    broken = set()
    for name, overlay_name, change in BREACHES:
        world = copy.deepcopy(worlds[overlay_name])
        change(world)
        before = judged(worlds[overlay_name], schemas, only=name)
        noticed = [one for law, one in judged(world, schemas, only=name) if (law, one) not in before]
        what = change.__name__.replace("_", " ")
        if noticed:
            broken.add(name)
            print(f"caught  {what} ({overlay_name}): {noticed[0]}")
        else:
            failed = True
            print(f"MISSED  {what} ({overlay_name}) by {name}")
    for name in sorted((LAWS.keys() | COMPOSE_LAWS.keys() | {"validity"}) - broken):
        failed = True
        print(f"MISSED  nobody has seen {name} fail: add a breach")
    return 1 if failed else 0


def overlay(name, kubectl, root):
    folder = root / "deploy/kubernetes/overlays" / name
    rendered = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True)
    if rendered.returncode != 0:
        sys.exit(f"FAILED  {name} cannot be rendered: {rendered.stderr}")
    docs = [doc for doc in yaml.safe_load_all(rendered.stdout) if doc]
    maps = [doc["data"] for doc in docs if doc["kind"] == "ConfigMap"]
    nginx = next((data["nginx.conf"] for data in maps if "nginx.conf" in data), "")
    roles = (root / "deploy/postgres/roles.sql").read_text()
    texts = {
        "runbook": (root / "deploy/README.md").read_text(),
        "operator": (root / "deploy/kubernetes/components/cloudnative-pg/kustomization.yaml").read_text(),
    }
    alerts = yaml.safe_load((root / "deploy/observability/alerts.yaml").read_text())
    return World(name, docs=docs, nginx=nginx, roles=roles, alerts=alerts, settings_known=known(root), **texts)


def compose(root):
    document = yaml.safe_load((root / "docker-compose.yml").read_text())
    nginx = (root / "deploy/balancer/nginx.conf").read_text()
    return World("compose", compose=document, nginx=nginx, settings_known=known(root))


def known(root):
    """The settings of the README's table, which another test compares with the program."""
    table = re.findall(r"^\| `([A-Z][A-Z_]+)` \|", (root / "README.md").read_text(), re.MULTILINE)
    return frozenset(table) | {"DATABASE_URL"}


def judged(world, schemas, only=None):
    """The complaints of every law, or of one: pairs of the law's name and a sentence."""
    laws = {"validity": lambda world: invalid(world, schemas), **(COMPOSE_LAWS if world.compose else LAWS)}
    return [(name, one) for name, law in laws.items() if only in (None, name) for one in law(world)]


def invalid(world, schemas):
    for doc in world.docs:
        schema = schemas.get((doc["apiVersion"], doc["kind"]))
        if schema:
            for error in jsonschema.Draft202012Validator(schema).iter_errors(doc):
                yield f"{label(doc)}: {error.json_path}: {error.message}"
        elif doc["kind"] not in CUSTOM:
            for version in VERSIONS:
                try:
                    kubernetes_validate.validate(doc, version, strict=True)
                except kubernetes_validate.ValidationError as error:
                    yield f"{label(doc)} in Kubernetes {version}: {error.message}"


def custom_schemas(files):
    """(apiVersion, kind) and the schema, in which unknown fields are refused."""
    for file in files:
        for document in yaml.safe_load_all(Path(file).read_text()):
            for crd in document["items"] if document and document["kind"] == "List" else [document]:
                if not crd or crd["kind"] != "CustomResourceDefinition":
                    continue
                names = crd["spec"]
                for version in names["versions"]:
                    schema = closed(version["schema"]["openAPIV3Schema"])
                    schema["properties"]["metadata"] = {"type": "object"}
                    yield (f"{names['group']}/{version['name']}", names["names"]["kind"]), schema


def closed(schema):
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {name: closed(one) for name, one in schema.items()}
    if schema.pop("x-kubernetes-int-or-string", False):
        schema.pop("anyOf", None)
        schema["type"] = ["integer", "string"]
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    return schema


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
