"""Further laws of every overlay: which ways lead in and to whom, and what the runbook says of them."""

import re

from laws import law


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
