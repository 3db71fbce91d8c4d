"""The migration Job's name and the images, for every way to name an image in a registry."""

import shutil
import tempfile
from pathlib import Path

import yaml

from world import container

DIGEST = "sha256:" + "0123456789abcdef" * 4
# newName, newTag and digest, and the image that is run.
REFERENCES = (
    ("registry.example.org/ticket-ledger", "1.2.3", None, "registry.example.org/ticket-ledger:1.2.3"),
    ("host:5000/ticket-ledger", "1.2.3", None, "host:5000/ticket-ledger:1.2.3"),
    ("127.0.0.1:5000/a/b/ticket-ledger", "1.2.3-rc.1", None, "127.0.0.1:5000/a/b/ticket-ledger:1.2.3-rc.1"),
    ("another-name", "1.2.3", None, "another-name:1.2.3"),
    ("registry.example.org/ticket-ledger", "1.2.3", DIGEST, f"registry.example.org/ticket-ledger:1.2.3@{DIGEST}"),
    ("host:5000/ticket-ledger", "1.2.3", DIGEST, f"host:5000/ticket-ledger:1.2.3@{DIGEST}"),
)


def misnamed(root, render):
    """Each image, and a sentence if an overlay that names a registry does not understand it."""
    for name, tag, digest, image in REFERENCES:
        complaint = None
        for overlay in ("production", "load-test"):
            with tempfile.TemporaryDirectory() as place:
                copy = Path(place)
                shutil.copytree(root / "deploy", copy / "deploy")
                shutil.copy(root / "README.md", copy)
                change(copy / "deploy/kubernetes/components/release", newTag=tag, digest=digest)
                change(copy / "deploy/kubernetes/overlays" / overlay, newName=name)
                world = render(overlay, copy)
            job = world.migration
            ran = {container(one)["image"] for one in (job, world.service)}
            if ran != {image}:
                complaint = f"{overlay} runs {sorted(ran)}"
            elif job["metadata"]["name"] != f"ticket-ledger-migrate-{tag}":
                complaint = f"{overlay} has the Job {job['metadata']['name']}"
        yield image, complaint


def change(folder, **said):
    """Says something else of the service's image in a kustomization."""
    file = folder / "kustomization.yaml"
    document = yaml.safe_load(file.read_text())
    one = next(image for image in document["images"] if image["name"] == "ticket-ledger")
    one.update({key: value for key, value in said.items() if value})
    file.write_text(yaml.safe_dump(document))
