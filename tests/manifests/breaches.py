"""For every law a way to break it. What is changed here must be complained of by that law."""

from world import container, spec

BREACHES = []


def breach(law, overlay="production"):
    def register(function):
        BREACHES.append((law, overlay, function))
        return function

    return register


def setting(world, name, value):
    world.settings()[name] = value


@breach("validity")
def a_field_that_kubernetes_does_not_have(world):
    spec(world.service)["terminationGracePeriod"] = 40


@breach("validity", "load-test")
def a_value_of_another_type(world):
    world.one("Job", "ticket-ledger-deleter")["spec"]["backoffLimit"] = "3"


@breach("probes")
def a_liveness_probe_that_asks_for_postgres(world):
    container(world.service)["livenessProbe"]["httpGet"]["path"] = "/readyz"


@breach("probes", "local")
def a_database_without_a_probe(world):
    del container(world.one("StatefulSet", "ticket-ledger-postgres"))["readinessProbe"]


@breach("leaving")
def a_grace_period_that_is_too_short(world):
    spec(world.service)["terminationGracePeriodSeconds"] = 30


@breach("leaving")
def no_time_for_proxies_to_hear(world):
    del container(world.service)["lifecycle"]


@breach("leaving")
def callers_that_wait_longer_than_a_pod_stays(world):
    setting(world, "WAIT_MS", "24000")


@breach("rolling")
def a_replica_taken_away_first(world):
    world.service["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] = 1


@breach("rolling")
def several_pods_that_leave_at_once(world):
    world.service["spec"]["minReadySeconds"] = 10


@breach("budget")
def more_pods_than_the_replicas_know_of(world):
    world.one("HorizontalPodAutoscaler", "ticket-ledger")["spec"]["maxReplicas"] = 7


@breach("budget")
def pools_that_postgres_cannot_feed(world):
    setting(world, "POOL_SIZE", "20")


@breach("budget", "local")
def a_smaller_postgres(world):
    container(world.one("StatefulSet", "ticket-ledger-postgres"))["args"] = ["-c", "max_connections=60"]


@breach("scaling")
def a_number_beside_the_autoscaler(world):
    world.service["spec"]["replicas"] = 3


@breach("scaling")
def pods_taken_away_quickly(world):
    world.one("HorizontalPodAutoscaler", "ticket-ledger")["spec"]["behavior"]["scaleDown"]["policies"][0]["value"] = 4


@breach("rights")
def root(world):
    del spec(world.service)["securityContext"]["runAsNonRoot"]


@breach("rights")
def a_root_file_system_that_can_be_written(world):
    container(world.service)["securityContext"]["readOnlyRootFilesystem"] = False


@breach("rights", "load-test")
def capabilities(world):
    del container(world.one("Job", "ticket-ledger-load"))["securityContext"]["capabilities"]


@breach("tokens")
def a_token_in_the_pod(world):
    del spec(world.service)["automountServiceAccountToken"]


@breach("tokens", "load-test")
def a_deleter_that_may_read_secrets(world):
    world.one("Role", "ticket-ledger-deleter")["rules"][0]["resources"].append("secrets")


@breach("resources")
def no_limit_of_memory(world):
    del container(world.service)["resources"]["limits"]["memory"]


@breach("resources")
def a_limit_of_processor_time(world):
    container(world.service)["resources"]["limits"]["cpu"] = "1"


@breach("spread")
def all_on_one_node(world):
    spec(world.service)["topologySpreadConstraints"].pop(0)


@breach("disruption")
def a_budget_that_lets_all_go(world):
    world.one("PodDisruptionBudget", "ticket-ledger")["spec"]["maxUnavailable"] = "100%"


@breach("selectors")
def a_service_that_leads_nowhere(world):
    world.one("Service", "ticket-ledger")["spec"]["selector"]["app.kubernetes.io/component"] = "server"


@breach("selectors")
def a_monitor_that_scrapes_nothing(world):
    world.kind("ServiceMonitor")[0]["spec"]["endpoints"][0]["port"] = "metrics"


@breach("images")
def the_newest_image(world):
    container(world.service)["image"] = "registry.example.org/ticket-ledger:latest"


@breach("network")
def an_admin_port_for_all(world):
    world.one("NetworkPolicy", "ticket-ledger")["spec"]["ingress"][0]["ports"].append({"protocol": "TCP", "port": 9000})


@breach("network")
def a_pod_that_no_policy_closes(world):
    world.docs.remove(world.one("NetworkPolicy", "ticket-ledger-migrate"))


@breach("secrets")
def a_password_in_the_settings(world):
    setting(world, "DATABASE_URL", "postgres://ticket_ledger:secret@host/ticket_ledger")


@breach("secrets")
def a_service_that_is_the_owner(world):
    for variable in container(world.service)["env"]:
        if variable["name"] == "DATABASE_URL":
            variable["valueFrom"]["secretKeyRef"]["name"] = "ticket-ledger-postgres-app"


@breach("migration")
def a_new_version_under_the_old_jobs_name(world):
    for doc in (world.service, world.migration):
        container(doc)["image"] = "registry.example.org/ticket-ledger:0.2.0"


@breach("migration")
def a_version_that_cannot_end_a_name(world):
    for doc in (world.service, world.migration):
        container(doc)["image"] = "registry.example.org/ticket-ledger:0.1.0_RC1"
    world.migration["metadata"]["name"] = "ticket-ledger-migrate-0.1.0_RC1"


@breach("settings")
def a_setting_with_a_typing_error(world):
    setting(world, "GRACE_MILLIS", "25000")


@breach("callers")
def nobody_is_asked(world):
    setting(world, "AUTH", "oauth,none")


@breach("callers")
def another_host_name(world):
    world.kind("HTTPRoute")[0]["spec"]["hostnames"] = ["other.example.org"]


@breach("repeats")
def a_route_that_repeats_503(world):
    world.kind("HTTPRoute")[0]["spec"]["rules"][0]["retry"]["codes"].append(503)


@breach("repeats")
def a_route_that_gives_up_too_early(world):
    setting(world, "WAIT_MS", "21000")


@breach("repeats", "production-ingress")
def an_ingress_that_does_not_repeat_posts(world):
    annotations = world.kind("Ingress")[0]["metadata"]["annotations"]
    annotations["nginx.ingress.kubernetes.io/proxy-next-upstream"] = "error timeout http_502"


@breach("repeats", "production-ingress")
def a_buffer_that_is_too_small(world):
    annotations = world.kind("Ingress")[0]["metadata"]["annotations"]
    annotations["nginx.ingress.kubernetes.io/client-body-buffer-size"] = "64k"


@breach("balancer", "load-test")
def a_balancer_before_another_namespaces_replicas(world):
    for doc in world.kind("ConfigMap"):
        if "resolver.conf" in doc["data"]:
            doc["data"]["resolver.conf"] = doc["data"]["resolver.conf"].replace("ticket-ledger-load", "ticket-ledger")


@breach("replication")
def a_commit_on_one_machine(world):
    world.kind("Cluster")[0]["spec"]["postgresql"]["synchronous"]["dataDurability"] = "preferred"


@breach("replication")
def rights_that_the_roles_do_not_have(world):
    statements = world.kind("Cluster")[0]["spec"]["bootstrap"]["initdb"]["postInitApplicationSQL"]
    statements[3] = statements[3].replace("delete", "delete, truncate")


@breach("compose_form", "compose")
def a_top_level_name(world):
    world.compose["name"] = "ticket-ledger"


@breach("compose_rights", "compose")
def a_port_for_everybody(world):
    world.compose["services"]["balancer"]["ports"] = ["8080:8080"]


@breach("compose_rights", "compose")
def dockers_socket(world):
    world.compose["services"]["replica-1"]["volumes"] = ["/var/run/docker.sock:/var/run/docker.sock"]


@breach("compose_order", "compose")
def a_replica_that_does_not_wait_for_the_schema(world):
    world.compose["services"]["replica-2"]["depends_on"] = {"postgres": {"condition": "service_healthy"}}


@breach("compose_database", "compose")
def a_replica_that_is_the_owner(world):
    environment = world.compose["services"]["replica-3"]["environment"]
    environment["DATABASE_URL"] = environment["DATABASE_URL"].replace("ticket_ledger:", "ticket_ledger_owner:")


@breach("compose_database", "compose")
def a_fourth_replica_that_nobody_counted(world):
    world.compose["services"]["replica-4"] = world.compose["services"]["replica-3"]


@breach("compose_repeats", "compose")
def a_balancer_that_repeats_503(world):
    world.nginx = world.nginx.replace("error timeout http_502", "error timeout http_502 http_503")


@breach("compose_repeats", "compose")
def a_balancer_with_a_small_buffer(world):
    world.nginx = world.nginx.replace("client_body_buffer_size 256k", "client_body_buffer_size 16k")


@breach("compose_repeats", "compose")
def a_replica_that_is_killed_too_early(world):
    world.compose["services"]["replica-1"]["stop_grace_period"] = "10s"


@breach("compose_settings", "compose")
def a_setting_that_the_program_does_not_have(world):
    world.compose["services"]["replica-1"]["environment"]["WAIT_SECONDS"] = 20


@breach("operator")
def an_operator_that_does_not_know_a_field(world):
    world.runbook = world.runbook.replace("operator (1.28 or newer", "operator (1.27 or newer")


@breach("hands")
def a_psql_that_goes_on_after_a_failure(world):
    world.runbook = world.runbook.replace("psql -v ON_ERROR_STOP=1 -U postgres -d", "psql -U postgres -d")


@breach("hands")
def a_restore_as_nobody(world):
    world.runbook = world.runbook.replace("pg_restore --username=postgres", "pg_restore")


@breach("ways_in")
def a_route_to_a_balancer_that_nobody_opened(world):
    world.one("HTTPRoute", "ticket-ledger")["spec"]["rules"][0]["backendRefs"] = [{"name": "ticket-ledger-balancer", "port": 8080}]


@breach("ways_in", "production-balanced")
def a_balancer_behind_a_closed_policy(world):
    policy = world.one("NetworkPolicy", "ticket-ledger-from-gateway")["spec"]
    policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"] = "service"
    policy["ingress"][0]["ports"][0]["port"] = 8000


@breach("ways_in", "production-ingress")
def an_ingress_in_another_namespace(world):
    policy = world.one("NetworkPolicy", "ticket-ledger-from-ingress")["spec"]
    policy["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] = "traefik"


@breach("repeats", "production-balanced")
def a_route_that_leaves_the_balancer_no_time(world):
    world.kind("HTTPRoute")[0]["spec"]["rules"][0]["timeouts"]["backendRequest"] = "25s"


@breach("memory")
def more_bodies_than_the_memory_holds(world):
    setting(world, "MAX_BODY_BYTES", "1048576")


@breach("memory", "production-balanced")
def a_balancer_with_a_worker_for_each_processor(world):
    world.nginx = world.nginx.replace("worker_processes 2", "worker_processes auto")


@breach("memory", "local")
def a_balancer_that_refuses_long_heads(world):
    world.nginx = world.nginx.replace("large_client_header_buffers 1 64k", "large_client_header_buffers 4 8k")


@breach("door_of_postgres")
def a_postgres_for_everybody(world):
    world.docs.remove(world.one("NetworkPolicy", "ticket-ledger-postgres"))


@breach("door_of_postgres")
def a_postgres_for_the_namespace(world):
    world.one("NetworkPolicy", "ticket-ledger-postgres")["spec"]["ingress"][0]["from"].append({"podSelector": {}})


@breach("selectors")
def a_policy_for_another_cluster(world):
    policy = world.one("NetworkPolicy", "ticket-ledger-postgres")["spec"]
    policy["podSelector"]["matchLabels"]["cnpg.io/cluster"] = "another"


@breach("watched")
def rules_that_were_changed_in_one_place(world):
    world.one("PrometheusRule", "ticket-ledger")["spec"]["groups"][0]["rules"].pop()


@breach("watched")
def a_dashboard_that_nobody_installs(world):
    world.docs.remove(world.one("ConfigMap", "ticket-ledger-dashboard"))
