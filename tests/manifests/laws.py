"""What must hold in every overlay. A law yields a sentence for each breach."""

from world import container, containers, label, pod, selects, spec

LAWS = {}


def law(function):
    LAWS[function.__name__] = function
    return function


@law
def probes(world):
    """Every program that runs on is asked how it is, and a restart is never asked for because of Postgres."""
    for doc in world.kind("Deployment") + world.kind("StatefulSet"):
        for one in containers(doc):
            for probe in ("livenessProbe", "readinessProbe"):
                if probe not in one:
                    yield f"{label(doc)}: {one['name']} has no {probe}"
    service = container(world.service)
    for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        asked = service.get(probe, {}).get("httpGet", {})
        if (asked.get("path"), asked.get("port")) != (path, "admin"):
            yield f"the service's {probe} does not ask for {path} on the admin port"


@law
def leaving(world):
    """A pod may take as long to leave as the program does, and every caller is answered meanwhile."""
    stop, grace, wait = (world.setting("GRACE_MS") / 1000, spec(world.service)["terminationGracePeriodSeconds"],
                         world.setting("WAIT_MS") / 1000)
    pause = container(world.service).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    if pause < 5:
        yield f"preStop lasts {pause} s: proxies have not heard yet that the pod takes no more calls"
    if grace < pause + stop + 5:
        yield f"the grace period of {grace} s is less than preStop ({pause} s), GRACE_MS ({stop} s) and 5 s"
    if stop < wait + 3:
        yield f"GRACE_MS ({stop} s) is less than WAIT_MS ({wait} s) and the 3 s for handing back"


@law
def rolling(world):
    """A rolling update takes no replica away before its successor is ready, and has at most one that is leaving."""
    rules = world.service["spec"]
    update = rules.get("strategy", {}).get("rollingUpdate", {})
    if (update.get("maxUnavailable"), update.get("maxSurge")) != (0, 1):
        yield "a rolling update must have maxUnavailable 0 and maxSurge 1"
    if rules.get("minReadySeconds", 0) < spec(world.service)["terminationGracePeriodSeconds"]:
        yield "minReadySeconds is less than the grace period: several pods may be leaving at once"


def most_pods(world):
    """The most pods that serve: the autoscaler's maximum, or the fixed number."""
    scalers = world.kind("HorizontalPodAutoscaler")
    return scalers[0]["spec"]["maxReplicas"] if scalers else world.service["spec"].get("replicas", 1)


@law
def budget(world):
    """All replicas' connections fit into Postgres', and the replicas know how many they are."""
    # One that a rolling update adds, one that is leaving.
    pods = most_pods(world) + 2
    said = world.setting("MAX_REPLICAS")
    if said != pods:
        yield f"MAX_REPLICAS is {said}, but up to {pods} pods run at once"
    wanted = said * (world.setting("POOL_SIZE") + 2)
    # Three for superusers; ten for migrations, people and whatever runs Postgres.
    allowed = world.max_connections() - 3 - 10
    if wanted > allowed:
        yield f"MAX_REPLICAS x (POOL_SIZE + 2) is {wanted}, but {allowed} of Postgres' connections are there for it"


@law
def scaling(world):
    """The autoscaler's number is not undone by an apply, and it takes pods away no faster than they leave."""
    for scaler in world.kind("HorizontalPodAutoscaler"):
        rules = scaler["spec"]
        target = world.one(rules["scaleTargetRef"]["kind"], rules["scaleTargetRef"]["name"])
        if target is None:
            yield "the autoscaler scales nothing"
            continue
        if "replicas" in target["spec"]:
            yield f"{label(target)} has a number of replicas and an autoscaler"
        if rules.get("minReplicas", 1) < 3:
            yield "the autoscaler may go below three replicas"
        down = rules.get("behavior", {}).get("scaleDown", {}).get("policies", [])
        if not any(
            one["value"] == 1 and one["periodSeconds"] >= spec(target)["terminationGracePeriodSeconds"] for one in down
        ):
            yield "the autoscaler may take a pod away while another one is still leaving"


@law
def rights(world):
    """No pod may more than it needs: no root, a root file system that cannot be written, no capabilities, no host."""
    for doc in world.workloads():
        context = spec(doc).get("securityContext", {})
        if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
            yield f"{label(doc)} may run as root"
        if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{label(doc)} has no seccomp profile"
        if any(spec(doc).get(part) for part in ("hostNetwork", "hostPID", "hostIPC")) or any(
            "hostPath" in volume for volume in spec(doc).get("volumes", [])
        ):
            yield f"{label(doc)} uses something of its node's"
        for one in containers(doc):
            may = one.get("securityContext", {})
            if may.get("readOnlyRootFilesystem") is not True:
                yield f"{label(doc)}: {one['name']} may write to its root file system"
            if may.get("allowPrivilegeEscalation") is not False or may.get("privileged"):
                yield f"{label(doc)}: {one['name']} may gain rights"
            if may.get("capabilities", {}).get("drop") != ["ALL"] or may["capabilities"].get("add"):
                yield f"{label(doc)}: {one['name']} keeps capabilities"
    for doc in world.kind("Namespace"):
        if doc["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce") != "restricted":
            yield f"{label(doc)} lets in pods with more rights"


@law
def tokens(world):
    """No pod has a token for Kubernetes, but for the load test's deleter, which may list and delete pods."""
    for doc in world.workloads():
        deleter = spec(doc).get("serviceAccountName") == "ticket-ledger-deleter"
        if spec(doc).get("automountServiceAccountToken") is not False and not (deleter and world.name == "load-test"):
            yield f"{label(doc)} mounts a token"
    account = world.one("ServiceAccount", "ticket-ledger")
    if account.get("automountServiceAccountToken") is not False:
        yield "pods of the service account ticket-ledger mount a token"
    for doc in world.kind("Role") + world.kind("ClusterRole"):
        for rule in doc["rules"]:
            if rule != {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "delete"]}:
                yield f"{label(doc)} may do more than list and delete pods"


@law
def resources(world):
    """Every container says what it needs; memory is limited, and the service's processor time is not."""
    for doc in world.workloads():
        for one in containers(doc):
            said = one.get("resources", {})
            if not {"cpu", "memory"} <= said.get("requests", {}).keys() or "memory" not in said.get("limits", {}):
                yield f"{label(doc)}: {one['name']} does not say what it needs"
    if "cpu" in container(world.service).get("resources", {}).get("limits", {}):
        yield "the service's processor time is limited: a throttled replica renews its leases late"


@law
def spread(world):
    """Replicas are on different nodes and zones, and a node that is drained does not count."""
    rules = {rule["topologyKey"]: rule for rule in spec(world.service).get("topologySpreadConstraints", [])}
    node = rules.get("kubernetes.io/hostname", {})
    if (node.get("whenUnsatisfiable"), node.get("nodeTaintsPolicy")) != ("DoNotSchedule", "Honor"):
        yield "replicas may share a node, or a drained node keeps their successors from being placed"
    if "topology.kubernetes.io/zone" not in rules:
        yield "replicas are not spread over zones"


@law
def disruption(world):
    """One pod of a Deployment at a time may be evicted, and an unready one always."""
    for doc in world.kind("Deployment"):
        budgets = [
            one["spec"]
            for one in world.kind("PodDisruptionBudget")
            if selects(one["spec"]["selector"], pod(doc)["metadata"]["labels"])
        ]
        if len(budgets) != 1 or budgets[0].get("maxUnavailable") != 1:
            yield f"{label(doc)} has no disruption budget of one pod"
        elif budgets[0].get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
            yield f"{label(doc)}: a node cannot be drained while Postgres is away"


@law
def selectors(world):
    """Whatever looks for pods finds some, and by a port that they have."""
    templates = [pod(doc) for doc in world.workloads()]
    for doc in world.kind("Service"):
        found = [one for one in templates if selects(doc["spec"]["selector"], one["metadata"]["labels"])]
        if len(found) != 1:
            yield f"{label(doc)} finds {len(found)} workloads"
            continue
        ports = {port["name"] for one in found[0]["spec"]["containers"] for port in one.get("ports", [])}
        for port in doc["spec"]["ports"]:
            if port["targetPort"] not in ports:
                yield f"{label(doc)} leads to a port {port['targetPort']} that is not there"
    for doc in world.workloads():
        wanted = doc["spec"].get("selector")
        if wanted and not selects(wanted, pod(doc)["metadata"]["labels"]):
            yield f"{label(doc)} does not select its own pods"
    # The operator's pods, which are in no manifest, have their cluster's name.
    operated = [{"cnpg.io/cluster": doc["metadata"]["name"]} for doc in world.kind("Cluster")]
    for doc in world.kind("NetworkPolicy"):
        labels = [one["metadata"]["labels"] for one in templates] + operated
        if not any(selects(doc["spec"]["podSelector"], one) for one in labels):
            yield f"{label(doc)} selects no pods"
    for doc in world.kind("ServiceMonitor"):
        found = [one for one in world.kind("Service") if selects(doc["spec"]["selector"], one["metadata"].get("labels", {}))]
        ports = {port["name"] for one in found for port in one["spec"]["ports"]}
        if not found or any(one["port"] not in ports for one in doc["spec"]["endpoints"]):
            yield f"{label(doc)} scrapes nothing"


@law
def images(world):
    """Every image has a version."""
    for doc in world.workloads():
        for one in containers(doc):
            _, _, tag = one["image"].rpartition("/")[2].partition(":")
            if tag in ("", "latest"):
                yield f"{label(doc)}: {one['image']} has no version"
