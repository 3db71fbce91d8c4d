"""Further laws of every overlay: who reaches whom, secrets, calls that are repeated, the database."""

import re
from urllib.parse import urlsplit

from laws import law
from world import container, containers, directive, label, pod, selects, size, spec


@law
def network(world):
    """Every pod is closed in both directions but for what is said, and the admin port is open to Prometheus alone."""
    policies = [doc["spec"] for doc in world.kind("NetworkPolicy")]
    for doc in world.workloads():
        labels = pod(doc)["metadata"]["labels"]
        mine = [policy for policy in policies if selects(policy["podSelector"], labels)]
        closed = {kind for policy in mine for kind in policy["policyTypes"]}
        # The load test's deleter has to reach Kubernetes, wherever that is.
        if closed != {"Ingress", "Egress"} and labels["app.kubernetes.io/component"] != "deleter":
            yield f"{label(doc)} is open to everybody"
    for policy in policies:
        for rule in policy.get("ingress") or []:
            ports = {port["port"] for port in rule.get("ports", [])}
            if not ports:
                yield "a policy opens every port"
            if 9000 in ports and rule.get("from") != [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
            ]:
                yield "the admin port is open to others than Prometheus"


@law
def secrets(world):
    """Secrets are referred to, and each role's only by who needs it."""
    if world.is_production and world.kind("Secret"):
        yield "a secret's content is in the manifests"
    for doc in world.workloads():
        for one in containers(doc):
            for variable in one.get("env", []):
                value = str(variable.get("value", ""))
                if re.search(r"://[^/]*:[^/]*@", value) or re.search("PASSWORD|TOKEN|SECRET", variable["name"]):
                    yield f"{label(doc)}: {variable['name']} holds a secret"
    for doc in world.kind("ConfigMap"):
        for name, value in doc.get("data", {}).items():
            if re.search(r"://[^/\s]*:[^/\s]*@", value):
                yield f"{label(doc)}: {name} holds a password"
    of_owner = ("ticket-ledger-owner", "ticket-ledger-postgres-app")
    for doc in world.workloads():
        named = str(spec(doc))
        if doc is not world.migration and any(f"'{name}" in named for name in of_owner):
            yield f"{label(doc)} has the owner's password"
    url = next(one for one in container(world.service)["env"] if one["name"] == "DATABASE_URL")
    reference = url.get("valueFrom", {}).get("secretKeyRef", {})
    if not reference.get("name", "").startswith("ticket-ledger-database"):
        yield "the service has its DATABASE_URL from elsewhere than the application's Secret"


@law
def migration(world):
    """The migration's Job is another one for another version, so that it can be applied again, and goes away."""
    _, _, version = container(world.service)["image"].partition("@")[0].rpartition("/")[2].partition(":")
    job = world.migration
    name = job["metadata"]["name"]
    if name != f"ticket-ledger-migrate-{version}":
        yield f"{label(job)} is not named after the version {version}"
    # What Kubernetes takes for the name of a Job whose pods carry it in a label.
    if len(name) > 63 or not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name):
        yield f"{label(job)} has a name that Kubernetes refuses"
    if container(job)["image"] != container(world.service)["image"]:
        yield "the migration is another version than the service"
    if not job["spec"].get("ttlSecondsAfterFinished"):
        yield f"{label(job)} stays for ever"
    if container(job)["args"] != ["migrate"]:
        yield f"{label(job)} does not migrate"


@law
def settings(world):
    """Every setting is one that the program has."""
    for name in world.settings():
        if name not in world.settings_known and not name.startswith("OTEL_"):
            yield f"{name} is no setting of the program's"


@law
def callers(world):
    """In production everybody is asked who they are, by the name under which the service is found."""
    if not world.is_production:
        return
    said = world.settings()
    # Static tokens beside it are for scripts and operators.
    if said.get("AUTH") not in ("oauth", "token,oauth") or "INSECURE_ALLOW_ANONYMOUS" in said:
        yield "callers are not asked who they are"
    public = urlsplit(said.get("PUBLIC_URL", ""))
    if public.scheme != "https" or public.path:
        yield "PUBLIC_URL is not https://host"
    if said.get("OAUTH_AUDIENCE") != f"{said.get('PUBLIC_URL')}/mcp":
        yield "OAUTH_AUDIENCE is not the connector's URL"
    names = {said.get("ALLOWED_HOSTS")}
    for doc in world.kind("HTTPRoute"):
        names |= set(doc["spec"]["hostnames"])
    for doc in world.kind("Ingress"):
        names |= {rule["host"] for rule in doc["spec"]["rules"]}
    if names != {public.hostname}:
        yield f"the service is called by several names: {sorted(map(str, names))}"
    if not world.kind("HTTPRoute") and not world.kind("Ingress"):
        yield "no way leads in"


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


@law
def repeats(world):
    """Whatever stands before the replicas repeats a POST once, on a lost connection, a time-out and a 502, and not on 503."""
    limit = world.setting("WAIT_MS") // 1000 + 5
    for doc in world.kind("HTTPRoute"):
        for rule in doc["spec"]["rules"]:
            retry, times = rule.get("retry", {}), rule.get("timeouts", {})
            backend, whole = (seconds(times.get(name, "0s")) for name in ("backendRequest", "request"))
            if {one["name"] for one in rule["backendRefs"]} == {"ticket-ledger-balancer"}:
                # The balancer repeats, so the route need not, and has to leave it the time.
                if retry or not 2 * limit < backend <= whole < 60:
                    yield "the route repeats before the balancer, or leaves it less time than two tries take"
            elif (retry.get("attempts"), retry.get("codes")) != (1, [502]):
                yield "the route does not repeat once, on 502 alone"
            elif backend != limit or not 2 * backend <= whole < 60:
                yield "the route's time limits do not fit WAIT_MS"
            paths = {match["path"]["value"] for match in rule["matches"]}
            if paths != {"/mcp", "/api/v1", "/.well-known"}:
                yield "the route lets other paths in than those for callers"
    for doc in world.kind("Ingress"):
        said = {name.rpartition("/")[2]: value for name, value in doc["metadata"].get("annotations", {}).items()}
        yield from nginx_repeats(
            {name.replace("_", "-"): said.get(name.replace("_", "-")) for name in NGINX}, limit, world, label(doc)
        )
    if world.nginx:
        found = {name.replace("_", "-"): directive(world.nginx, NGINX[name]) for name in NGINX}
        found["proxy-read-timeout"] = (found["proxy-read-timeout"] or "").rstrip("s")
        yield from nginx_repeats(found, limit, world, "the balancer")


# An annotation's name, and that of the directive it stands for.
NGINX = {
    "proxy_next_upstream": "proxy_next_upstream",
    "proxy_next_upstream_tries": "proxy_next_upstream_tries",
    "proxy_read_timeout": "proxy_read_timeout",
    "proxy_body_size": "client_max_body_size",
    "client_body_buffer_size": "client_body_buffer_size",
}


def nginx_repeats(said, limit, world, who):
    if sorted((said["proxy-next-upstream"] or "").split()) != ["error", "http_502", "non_idempotent", "timeout"]:
        yield f"{who} does not repeat a POST on a lost connection, a time-out and a 502 alone"
    if said["proxy-next-upstream-tries"] != "2":
        yield f"{who} does not ask two replicas at most"
    if said["proxy-read-timeout"] != str(limit):
        yield f"{who} does not wait for WAIT_MS and five seconds"
    most = int(world.settings()["MAX_BODY_BYTES"])
    for name in ("proxy-body-size", "client-body-buffer-size"):
        if not said[name] or size(said[name]) < most:
            yield f"{who} cannot hold a body of MAX_BODY_BYTES ({name})"


@law
def balancer(world):
    """The balancer finds the replicas of its own namespace."""
    if not world.one("Deployment", "ticket-ledger-balancer"):
        return
    name = spec(world.one("Deployment", "ticket-ledger-balancer"))["volumes"][0]["configMap"]["name"]
    resolver = world.one("ConfigMap", name)["data"]["resolver.conf"]
    home = world.service["metadata"]["namespace"]
    if f" ticket-ledger-replicas.{home}.svc.cluster.local:8000;" not in resolver:
        yield f"the balancer does not look for replicas in {home}"


@law
def replication(world):
    """In production a commit is on two machines before its caller is told, and so is whatever is promoted."""
    if not world.is_production:
        return
    cluster = world.one("Cluster", "ticket-ledger-postgres")["spec"]
    rules = cluster["postgresql"].get("synchronous", {})
    if cluster["instances"] < 3 or rules.get("number", 0) < 1 or rules.get("dataDurability") != "required":
        yield "a failover may lose a claim"
    if rules.get("failoverQuorum") is not True:
        yield "a standby that lacks commits may be promoted"
    sentences = [" ".join(one.split()) for one in re.sub(r"--.*", "", world.roles).split(";")]
    for statement in cluster["bootstrap"]["initdb"]["postInitApplicationSQL"]:
        if statement not in sentences and statement != "create role ticket_ledger login":
            yield f"deploy/postgres/roles.sql does not have: {statement}"
    if sum("default privileges" in one for one in cluster["bootstrap"]["initdb"]["postInitApplicationSQL"]) != 2:
        yield "the application's role is not given its rights"
