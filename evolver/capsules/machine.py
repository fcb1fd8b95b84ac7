"""What is installed in the image that a capsule's sandboxes run on, asked of one of them."""

from __future__ import annotations

import json
from shlex import quote

from evolver.errors import NotReady
from evolver.graders.program import CLEAN
from evolver.protocols import Sandboxes
from evolver.sandboxes.recipe import SITE
from harnesses.capsule import Capsule, Drift, ImagePin, drifts
from harnesses.harness import Environment

LIST = "/home/user/packages.json"
LIST_S = 60.0
TTL_S = 120.0
# Of two that have a name (as pip knows names), the first on the path is the one that is imported.
PROGRAM = f"""
import json, re, subprocess
from importlib.metadata import distributions
lines = subprocess.run(["dpkg-query", "-W", "-f", "${{Package}}:${{Architecture}} ${{Version}}\\n"],
                       capture_output=True, text=True, check=True).stdout.splitlines()
pip = {{name: {{re.sub("[-_.]+", "-", d.metadata["Name"]).lower(): d.version for d in [*found][::-1]}}
       for name, found in (("pip", distributions()), ("graders", distributions(path=[{SITE!r}])))}}
with open({LIST!r}, "w") as file:
    json.dump({{"deb": dict(line.split(" ", 1) for line in lines), **pip}}, file)
"""


async def image_of(environment: Environment, sandboxes: Sandboxes) -> ImagePin:
    """The image of an environment and the packages installed in it. Raises NotReady when a sandbox can't list them."""
    plain = environment.model_copy(update={"image": "terminal", "network": "none", "allowlist": ()})  # the same image
    box = await sandboxes.open(plain, run_id="capsule", ttl_s=TTL_S)
    try:
        ran = await box.exec(f"/usr/bin/python3 -c {quote(PROGRAM)}", timeout_s=LIST_S)
        if ran.exit_code != 0:
            raise NotReady(f"a sandbox of {box.image_digest} can't list its packages: {ran.output[-300:]}")
        found = json.loads(await box.read(LIST))
        return ImagePin(digest=box.image_digest, **found)
    finally:
        await box.close()


async def images_of(environment: Environment, sandboxes: Sandboxes) -> tuple[ImagePin, ImagePin]:
    """The image of attempts in this environment, and the one that their checks run on: mostly the same."""
    own = await image_of(environment, sandboxes)
    return own, own if await sandboxes.prepare(CLEAN) == own.digest else await image_of(CLEAN, sandboxes)


async def verify_machine(capsule: Capsule, environment: Environment, sandboxes: Sandboxes) -> list[Drift]:
    """How the images of this back end differ from the pinned ones: their digests, and each package in them."""
    pinned = capsule.machine
    if sandboxes.name != pinned.backend:
        return [Drift(field="machine.backend", pinned=pinned.backend, found=sandboxes.name)]
    image, grading = await images_of(environment, sandboxes)
    return [*_drifts("image", pinned.image, image), *_drifts("grading", pinned.grading, grading)]


def _drifts(name: str, pinned: ImagePin, found: ImagePin) -> list[Drift]:
    return drifts(pinned.model_dump(mode="json"), found.model_dump(mode="json"), f"machine.{name}")
