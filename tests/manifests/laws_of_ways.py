"""Further laws of every overlay: which ways lead in and to whom, and what the runbook says of them."""

import re

from laws import law
from world import container, directive, label, pod, selects, size


@law
def operator(world):
    """Whoever installs the Postgres operator is told of a version that knows everything that the Cluster asks for."""
    for cluster in world.kind("Cluster"):
        if "failoverQuorum" not in cluster["spec"]["postgresql"].get("synchronous", {}):
            continue
        # The field came with 1.28; before, it was an annotation.
        for where, text in (("the runbook", world.runbook), ("components/cloudnative-pg", world.operator)):
            said = re.findall(r"operator \((\d+)\.(\d+) or newer", text)
            if not said or min((int(major), int(minor)) for major, minor in said) < (1, 28):
                yield f"{where} does not ask for CloudNativePG 1.28 or newer"


# In whose namespace the ways in are (components/gateway, components/ingress).
HOME = {"HTTPRoute": "gateway", "Ingress": "ingress-nginx"}


def backends(doc):
    """The Services that a route or an Ingress leads to."""
    for rule in doc["spec"]["rules"]:
        yield from (one["name"] for one in rule.get("backendRefs", []))
        yield from (path["backend"]["service"]["name"] for path in rule.get("http", {}).get("paths", []))


def admits(policy, labels, port, namespace):
    """Whether a policy lets that namespace's pods to that port of pods with these labels."""
    whom = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    return selects(policy["podSelector"], labels) and any(
        whom in rule.get("from", []) and port in [one["port"] for one in rule.get("ports", [])]
        for rule in policy.get("ingress") or []
    )


@law
def ways_in(world):
    """Whoever brings calls from outside gets through to what it leads to, and to nothing else."""
    policies = [doc["spec"] for doc in world.kind("NetworkPolicy")]
    led = set()
    for doc in world.kind("HTTPRoute") + world.kind("Ingress"):
        for name in set(backends(doc)):
            service = world.one("Service", name)
            if service is None:
                yield f"{label(doc)} leads to {name}, which is not there"
                continue
            for workload in world.workloads():
                labels = pod(workload)["metadata"]["labels"]
                if not selects(service["spec"]["selector"], labels):
                    continue
                led.add(label(workload))
                for port in service["spec"]["ports"]:
                    number = number_of(port["targetPort"], workload)
                    if not any(admits(policy, labels, number, HOME[doc["kind"]]) for policy in policies):
                        yield f"{label(doc)} leads to {name}, where no policy opens port {number} to {HOME[doc['kind']]}"
    for workload in world.workloads():
        labels = pod(workload)["metadata"]["labels"]
        for home in HOME.values():
            if label(workload) not in led and any(
                selects(policy["podSelector"], labels) and home in str(policy.get("ingress")) for policy in policies
            ):
                yield f"{label(workload)} is open to {home}, which does not lead to it"


def number_of(name, workload):
    """The number of a port that a workload names."""
    ports = [port for one in pod(workload)["spec"]["containers"] for port in one.get("ports", [])]
    return next((port["containerPort"] for port in ports if name in (port["name"], port["containerPort"])), None)


@law
def watched(world):
    """Where Prometheus scrapes, the alert rules are installed as they are tested, and the dashboard with them."""
    if not world.kind("ServiceMonitor"):
        return
    rule = world.one("PrometheusRule", "ticket-ledger")
    if rule is None or rule["spec"] != world.alerts:
        yield "the alert rules are not deploy/observability/alerts.yaml: run deploy/kubernetes/components/monitoring/alerts"
    boards = [doc for doc in world.kind("ConfigMap") if doc["metadata"].get("labels", {}).get("grafana_dashboard")]
    if not any("dashboard.json" in doc["data"] for doc in boards):
        yield "nobody installs the dashboard"


# The components that may ask Postgres anything.
CLIENTS = ("service", "migrate", "load")


@law
def door_of_postgres(world):
    """Postgres lets in the service, the migration, its own instances and its operator, each by a port, and nobody else."""
    labels = [{"cnpg.io/cluster": doc["metadata"]["name"]} for doc in world.kind("Cluster")]
    labels += [pod(doc)["metadata"]["labels"] for doc in world.kind("StatefulSet")]
    policies = [doc["spec"] for doc in world.kind("NetworkPolicy")]
    for one in labels:
        mine = [policy for policy in policies if selects(policy["podSelector"], one)]
        if not any("Ingress" in policy["policyTypes"] for policy in mine):
            yield "Postgres is open to every pod of the cluster"
        peers = [peer for policy in mine for rule in policy.get("ingress") or [] for peer in rule.get("from", [{}])]
        for peer in peers:
            chosen = peer.get("podSelector", {})
            among = [name for part in chosen.get("matchExpressions", []) for name in part["values"]]
            known = (
                peer == {"podSelector": {"matchLabels": one}}
                or peer == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "cnpg-system"}}}
                or (set(peer) == {"podSelector"} and among and set(among) <= set(CLIENTS))
            )
            if not known:
                yield f"Postgres is open to {peer}"


def mebibytes(doc):
    """A workload's limit of memory."""
    text = container(doc)["resources"]["limits"]["memory"]
    return int(text[:-2]) * {"Mi": 1, "Gi": 1024}[text[-2:]]


@law
def memory(world):
    """What callers may send at once fits into the memory of who takes it."""
    # What a call takes beside its body: parsed, canonical, and its answer. Measured; see deployment.yaml.
    body = world.setting("MAX_BODY_BYTES")
    wanted = 64 + world.setting("MAX_CONNECTIONS") * (body + 256 * 1024) / 1024**2
    if mebibytes(world.service) < wanted:
        yield f"{world.settings()['MAX_CONNECTIONS']} calls of MAX_BODY_BYTES take {wanted:.0f} MiB, and the service has less"
    balancer = world.one("Deployment", "ticket-ledger-balancer")
    if balancer:
        workers, each = directive(world.nginx, "worker_processes"), directive(world.nginx, "worker_connections")
        heads, head = directive(world.nginx, "large_client_header_buffers").split()
        one = size(directive(world.nginx, "client_body_buffer_size")) + int(heads) * size(head)
        wanted = 64 + int(workers) * int(each) * one / 1024**2 if workers.isdigit() else float("inf")
        if mebibytes(balancer) < wanted:
            yield f"the balancer's connections take {wanted:.0f} MiB, and it has less"
        # As the program has it, where the settings say nothing.
        if size(head) < int(world.settings().get("MAX_HEADER_BYTES", 65536)):
            yield "the balancer refuses heads that the service takes"


@law
def hands(world):
    """What the runbook does to the database by hand names its user and stops at the first failure."""
    # Commands begin a line, follow an `exec`, or are in a function; text in single backquotes is looked at too.
    for line in world.runbook.splitlines():
        for program, rest in re.findall(r"(?:postgres|--) (psql|pg_dump|pg_restore) ([^|)]*)", line):
            if not re.search(r"(-U |--username=)postgres\b", rest):
                yield f"the runbook calls {program} as nobody in particular: {line.strip()[:80]}"
            if program == "psql" and "-c" not in rest and "-Atc" not in rest and "ON_ERROR_STOP=1" not in rest:
                yield f"the runbook's psql goes on after a failure: {line.strip()[:80]}"
            if program == "pg_restore" and "--exit-on-error" not in rest:
                yield f"the runbook's pg_restore goes on after a failure: {line.strip()[:80]}"
