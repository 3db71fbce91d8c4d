"""What a deployment is made of, and how its parts are found."""

import re
from dataclasses import dataclass, field

WORKLOADS = ("Deployment", "StatefulSet", "Job")


@dataclass
class World:
    """One overlay as it is rendered, or the compose file."""

    name: str
    docs: list = field(default_factory=list)
    compose: dict = field(default_factory=dict)
    nginx: str = ""
    roles: str = ""
    # The runbook, and what components/cloudnative-pg says of itself.
    runbook: str = ""
    operator: str = ""
    # deploy/observability/alerts.yaml.
    alerts: dict = field(default_factory=dict)
    settings_known: frozenset = frozenset()

    @property
    def is_production(self):
        return self.name.startswith("production")

    def kind(self, kind):
        return [doc for doc in self.docs if doc["kind"] == kind]

    def one(self, kind, name):
        found = [doc for doc in self.kind(kind) if doc["metadata"]["name"] == name]
        return found[0] if found else None

    @property
    def service(self):
        """The Deployment of the service itself."""
        return self.one("Deployment", "ticket-ledger")

    @property
    def migration(self):
        return next(doc for doc in self.kind("Job") if doc["metadata"]["name"].startswith("ticket-ledger-migrate"))

    def workloads(self):
        return [doc for doc in self.docs if doc["kind"] in WORKLOADS]

    def settings(self):
        """The settings that the service's pods share, as a dict; those of the first replica in the compose file."""
        if self.compose:
            return self.compose["services"]["replica-1"]["environment"]
        source = container(self.service)["envFrom"][0]["configMapRef"]["name"]
        return self.one("ConfigMap", source)["data"]

    def setting(self, name):
        return int(self.settings()[name])

    def max_connections(self):
        """Of the Postgres that comes with the overlay."""
        cluster = self.one("Cluster", "ticket-ledger-postgres")
        if cluster:
            return int(cluster["spec"]["postgresql"]["parameters"]["max_connections"])
        postgres = self.one("StatefulSet", "ticket-ledger-postgres")
        return int(re.search(r"max_connections=(\d+)", " ".join(container(postgres)["args"]))[1])


def pod(doc):
    """A workload's pod template."""
    return doc["spec"]["template"]


def spec(doc):
    return pod(doc)["spec"]


def containers(doc):
    return spec(doc).get("initContainers", []) + spec(doc)["containers"]


def container(doc):
    return spec(doc)["containers"][0]


def label(doc):
    """What people call it."""
    return f"{doc['kind']} {doc['metadata']['name']}"


def selects(selector, labels):
    """Whether a label selector of either form matches."""
    if not any(key in selector for key in ("matchLabels", "matchExpressions")):
        selector = {"matchLabels": selector}
    exact = selector.get("matchLabels", {}).items()
    among = selector.get("matchExpressions", [])
    return all(labels.get(key) == value for key, value in exact) and all(
        labels.get(expression["key"]) in expression["values"] for expression in among
    )


def size(text):
    """nginx's sizes in bytes."""
    number, unit = re.fullmatch(r"(\d+)([km]?)", text.lower()).groups()
    return int(number) * {"": 1, "k": 1024, "m": 1024**2}[unit]


def directive(nginx, name):
    """The value of the one directive of this name, or nothing."""
    found = re.findall(rf"^\s*{name}\s+([^;]+);", nginx, re.MULTILINE)
    return found[0] if len(found) == 1 else None
