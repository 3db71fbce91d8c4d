"""What must hold in docker-compose.yml. A law yields a sentence for each breach."""

from laws_of_data import nginx_repeats
from world import directive

COMPOSE_LAWS = {}


def law(function):
    COMPOSE_LAWS["compose_" + function.__name__] = function
    return function


def services(world):
    return world.compose["services"].items()


def replicas(world):
    return {name: one for name, one in services(world) if name.startswith("replica-")}


def seconds(text):
    return int(str(text).rstrip("s"))


@law
def form(world):
    """Compose 1.29 and 2 read it."""
    for name in ("name", "version"):
        if name in world.compose:
            yield f"a top-level {name}"


@law
def rights(world):
    """Nothing has more rights than it needs, and nothing is published beyond this machine."""
    for name, one in services(world):
        if "no-new-privileges:true" not in one.get("security_opt", []):
            yield f"{name} may gain rights"
        if name != "postgres" and not (one.get("read_only") and one.get("cap_drop") == ["ALL"]):
            yield f"{name} may write to its root file system, or keeps capabilities"
        if one.get("privileged") or (one.get("user") == "root" and one.get("profiles") != ["load"]):
            yield f"{name} is root"
        for port in one.get("ports", []):
            if not port.startswith("127.0.0.1:"):
                yield f"{name} publishes {port} beyond this machine"
        if "docker.sock" in str(one.get("volumes")) and one.get("profiles") != ["load"]:
            yield f"{name} has Docker's socket"


@law
def order(world):
    """Who needs another one waits until that one can be used, and starts again by itself."""
    wanted = {
        "balancer": {f"replica-{number}": "service_healthy" for number in (1, 2, 3)},
        "migrate": {"postgres": "service_healthy"},
        **{name: {"migrate": "service_completed_successfully"} for name in replicas(world)},
    }
    for name, others in wanted.items():
        said = world.compose["services"][name].get("depends_on", {})
        if {other: rule.get("condition") for other, rule in said.items()} != others:
            yield f"{name} does not wait for {', '.join(others)}"
    for name, one in services(world):
        if name not in ("migrate", "load") and one.get("restart") != "unless-stopped":
            yield f"{name} does not start again"
    if not any(volume.startswith("data:") for volume in world.compose["services"]["postgres"]["volumes"]):
        yield "Postgres keeps its data nowhere"


@law
def database(world):
    """Only the migration is the owner, and all replicas' connections fit."""
    for name, one in services(world):
        if ("ticket_ledger_owner" in str(one.get("environment"))) != (name == "migrate"):
            yield f"{name} has the wrong role"
    every = replicas(world)
    said = {(one["environment"]["MAX_REPLICAS"], one["environment"]["POOL_SIZE"]) for one in every.values()}
    allowed = int(world.compose["services"]["postgres"]["command"][-1].rpartition("=")[2]) - 13
    for most, pool in said:
        if most != len(every):
            yield f"MAX_REPLICAS is {most}, but there are {len(every)}"
        if most * (pool + 2) > allowed:
            yield f"MAX_REPLICAS x (POOL_SIZE + 2) is more than {allowed}"


@law
def repeats(world):
    """The balancer repeats a POST on another replica, and waits as long as a replica may take."""
    every = replicas(world)
    limits = {one["environment"]["WAIT_MS"] // 1000 + 5 for one in every.values()}
    said = {
        "proxy-next-upstream": directive(world.nginx, "proxy_next_upstream"),
        "proxy-next-upstream-tries": directive(world.nginx, "proxy_next_upstream_tries"),
        "proxy-read-timeout": (directive(world.nginx, "proxy_read_timeout") or "").rstrip("s"),
        "proxy-body-size": directive(world.nginx, "client_max_body_size"),
        "client-body-buffer-size": directive(world.nginx, "client_body_buffer_size"),
    }
    for limit in limits:
        yield from nginx_repeats(said, limit, world, "the balancer")
    for name, one in every.items():
        if one.get("networks", {}).get("default", {}).get("aliases") != ["replicas"]:
            yield f"the balancer does not find {name}"
        if "stop_grace_period" not in one or seconds(one["stop_grace_period"]) < one["environment"]["GRACE_MS"] / 1000 + 5:
            yield f"{name} is killed before GRACE_MS is over"


@law
def settings(world):
    """Every setting is one that the program has."""
    for name, one in replicas(world).items():
        for setting in one["environment"]:
            if setting not in world.settings_known and not setting.startswith("OTEL_"):
                yield f"{name}: {setting} is no setting of the program's"
